"""The door for producers: `Client` puts tasks into queues."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Unpack

from pyasynq._broker.enqueueing.chunk_sender import ChunkSender
from pyasynq._broker.enqueueing.chunks import (
    OnError,
    as_task,
    check_on_error,
    checked_results,
    chunks_async,
    compose_checked,
    enqueue_result,
    outcomes_async,
    with_options,
)
from pyasynq._broker.enqueueing.coalesce_async import EnqueueBatcher
from pyasynq._broker.enqueueing.enqueue_rules import info_of_result
from pyasynq._broker.waits.task_waits_async import TaskWaits
from pyasynq._call_shape import check_client_middleware
from pyasynq._checks import check_max_bytes, positive_seconds_of
from pyasynq._clock import SYSTEM_CLOCK, Clock
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.facts import check_health
from pyasynq._redis.url import parse_redis_url
from pyasynq.options import DEFAULT_MAX_PAYLOAD, Duration, EnqueueOptions, events_kept, resolve_options
from pyasynq.task import EnqueueResult, FinishedTask, Task, TaskInfo

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from pyasynq._broker.enqueueing.chunks import AsyncTasks
    from pyasynq._redis.clients import RedisSource
    from pyasynq._redis.url import RedisTarget


CallNext: TypeAlias = Callable[[Task], Awaitable[TaskInfo]]
ClientMiddleware: TypeAlias = Callable[[Task, CallNext], Awaitable[TaskInfo]]


def _wrap(middleware: ClientMiddleware, call_next: CallNext) -> CallNext:
    return lambda task: middleware(task, call_next)


class Client:
    """Puts tasks into queues.

    It connects with the first call. The asyncio client (`pyasynq.Client`) has connections of its own for
    each event loop that uses it, so threads with a loop each may share it. The blocking one
    (`pyasynq.sync.Client`) may be shared by any number of threads; signal handlers, destructors and log
    handlers may use it too, and an exception that a signal handler raises in a call leaves a client that
    works. After a fork, neither touches the sockets of the parent. Calls that are made at the same time
    travel together, and may arrive in any order.

    Close it, or use it as a context manager; a client that is never closed gives a `ResourceWarning`.

    Args:
        url: where Redis is, as docs/redis.md says, or a client of redis-py, whose settings are read; its
            connections are left alone.
        max_payload: bytes that payload and headers of one task may have together.
        timeout: how long one round trip may take, with reconnecting and sending again.
        middleware: the first one is the outermost; see `use`.
        clock: tells the present, for process times.
        client_name: what `CLIENT LIST` shows.
        publish_events: publish what is enqueued, for `Inspector.follow`: True keeps about the last 10,000
            events of each queue, a number so many. It costs a round trip for each batch.

    Raises:
        ConfigurationError: for a URL or a value that cannot work.
    """

    def __init__(
        self,
        url: RedisSource = "redis://localhost:6379/0",
        *,
        max_payload: int = DEFAULT_MAX_PAYLOAD,
        timeout: Duration = 5.0,
        middleware: Iterable[ClientMiddleware] = (),
        clock: Clock = SYSTEM_CLOCK,
        client_name: str = "pyasynq-client",
        publish_events: bool | int = False,
    ) -> None:
        check_max_bytes("max_payload", max_payload)
        seconds = positive_seconds_of("timeout", timeout)
        target = parse_redis_url(url)
        self._max_payload = max_payload
        self._clock = clock
        self._middleware = list(middleware)
        for one in self._middleware:
            check_client_middleware(one)
        self._driver = self._connect(target, client_name=client_name, timeout=seconds, clock=clock)
        kept = events_kept("publish_events", publish_events)
        self._batcher = EnqueueBatcher(self._driver, clock, events_kept=kept)
        self._durable_batcher = EnqueueBatcher(self._driver, clock, events_kept=kept, durable=True)
        self._waits = TaskWaits(self._driver)

    def _connect(self, target: RedisTarget, **settings: Any) -> AsyncDriver:
        """Make the driver; clients of tests have another one."""
        return AsyncDriver(target, **settings)

    async def enqueue(
        self,
        task: Task | str,
        payload: bytes | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskInfo:
        """Put one task into its queue or its group, or have it put there at its process time.

        A call that is cancelled while it is under way may have taken effect.

        Args:
            task: a `Task`, or the type of one.
            payload: beside a type only; a `Task` carries its own.
            **options: see `EnqueueOptions`; they win over the task's own, setting by setting.

        Returns:
            what Redis knows of the task now; `enqueue_status` says what `on_duplicate` made of a duplicate.

        Raises:
            TaskIDConflictError: a task with this `task_id` exists in the queue.
            DuplicateTaskError: the task is `unique`, another one holds the lock, and `on_duplicate` does not
                say otherwise, or cannot be done: the holder is gone, or does not wait.
            InvalidOptionError: an option, or the payload, that cannot be.
            UnknownOptionError: a misspelt option.
            PayloadTooLargeError: the payload is larger than `max_payload`; nothing was sent.
            NotDurableError: the task is in its queue, and too few replicas have confirmed that they have it
                too, within three quarters of the time-out.
            RedisOutOfMemoryError: Redis is full.
            RedisUnavailableError: Redis cannot be reached; the task is not in its queue.
            ReplyLostError: the connection broke; the task may or may not be in its queue.
            ClientClosedError: the client has been closed.
        """
        task = as_task(task, payload)
        if not self._middleware:
            return await self._enqueue(task, options)
        return await self._through(options)(task)

    async def enqueue_many(
        self,
        tasks: AsyncTasks,
        *,
        on_error: OnError = "raise",
        **shared: Unpack[EnqueueOptions],
    ) -> list[EnqueueResult]:
        """Put many tasks into their queues, in chunks of at most 500 tasks or about 4 MB.

        Unique, scheduled and grouped tasks and different queues may be mixed. What goes wrong with one task,
        or with one chunk, does not hinder the others: all are sent before an error is raised. Cancelled, it
        leaves what was sent before in the queues.

        Args:
            tasks: anything that yields tasks, also an async iterable for the asyncio client; it is
                read as it is sent, by asyncio one chunk ahead, so a generator may yield more than fits into
                memory.
            on_error: `"return"` returns the results also when tasks were lost.
            **shared: options for all of them, which win over a task's own, setting by setting.

        Returns:
            a result for each task in the order of the input, true if its payload is to be run. One that is
            not as `durable` as it was to be is true as well, and its error is a `NotDurableError`.

        Raises:
            EnqueueManyError: tasks were refused, or may be lost; its `results` has the result of each. A task
                whose id exists or whose lock is held is not lost.
            InvalidOptionError: a shared option that cannot be.
            UnknownOptionError: a misspelt shared option.
            ClientClosedError: the client has been closed.
            Exception: what `tasks` raises; earlier chunks have been sent then.
        """
        self._driver.check_open()
        resolve_options(shared)
        check_on_error(on_error)
        if self._middleware:
            return checked_results(await self._enqueue_through_middleware(tasks, shared), on_error)
        batchers = self._batcher, self._durable_batcher
        sender = ChunkSender(batchers, shared, clock=self._clock, max_payload=self._max_payload)
        try:
            async for chunk in chunks_async(tasks):
                await sender.send(chunk)
        except Exception:
            await sender.finish()
            raise
        return checked_results(await sender.finish(), on_error)

    async def wait(self, queue: str, task_id: str, timeout: Duration | None = None) -> FinishedTask:
        """Wait until a task has ended: it succeeded, it failed for good, or it is gone.

        A task that is retried has not ended. Redis tells of each change of the task, whoever runs it, and it
        is looked at every second besides; any number of waits share one connection and one poll. While Redis
        is away, the wait goes on. Cancelled, or at its time-out, it leaves nothing behind.

        Args:
            queue: where the task is.
            task_id: its id.
            timeout: how long to wait; None is without end, and 0 looks once.

        Returns:
            how it ended. A task without retention is gone from Redis when it has succeeded, and so is one
            that somebody has deleted, and one that never was: `TaskEnd.GONE` stands for all of them.

        Raises:
            WaitTimeoutError: the task has not ended in time.
            RedisError: Redis refuses us, or with a `timeout` of 0 cannot be reached.
            UndecodableMessageError: what is kept of the task is no message.
            ClientClosedError: the client has been closed.
        """
        return await self._waits.wait(queue, task_id, timeout)

    async def result(self, queue: str, task_id: str, timeout: Duration | None = None) -> bytes | None:
        """Wait until a task has ended, and return what its handler returned, None if that was None.

        Only a task with `retention` has a result that can be read, and only for that long; the call fails
        at once for one without.

        Args:
            queue: where the task is.
            task_id: its id.
            timeout: as for `wait`.

        Raises:
            ResultNotKeptError: the task has no retention, or is gone after it.
            TaskFailedError: the task failed for good; the error's message is in it.
            TaskDeletedError: the task was deleted.
            TaskNotFoundError: there was no such task when the wait began.
            Exception: what `wait` raises.
        """
        return await self._waits.result(queue, task_id, timeout)

    def use(self, middleware: ClientMiddleware) -> ClientMiddleware:
        """Wrap every task that is enqueued from now on; the first one that was added is the outermost.

        `async def middleware(task, call_next)` returns `await call_next(task)`, or what it gets for another
        task: one with more headers or other options. The task carries the call's options as its own. Tasks of
        `enqueue_many` go through it one by one; the blocking client then sends them one by one as well.

        Returns:
            the middleware, so that this can be a decorator.
        """
        check_client_middleware(middleware)
        self._middleware.append(middleware)
        return middleware

    async def ping(self) -> None:
        """Ask Redis for a sign of life.

        Raises:
            RedisError: there is none, or Redis refuses us.
            ClientClosedError: the client has been closed.
        """
        await self._driver.run(check_health())

    async def close(self) -> None:
        """Wait for calls under way, at most the time-out, then close the connections. Twice is harmless.

        Who waits for a task or its result gets `ClientClosedError` at once.
        """
        await self._waits.close()
        await self._driver.close()
        await self._batcher.close()
        await self._durable_batcher.close()

    async def __aenter__(self) -> Self:
        """Connect with the first call, not yet here."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    def __del__(self) -> None:
        """Warn about a client that has connections and was never closed."""
        if self._abandon():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def _abandon(self) -> bool:
        """Let go of all connections at once, from any thread; return whether there were any."""
        waits = getattr(self, "_waits", None)
        if waits is not None:
            waits.abandon()
        for batcher in (getattr(self, "_batcher", None), getattr(self, "_durable_batcher", None)):
            if batcher is not None:
                batcher.abandon()
        driver = getattr(self, "_driver", None)
        return driver is not None and bool(driver.abandon())

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Client of Redis at {self._driver.target.address}>"

    async def _enqueue(self, task: Task, options: Mapping[str, object]) -> TaskInfo:
        now = self._clock.now()
        composed = compose_checked(task, options, now=now, max_payload=self._max_payload)
        batcher = self._durable_batcher if composed.settings.replicas else self._batcher
        result = await batcher.enqueue(composed)
        if result is not None and result.error is not None:
            raise result.error.with_traceback(None)  # one error may be the result of many calls
        return info_of_result(composed, result, now)

    async def _enqueue_through_middleware(
        self, tasks: AsyncTasks, options: Mapping[str, object]
    ) -> list[EnqueueResult]:
        results: list[EnqueueResult] = []
        async for chunk in chunks_async(tasks):
            outcomes = await outcomes_async(self._through(options), chunk)
            results += [enqueue_result(outcome) for outcome in outcomes]
        return results

    def _through(self, options: Mapping[str, object]) -> CallNext:
        """Return the way of a task through all middleware into its queue."""

        async def innermost(task: Task) -> TaskInfo:
            return await self._enqueue(task, {})

        call_next: CallNext = innermost
        for middleware in reversed(self._middleware):
            call_next = _wrap(middleware, call_next)
        outermost = call_next

        async def through(task: Task) -> TaskInfo:
            return await outermost(with_options(task, options))

        return through
