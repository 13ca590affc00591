"""`start_worker`, and the handle of a running worker."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any, Self

from pyasynq._visible_text import visible
from pyasynq.errors import ServerStateError

from .endings import make_ending_handler, name_endings
from .errors import WorkerEndedError
from .handlers import HandlerTable
from .program_end import end_program
from .task_run import task_run
from .transports import make_transport, make_work
from .worker_settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import TracebackType

    from .endings import OnFinished
    from .task_request import RequestedTask, TaskReq
    from .transports import Transport, Work

    OnFatal = Callable[[BaseException], Awaitable[object] | object]

_log = logging.getLogger("pyasynq.sdk")

_open_workers: list[RunningWorker] = []
"""Workers of this process that are not closed, in the order of their starts; written by their event loops."""


async def start_worker(  # noqa: PLR0913 - a worker is configured in one place, by name
    handlers: Mapping[str, Any],
    *,
    middlewares: Iterable[Callable[..., Any]] = (),
    redis: Any = None,
    service: str | None = None,
    key: str = "",
    team: str = "",
    version: str = "",
    concurrency: int = 100,
    shutdown_timeout: float = 8.0,
    overdue_limit: float = 600.0,
    on_finished: OnFinished | None = None,
    on_fatal: OnFatal | None = None,
) -> RunningWorker:
    """Start a worker in this event loop, next to its other work, such as a web application.

    It reads the configurations of its task types, serves their queues, and follows each change.

    If it dies later, the reason is logged at level CRITICAL, and the process ends: with SIGTERM, so that a
    web server can finish its requests, and with an exit code other than 0.

    Args:
        handlers: functions by task name, coroutine functions or plain ones. A function with the parameters
            `(context, task)` gets both; any other function gets the fields of the task's params as arguments.
        middlewares: `async def m(task, call_next)` around every handler, the first one outermost.
        redis: where Redis is, as for `Client`: the worker takes its tasks there.
        service: address of the task service, such as `http://task-queue:8080`: the worker leases its tasks
            over HTTP, and needs no Redis. Give this or `redis`.
        key: API key for `service`, with the scopes `work` and `tasks:write`.
        team: name of the team, shown with the worker and in the audit.
        version: version of your application, published with its task types.
        concurrency: number of tasks that run at once in this process, of all types together.
        shutdown_timeout: seconds that running tasks have after `close`.
        overdue_limit: a handler that cannot be stopped ends the worker this many seconds after its deadline.
        on_finished: function that gets an `EndReport` for each task that is enqueued through this worker. It
            is retried until it succeeds: at least once for each end, even after a restart. Any worker of the
            team with an `on_finished` may call it.
        on_fatal: function that gets the error when the worker dies or cannot start. With it, the process is
            not ended, and this call does not raise the error.

    Raises:
        ConfigurationError: for invalid arguments, and when no name of the table is configured.
        RedisError: Redis cannot be reached.
        ServiceError: the task service does not answer, or refuses the key.
    """
    layers = tuple(middlewares)
    table = HandlerTable(handlers, layers, version=version)
    settings = WorkerSettings(
        concurrency=concurrency,
        shutdown_timeout=shutdown_timeout,
        overdue_limit=overdue_limit,
        publish_events=task_run in layers,
        team=team,
        version=version,
    )
    finished_name = ""
    if on_finished is not None:
        finished_name = name_endings(team)
        table.add_inner(finished_name, make_ending_handler(on_finished))
    transport = make_transport(redis=redis, service=service, key=key, team=team)
    worker = RunningWorker(transport, make_work(transport, table, settings), finished_name, on_fatal)
    await worker.start()
    return worker


async def enqueue(request: TaskReq) -> RequestedTask:
    """Enqueue a task through the worker of this process. Callable from any thread and event loop.

    Raises:
        ServerStateError: when this process has no worker.
        PyasynqError: as `RunningWorker.enqueue` does.
    """
    return await _find_worker().enqueue(request)


def enqueue_sync(request: TaskReq) -> RequestedTask:
    """Enqueue a task through the worker of this process, and block until it is enqueued.

    Callable from any thread except the worker's own.

    Raises what `enqueue` raises.
    """
    return _find_worker().enqueue_sync(request)


def _find_worker() -> RunningWorker:
    if not _open_workers:
        raise ServerStateError(
            "this process has no worker to enqueue through: call start_worker() before, or use SdkClient"
        )
    return _open_workers[-1]


class RunningWorker:
    """A running worker, made by `start_worker`. Close it, or use it as a context manager."""

    def __init__(
        self,
        transport: Transport,
        work: Work,
        finished_name: str = "",
        on_fatal: OnFatal | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._work = work
        self._finished_name = finished_name
        self._on_fatal = on_fatal
        self._is_closing = False
        self._ended = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to take tasks. `start_worker` calls this."""
        try:
            run = await self._work.start()
        except BaseException as error:
            await self._transport.close()
            self._ended.set()
            if self._on_fatal is None or not isinstance(error, Exception):
                raise
            _log.critical("the worker cannot start: %s", visible(error))
            await _call(self._on_fatal, error)
            return
        _open_workers.append(self)
        self._watch = asyncio.create_task(self._watch_over(run), name="pyasynq sdk watch")

    @property
    def is_running(self) -> bool:
        """Whether the worker still takes or runs tasks."""
        return not self._ended.is_set()

    async def enqueue(self, request: TaskReq) -> RequestedTask:
        """Enqueue a task. Callable from any thread and event loop.

        Raises:
            InvalidOptionError: for an unknown task name, and for params that do not fit its schema.
            PyasynqError: as `Client.enqueue` does.
        """
        if asyncio.get_running_loop() is self._loop:
            return await self._transport.enqueue(request, self._finished_name)
        future = asyncio.run_coroutine_threadsafe(
            self._transport.enqueue(request, self._finished_name), self._loop
        )
        return await asyncio.wrap_future(future)

    def enqueue_sync(self, request: TaskReq) -> RequestedTask:
        """Enqueue a task, and block until it is enqueued. Callable from any thread except the worker's own.

        Raises:
            ServerStateError: when called in the worker's event loop, which would block for ever.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            raise ServerStateError("enqueue_sync() would block the worker's event loop: await enqueue()")
        return asyncio.run_coroutine_threadsafe(
            self._transport.enqueue(request, self._finished_name), self._loop
        ).result()

    async def wait(self) -> None:
        """Wait until the worker has ended."""
        await self._ended.wait()

    async def close(self) -> None:
        """Take no more tasks, let running ones end within `shutdown_timeout`, and requeue the others.

        Idempotent.
        """
        self._is_closing = True
        if self._watch is None:
            return
        await self._work.close()
        await self._watch

    async def _watch_over(self, run: asyncio.Task[Any]) -> None:
        """Wait for the end of the worker, and end the process unless the end was requested."""
        await asyncio.wait({run})
        error = None if self._is_closing else self._read_end(run)
        if self in _open_workers:
            _open_workers.remove(self)
        await self._work.close()
        await self._transport.close()
        self._ended.set()
        if error is None:
            return
        if self._on_fatal is None:
            end_program(error)
            return
        _log.critical("the worker has died: %s", visible(error))
        await _call(self._on_fatal, error)

    def _read_end(self, run: asyncio.Task[Any]) -> BaseException | None:
        """Return why the worker has ended by itself; None if an operator requested the end."""
        if run.cancelled():
            return WorkerEndedError("its task was cancelled")
        if run.exception() is not None:
            return run.exception()
        reason = self._work.describe_end(run.result())
        if reason:
            return WorkerEndedError(reason)
        _log.warning("an operator has stopped the worker; the program around it goes on")
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the worker."""
        await self.close()


async def _call(function: OnFatal, error: BaseException) -> None:
    """Call the user's `on_fatal`; log an error that it raises."""
    try:
        answer = function(error)
        if inspect.isawaitable(answer):
            await answer
    except Exception:  # noqa: BLE001 - it is logged, and the worker has ended anyway
        _log.exception("on_fatal has raised")
