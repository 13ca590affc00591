"""Test kit: an app on a test database, with a clock that stands still and a worker that runs on request."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from pyasynq import sync
from pyasynq._app.typed_task import TypedTask
from pyasynq._call_shape import describe_function
from pyasynq._checks import is_whole, parse_instant, parse_seconds
from pyasynq._clock import Instant
from pyasynq._engine.handlers.routes import make_router
from pyasynq._engine.handlers.threads import HandlerThreads
from pyasynq._engine.logs import LogSubscriber
from pyasynq._redis.clients import read_source_url
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.guard import only
from pyasynq._redis.url import parse_redis_url
from pyasynq.app import App
from pyasynq.config import ServerConfig
from pyasynq.errors import (
    ConfigurationError,
    InvalidOptionError,
    QueueNotFoundError,
    ServerStateError,
    TaskNotFoundError,
    WaitTimeoutError,
)
from pyasynq.events import Events
from pyasynq.task import TaskState
from pyasynq.testing._assertions import Assertions
from pyasynq.testing._database import database
from pyasynq.testing._direct import QueuePlace, make_immediate, put_in_front, take_and_die
from pyasynq.testing._recorder import RecordedRouter, Recorder
from pyasynq.testing._report import Attempt, Report
from pyasynq.testing._schedules import Schedules
from pyasynq.testing._threads import run_blocking
from pyasynq.testing._time import VirtualClock, age_keys, parse_start, whole_seconds
from pyasynq.testing._worker import HandWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from datetime import datetime, timedelta
    from types import TracebackType

    from pyasynq._engine.handlers.routes import Handler, Router, RouterSource
    from pyasynq._redis.clients import RedisSource
    from pyasynq.client import Client
    from pyasynq.options import Duration
    from pyasynq.periodic import PeriodicTaskManager
    from pyasynq.scheduler import Scheduler
    from pyasynq.task import Task

_P = ParamSpec("_P")
_R = TypeVar("_R")
_ENDED = frozenset({TaskState.COMPLETED, TaskState.ARCHIVED})


class KitBase:
    """Base class of the kit: its life cycle and its worker."""

    def __init__(
        self,
        handler: RouterSource | Router | Handler,
        *,
        config: ServerConfig | None,
        concurrency: int,
        start: datetime | None,
        url: RedisSource | None,
        allow: Iterable[str],
        patience: Duration,
        with_scheduler: bool,
    ) -> None:
        self._app = handler if isinstance(handler, App) else None
        self._router = make_router(handler)
        self._config = config
        if not is_whole(concurrency, 1):
            raise InvalidOptionError("concurrency", concurrency, "must be a whole number, 1 or more")
        self._concurrency = concurrency
        self._start = start
        self._given_url = None if url is None else read_source_url(url)
        self._allow = [parse_redis_url(one).address for one in allow]
        self._patience = parse_seconds("patience", patience)
        self._with_scheduler = with_scheduler
        self._stack = ExitStack()
        self._worker: HandWorker | None = None
        self._is_busy = False

    def __enter__(self) -> Self:
        """Start: until the end of the block the app uses only the test's database."""
        if hasattr(self, "clock"):
            raise ServerStateError("a kit is used once; call use() again")
        self.clock = VirtualClock(parse_start(self._start))
        """The virtual clock, for `Client`, `Scheduler` and other classes with a parameter `clock`."""
        with ExitStack() as stack:
            self.url = stack.enter_context(database(self._given_url))
            """The URL of the test's database."""
            target = parse_redis_url(self.url)
            stack.enter_context(only({target.address, *self._allow}))
            self._place = place = QueuePlace(self.url, self.clock)
            if self._app is not None:
                # Redirect before `load`: another kit may use the app, or the import of a module may fail.
                stack.enter_context(self._app._redirect(place))  # noqa: SLF001 - made for this
                self._app.load()
            self.client: Client = place.open_client()
            """An asyncio client of the test's database."""
            stack.callback(self.client._driver.abandon)  # noqa: SLF001 - it uses no event loop
            self.sync_client = stack.enter_context(place.open_blocking_client())
            """A blocking client of the test's database."""
            self.inspector = stack.enter_context(sync.Inspector(self.url, clock=self.clock))
            """A blocking inspector of the test's database."""
            self._driver = BlockingDriver(target, client_name="pyasynq-testing", clock=self.clock)
            stack.callback(self._driver.close)
            self.attempts: list[Attempt[Any]] = []
            """All attempts that the kit has run so far."""
            self._tasks = {} if self._app is None else self._app.tasks
            self._schedules = Schedules(self.clock)
            self._add_schedules_of_app()
            self._stack = stack.pop_all()
        return self

    def _add_schedules_of_app(self) -> None:
        if self._app is None or not self._with_scheduler:
            return
        scheduler = self._app.scheduler()
        if scheduler.entries:
            self._schedules.add(scheduler)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End: restore the app, and empty the test's database."""
        self._stack.close()

    async def __aenter__(self) -> Self:
        """Start, as `with` does."""
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, as `with` does."""
        try:
            if self._app is not None:
                await self._app.close()
        finally:
            self.__exit__(kind, error, trace)

    @property
    def now(self) -> datetime:
        """Current virtual time, in UTC."""
        return self.clock.now().to_datetime()

    def override(self, provider: Callable[..., Any], fake: Any) -> ExitStack:
        """Replace a provider of dependencies (with a fake) until the kit ends, or for a `with` block.

        Args:
            provider: the function that `depends` was given.
            fake: a function that is called instead and may have dependencies, or the value itself.

        Returns:
            a context manager that restores the provider at the end of a `with` block.

        Raises:
            ConfigurationError: for a kit without an app, and for a provider that no task depends on.
        """
        if self._app is None:
            raise ConfigurationError("only an app has dependencies, and this kit has none")
        if not self._app._registry.is_provider(provider):  # noqa: SLF001 - as below
            raise ConfigurationError(
                f"no task of the app depends on {describe_function(provider)}: "
                "give the function that depends(...) was given"
            )
        overrides = self._app._providers.overrides  # noqa: SLF001 - made for this
        before = overrides.get(provider)
        overrides[provider] = fake if callable(fake) else lambda: fake

        def restore() -> None:
            if before is None:
                overrides.pop(provider, None)
            else:
                overrides[provider] = before

        block = ExitStack()
        block.callback(restore)
        self._stack.callback(block.close)
        return block

    @property
    def _server_config(self) -> ServerConfig:
        config, app = self._config, self._app
        if app is not None:
            config = app._complete(app.worker if config is None else config)  # noqa: SLF001 - as above
        elif config is None:
            config = ServerConfig()
        # In burst mode, the worker watches no queue; the kit has no service for wake-ups. Remaining tasks
        # stay pending.
        return replace(
            config,
            concurrency=self._concurrency,
            prefetch=0,
            burst=True,
            max_tasks=None,
            health_check=None,
        )

    def _move_to(self, moment: Instant) -> None:
        now = self.clock.now()
        if moment <= now:
            return
        if self._worker is not None:
            self._worker.hold_leases(moment.timestamp - now.timestamp)
        if moment.seconds > now.seconds:
            age_keys(self._driver, moment.seconds - now.seconds)
        self.clock.move_to(moment)
        if self._worker is not None:
            self._worker.time_passed()

    @asynccontextmanager
    async def _working(
        self, recorder: Recorder, threads: HandlerThreads, config: ServerConfig, *, raises: bool
    ) -> AsyncIterator[HandWorker]:
        """Run a worker within the app's lifespan, for the duration of a `with` block."""
        if self._is_busy:
            raise ServerStateError(
                "the kit's worker is running: a handler, or code that runs in parallel, cannot drain, "
                "advance or perform; in a handler, pass_time() lets time pass"
            )
        self._is_busy = True
        try:
            async with AsyncExitStack() as stack:
                state = None
                if self._app is not None:
                    state = await stack.enter_async_context(self._app._working(None))  # noqa: SLF001 - as above
                events = Events()
                LogSubscriber(config, parse_redis_url(self.url).address).attach(events)
                for one in (events, *self._schedules.events):
                    stack.enter_context(recorder.listening(one))
                worker = HandWorker(
                    parse_redis_url(self.url),
                    RecordedRouter(self._router, recorder),
                    config,
                    clock=self.clock,
                    events=events,
                    recorder=recorder,
                    threads=threads,
                    task_state=state,
                )
                stack.push_async_callback(worker.close)
                worker.stop_at_failure, worker.patience = raises, self._patience
                self._worker = worker
                yield worker
        finally:
            self._is_busy, self._worker = False, None
            self.attempts += recorder.attempts
        if raises:
            recorder.raise_failure()

    def _recorder(self) -> Recorder:
        return Recorder(self.clock, self._tasks)

    def _report(self, recorder: Recorder) -> Report:
        infos = [self.inspector.queue_info(queue) for queue in self.inspector.queues()]
        left = {info.queue: info.pending for info in infos if info.pending}
        return Report(tuple(recorder.attempts), tuple(recorder.events), left)


class Kit(KitBase, Assertions):
    """An app under test; made by `use`.

    Inside the block of `use`, pyasynq cannot connect to any other Redis. Time stands still until `advance`
    or `pass_time`.

    Each method that runs handlers has two forms. The coroutine runs handlers in the test's event loop. The
    blocking form ends in `_sync` and runs plain handlers in the thread of the test.

    With `raises`, the first error of a handler, an aggregator, a hook or a provider ends the run. The error
    is raised unchanged after the running attempts have ended and are settled. A note on it names the task.
    `Snooze`, `Retry`, `Archive`, `Cancel` and `RevokeTask` of a handler are not errors.

    Attributes:
        url: URL of the test's database.
        clock: virtual clock, for classes that take one, such as `Scheduler(kit.url, clock=kit.clock)`.
        client, sync_client: clients of the test's database, for code that has no app.
        inspector: a blocking inspector of the test's database.
        attempts: all attempts that the kit has run so far.
    """

    async def drain(self, *, raises: bool = True) -> Report:
        """Run all due tasks, and the tasks that they enqueue, until no task is due; time stands still.

        Returns:
            the attempts and other events of this call.

        Raises:
            DrainTimeoutError: when it takes longer than the `patience` of the kit.
            EndlessDrainError: when tasks enqueue further tasks, or snooze, without end.
            Exception: with `raises`, the error of a handler.
        """
        return await self._until(self.clock.now(), HandlerThreads(), raises=raises)

    def drain_sync(self, *, raises: bool = True) -> Report:
        """Run all due tasks, blocking; as `drain`."""
        return run_blocking("drain", lambda threads: self._until(self.clock.now(), threads, raises=raises))

    async def advance(
        self,
        duration: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        raises: bool = True,
    ) -> Report:
        """Let time pass, in whole seconds, while worker and schedulers run; raises as `drain` does.

        Time moves from one instant at which something is due to the next. At each instant, all due work is
        done, as by `drain`: retries, scheduled tasks, ticks, groups, lapsed leases, the end of retention.
        Keys expire as Redis would delete them.

        Returns:
            the attempts and other events of this call.
        """
        span = whole_seconds(duration, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return await self._until(self.clock.after(span), HandlerThreads(), raises=raises)

    def advance_sync(
        self,
        duration: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        raises: bool = True,
    ) -> Report:
        """Let time pass while worker and schedulers run, blocking; as `advance`."""
        span = whole_seconds(duration, days=days, hours=hours, minutes=minutes, seconds=seconds)
        until = self.clock.after(span)
        return run_blocking("advance", lambda threads: self._until(until, threads, raises=raises))

    async def advance_to(self, moment: datetime, *, raises: bool = True) -> Report:
        """Let time pass until this time; as `advance`. Raises `InvalidOptionError` for a time in the past."""
        return await self._until(self._parse_moment(moment), HandlerThreads(), raises=raises)

    def advance_to_sync(self, moment: datetime, *, raises: bool = True) -> Report:
        """Let time pass until this time, blocking; as `advance_to`."""
        until = self._parse_moment(moment)
        return run_blocking("advance_to", lambda threads: self._until(until, threads, raises=raises))

    async def perform(self, task: TypedTask[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> Attempt[_R]:
        """Enqueue a call and run it now, before all waiting tasks, with middleware, context and timeout.

        Its process time and group are ignored; `task.options(...)` sets other options.

        Returns:
            the attempt, with its outcome and result.

        Raises:
            InvalidOptionError: if the call is not of a typed task.
            ServerStateError: if the queue is paused or at a limit, so that the task cannot run.
            Exception: the error of enqueueing or of the handler; `kit.attempts[-1]` has the details.
        """
        _check_is_typed(task)
        return await self.perform_task(task.task(*args, **kwargs))

    def perform_sync(self, task: TypedTask[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> Attempt[_R]:
        """Enqueue a call and run it now, blocking; as `perform`."""
        _check_is_typed(task)
        return self.perform_task_sync(task.task(*args, **kwargs))

    async def perform_task(self, task: Task, *, raises: bool = True) -> Attempt[Any]:
        """Enqueue a task of any type and run it now; as `perform`."""
        return await self._perform(task, HandlerThreads(), raises=raises)

    def perform_task_sync(self, task: Task, *, raises: bool = True) -> Attempt[Any]:
        """Enqueue a task of any type and run it now, blocking; as `perform`."""
        return run_blocking("perform", lambda threads: self._perform(task, threads, raises=raises))

    def pass_time(
        self,
        duration: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Let time pass while worker and schedulers are idle: due tasks wait for the next `drain`.

        If a handler or a fake service calls this, the running attempt takes that much longer in virtual time.
        An attempt that exceeds its timeout is cancelled at its next await.
        """
        span = whole_seconds(duration, days=days, hours=hours, minutes=minutes, seconds=seconds)
        self._move_to(self.clock.after(span))

    def crash_worker(self, tasks: int = 1, *, queue: str | None = None) -> list[str]:
        """Simulate a worker that takes up to this many tasks and crashes; return their ids.

        `advance` recovers (requeues) the tasks 35 seconds later.
        """
        queues = self._server_config.queues if queue is None else [queue]
        return [one for _, one in take_and_die(self._driver, queues, tasks, self.clock.now())]

    def add_scheduler(self, scheduler: Scheduler | PeriodicTaskManager) -> None:
        """Also fire the ticks of a scheduler or periodic task manager. Do not start it yourself.

        Raises:
            ConfigurationError: when the scheduler was not made with the kit's clock.
        """
        self._schedules.add(scheduler)

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Run tasks while code in this block waits for them: `await handle.result()` in a view returns.

        A wait for a task that has not ended runs all due tasks, as `drain` does. Then virtual time passes,
        with retries and schedules, until the task has ended or the timeout of the wait is over. Errors of
        handlers reach the waiting code as in production, as `TaskFailedError`; `attempts` has the details.
        A wait without a timeout raises `ServerStateError` if no due work can end it.
        """
        before, self._place.runner = self._place.runner, self
        try:
            yield
        finally:
            self._place.runner = before

    @property
    def is_running(self) -> bool:
        """Whether the kit's worker runs now."""
        return self._is_busy

    async def run_until_ended(self, queue: str, task_id: str, timeout: Duration | None) -> None:
        """Run due tasks, and let virtual time pass, until a task has ended. Waits within `eager` call this.

        Raises:
            WaitTimeoutError: the task has not ended within this virtual time.
            ServerStateError: without a timeout, when nothing is due that could end the task.
        """
        await self._run_until_ended(queue, task_id, timeout, HandlerThreads())

    def run_until_ended_sync(self, queue: str, task_id: str, timeout: Duration | None) -> None:
        """Run due tasks until a task has ended, blocking; as `run_until_ended`."""
        run_blocking(
            "run_until_ended", lambda threads: self._run_until_ended(queue, task_id, timeout, threads)
        )

    async def _run_until_ended(
        self, queue: str, task_id: str, timeout: Duration | None, threads: HandlerThreads
    ) -> None:
        seconds = None if timeout is None else parse_seconds("timeout", timeout)
        moment = None if seconds is None else self.clock.now().plus(seconds)

        def has_ended() -> bool:
            try:
                return self.inspector.task_info(queue, task_id).state in _ENDED
            except (QueueNotFoundError, TaskNotFoundError):
                return True

        await self._until(moment, threads, raises=False, is_done=has_ended)
        if has_ended():
            return
        if seconds is not None:
            raise WaitTimeoutError(queue, task_id, seconds)
        state = self.inspector.task_info(queue, task_id).state
        raise ServerStateError(
            f"task {task_id!r} in queue {queue!r} is {state}, and nothing is due that could end it: "
            "does the kit's worker serve its queue, and is it paused?"
        )

    async def _until(
        self,
        moment: Instant | None,
        threads: HandlerThreads,
        *,
        raises: bool,
        is_done: Callable[[], bool] = lambda: False,
    ) -> Report:
        """Run all tasks due up to a virtual time (None: no limit), or until `is_done()`; return a report."""
        recorder = self._recorder()
        async with self._working(recorder, threads, self._server_config, raises=raises) as worker:
            worker.schedules = self._schedules
            await worker.assemble()
            await worker.run_instant()
            while not (raises and recorder.failure) and not is_done():
                due = await worker.next_due()
                if due is None or (moment is not None and due > moment):
                    if moment is not None:
                        self._move_to(moment)
                    break
                self._move_to(due)
                await worker.run_instant()
        return self._report(recorder)

    async def _perform(self, task: Task, threads: HandlerThreads, *, raises: bool) -> Attempt[Any]:
        sender: App | Client = self.client if self._app is None else self._app
        info = await sender.enqueue(make_immediate(task))
        put_in_front(self._driver, info.queue, info.id)
        config = self._server_config
        config = replace(
            config,
            queues={info.queue: 1},
            publish_events=config.event_stream_length(info.queue) or False,
            concurrency=1,
            max_tasks=1,
        )
        recorder = self._recorder()
        async with self._working(recorder, threads, config, raises=raises) as worker:
            await worker.assemble()
            await worker.run_pending()
        if not recorder.attempts:
            raise ServerStateError(
                f"task {info.id} of type {info.type!r} cannot be performed: queue {info.queue!r} gives no "
                "task now, since it is paused or at a limit"
            )
        return recorder.attempts[0]

    def _parse_moment(self, moment: datetime) -> Instant:
        until = Instant(parse_instant("moment", moment).ceiling)
        if until < self.clock.now():
            raise InvalidOptionError("moment", moment, f"is in the past; it is {self.now} now")
        return until


def _check_is_typed(task: object) -> None:
    if not isinstance(task, TypedTask):
        remedy = "must be a typed task, as @app.task makes it of a function; perform_task takes any Task"
        raise InvalidOptionError("task", task, remedy)


def use(
    handler: RouterSource | Router | Handler,
    *,
    config: ServerConfig | None = None,
    concurrency: int = 1,
    start: datetime | None = None,
    url: RedisSource | None = None,
    allow: Iterable[str] = (),
    patience: Duration = 60.0,
    with_scheduler: bool = True,
) -> Kit:
    """Put an app under test for the duration of a `with` or `async with` block.

    Args:
        handler: the `App`; or a `Mux` or a function that takes each `Task`, for code that uses `kit.client`.
        config: configuration of the worker; by default that of `App(worker=...)`.
        concurrency: number of tasks that run at the same time; with 1, in the order of enqueueing (FIFO).
        start: virtual time at the start of the block, not in the past; by default now.
        url: URL of an empty Redis database, where no embedded server is available; the kit flushes it.
            The first pytest-xdist process uses this database, and the others use the databases after it.
        allow: URLs of other Redis servers that the code under test may connect to.
        patience: real seconds that one call of the kit may take.
        with_scheduler: whether to fire the schedules that the app declares.

    Raises:
        EmbeddedServerError: on entering, when no server can be started here.
        ConfigurationError: on entering, for a database that is not empty, or an app that another kit uses.
    """
    return Kit(
        handler,
        config=config,
        concurrency=concurrency,
        start=start,
        url=url,
        allow=allow,
        patience=patience,
        with_scheduler=with_scheduler,
    )
