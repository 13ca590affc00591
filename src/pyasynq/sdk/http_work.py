"""Worker over HTTP: leases tasks from the task service by a long poll, and runs them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import platform
import socket
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final

from pyasynq._engine.handlers.threads import HandlerThreads, current_threads
from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.errors import ConfigurationError

from .errors import ServiceError, WorkerEndedError
from .lease_answers import read_leased_tasks
from .leased_attempt import LEASED_SECONDS, LeasedAttempt
from .served_names import find_configured, select_names
from .service_connection import ANSWER_SECONDS, Pauses

if TYPE_CHECKING:
    from .handlers import HandlerTable
    from .http_transport import HttpTransport
    from .service_connection import ServiceAnswer
    from .worker_settings import WorkerSettings

_log = logging.getLogger("pyasynq.sdk")

_POLL_SECONDS: Final = 20.0
_MOST_TASKS: Final = 100
"""Maximum number of tasks of one answer, and of queues of one request: limits of the service."""
_FOLLOW_SECONDS: Final = 5.0
"""Seconds between two checks of the task types."""
_CANCEL_SECONDS: Final = 5.0
"""Seconds that cancelled attempts have to end and to be released."""
_OK: Final = 200
_NONE: Final = 204
_NOT_FOUND: Final = 404
_OVERDUE: Final = "handlers that run far over their time and cannot be stopped hold its slots"
_LASTING: Final = frozenset({400, 401, 403, 405, 413, 422})
"""HTTP statuses of permanent refusals: repeating the request would not help."""


class HttpWork:
    """Worker over HTTP: runs tasks that it leases from the task service by long polls.

    It serves the names in its table that the service has configured as task types of the kind `worker`.
    It belongs to one event loop.

    Args:
        transport: HTTP transport of the program.
        table: the handlers.
        settings: settings of the worker.
    """

    def __init__(self, transport: HttpTransport, table: HandlerTable, settings: WorkerSettings) -> None:
        self._transport = transport
        self._table = table
        self._settings = settings
        self._served: set[str] = set()
        """Queues to lease from; written by `start` and `_update_served`."""
        self._attempts: dict[asyncio.Task[None], LeasedAttempt] = {}
        """Attempts that run; each removes itself."""
        self._threads = HandlerThreads("pyasynq-sdk")
        self._stack = AsyncExitStack()
        self._is_closing = False
        self._run: asyncio.Task[str] | None = None
        self._poll: asyncio.Task[ServiceAnswer] | None = None
        self._answer_comes = asyncio.Event()
        """Event that is set while the answer to a poll arrives; the poll is then not cancelled."""
        self._changed = asyncio.Event()
        """Event that wakes the lease loop: an attempt or the work has ended, or the queues have changed."""
        self._fatal: WorkerEndedError | None = None

    async def start(self) -> asyncio.Task[str]:
        """Start to take tasks; return the asyncio task that runs until the work ends.

        Raises:
            ConfigurationError: when none of the table's names is configured.
            ServiceError: the service does not answer, or refuses the key.
        """
        await self._transport.start()
        self._served = select_names(self._table, self._transport)
        if len(self._table.names) + len(self._table.inner_names) > _MOST_TASKS:
            raise ConfigurationError(f"handlers: over HTTP there may be {_MOST_TASKS} names at most")
        for name in self._table.inner_names:
            if not self._transport.find_kind(name):
                raise ConfigurationError(
                    f"on_finished: the service has no task type {visible(name)!r}, which is told of ends: "
                    f"add [tasks.{visible(name)}] to its file"
                )
        await self._stack.enter_async_context(self._table.lifetime())
        try:
            await self._probe()
        except BaseException:
            await self._finish()
            raise
        context = contextvars.copy_context()
        context.run(current_threads.set, self._threads)
        self._run = asyncio.create_task(self._work(), name="pyasynq sdk worker", context=context)
        _log.info("leasing tasks of %s", counted(len(self._served), "type"))
        return self._run

    def describe_end(self, result: str) -> str:
        """Return why the work has ended by itself."""
        return result

    async def close(self) -> None:
        """Lease no more tasks, let running ones end within `shutdown_timeout`, and release the others."""
        self._is_closing = True
        self._stop_poll()
        self._changed.set()
        if self._run is not None:
            await asyncio.wait({self._run})
        await self._finish()

    async def _finish(self) -> None:
        if self._attempts:
            await asyncio.wait(self._attempts, timeout=self._settings.shutdown_timeout)
        self._threads.close()
        for attempt in [*self._attempts.values()]:
            attempt.stop()
        if self._attempts:
            await asyncio.wait(self._attempts, timeout=_CANCEL_SECONDS)
        for task in [*self._attempts]:
            task.cancel()
        if self._attempts:
            await asyncio.wait(self._attempts)
        await self._stack.aclose()

    async def _probe(self) -> None:
        """Send one lease request that does not wait, so that an invalid API key makes the start fail.

        A task that it brings is started.
        """
        answer = await self._ask(limit=1, wait=0.0)
        if answer.status in _LASTING:
            raise answer.error()
        self._take(answer, asyncio.get_running_loop().time())

    async def _work(self) -> str:
        """Lease and run tasks until `close` or an error; return the error's reason, or an empty string."""
        looking = asyncio.create_task(self._follow_types(), name="pyasynq sdk types")
        try:
            pauses = Pauses()
            while not self._is_closing and self._fatal is None:
                free = self._settings.concurrency - len(self._attempts)
                if free <= 0 or not self._served:
                    await self._wait_for_change()
                    continue
                pause = await self._lease(min(free, _MOST_TASKS), pauses)
                if pause:
                    await self._wait_for_change(pause)
        finally:
            looking.cancel()
            await asyncio.wait({looking})
        return str(self._fatal or "")

    async def _wait_for_change(self, seconds: float | None = None) -> None:
        self._changed.clear()
        if self._is_closing or self._fatal is not None:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _lease(self, limit: int, pauses: Pauses) -> float:
        """Send one lease request, and start its tasks; return the seconds to wait before the next request."""
        asked_at = asyncio.get_running_loop().time()
        self._answer_comes.clear()
        self._poll = asyncio.create_task(self._ask(limit, _POLL_SECONDS), name="pyasynq sdk poll")
        await asyncio.wait({self._poll})
        if self._poll.cancelled():
            return 0.0
        error = self._poll.exception()
        if isinstance(error, ServiceError):
            return self._back_off(error, pauses)
        answer = self._poll.result()
        if answer.status in {_OK, _NONE}:
            try:
                self._take(answer, asked_at)
            except ServiceError as strange:
                return self._back_off(strange, pauses)
            pauses.reset()
            return 0.0
        if answer.status in _LASTING:
            self._end(str(answer.error()))
            return 0.0
        if answer.status == _NOT_FOUND:
            with suppress(ServiceError):
                await self._update_served()  # a task type was deleted
        return self._back_off(answer.error(), pauses, answer.retry_after)

    def _back_off(self, error: ServiceError, pauses: Pauses, least: float = 0.0) -> float:
        pause = pauses.next(least)
        _log.warning("no tasks were leased: %s; trying again in %.1f s", error, pause)
        return pause

    async def _ask(self, limit: int, wait: float) -> ServiceAnswer:
        body = {
            "queues": sorted([*self._served, *self._table.inner_names]),
            "limit": limit,
            "wait": wait,
            "lease": LEASED_SECONDS,
            "worker": {
                "name": self._settings.team[:200],
                "language": f"python {platform.python_version()}",
                "host": socket.gethostname()[:200],
                "pid": os.getpid(),
                "version": self._settings.version[:200],
            },
        }
        return await self._transport.connection.send(
            "POST", "/v1/leases", body, seconds=wait + ANSWER_SECONDS, on_answer=self._answer_comes
        )

    def _take(self, answer: ServiceAnswer, asked_at: float) -> None:
        """Start the tasks in the answer to a lease request.

        Raises:
            ServiceError: the answer is not from the service, but from a proxy, for example.
        """
        tasks, skew = read_leased_tasks(answer)
        for leased in tasks:
            attempt = LeasedAttempt(
                leased,
                began_at=asked_at,
                clock_skew=skew,
                connection=self._transport.connection,
                table=self._table,
                threads=self._threads,
            )
            context = contextvars.copy_context()
            context.run(current_threads.set, self._threads)
            work = attempt.release() if self._is_closing else self._run_attempt(attempt)
            task = asyncio.create_task(work, context=context)
            self._attempts[task] = attempt
            task.add_done_callback(self._forget)

    async def _run_attempt(self, attempt: LeasedAttempt) -> None:
        left = (attempt.deadline_at or 0) - time.time()
        latest = max(0.0, left) + self._settings.overdue_limit
        overdue = attempt.loop.call_later(latest, self._end, _OVERDUE)
        try:
            await attempt.run()
        finally:
            overdue.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._attempts.pop(task, None)
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("an attempt was not settled; its task comes back", exc_info=task.exception())

    def _end(self, reason: str) -> None:
        """End the worker because of an error, for this reason; `start`'s asyncio task then ends."""
        self._fatal = self._fatal or WorkerEndedError(reason)
        self._stop_poll()
        self._changed.set()

    def _stop_poll(self) -> None:
        """Cancel the waiting long poll, unless its answer has begun to arrive: that may contain tasks."""
        if self._poll is not None and not self._answer_comes.is_set():
            self._poll.cancel()

    async def _follow_types(self) -> None:
        while True:
            await asyncio.sleep(_FOLLOW_SECONDS)
            try:
                await self._update_served()
            except ServiceError as error:
                _log.debug("the task types were not read: %s", error)

    async def _update_served(self) -> None:
        """Serve types that have been configured since the last check, and drop deleted ones."""
        await self._transport.refresh()
        wanted = find_configured(self._table, self._transport)
        if wanted == self._served:
            return
        for name in sorted(wanted - self._served):
            _log.info("task type %s is configured: it is served", visible(name))
        for name in sorted(self._served - wanted):
            _log.warning("task type %s is configured no longer: it is not served", visible(name))
        self._served = wanted
        self._stop_poll()
        self._changed.set()
