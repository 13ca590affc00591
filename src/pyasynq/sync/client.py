# Generated from src/pyasynq/client.py by tools/unasync.py; change that file and run `make sync`.
"""The producer's interface: `Client` puts tasks into queues."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Unpack

from pyasynq._broker.enqueueing.chunk_sender import BlockingChunkSender
from pyasynq._broker.enqueueing.chunks import (
    OnError,
    as_task,
    build_enqueue_result,
    check_on_error,
    check_results,
    chunks_blocking,
    compose_checked,
    outcomes_blocking,
    with_options,
)
from pyasynq._broker.enqueueing.coalesce_blocking import BlockingEnqueueBatcher
from pyasynq._broker.enqueueing.enqueue_rules import build_task_info
from pyasynq._broker.enqueueing.gathered_calls import BlockingGatheredCalls
from pyasynq._broker.waits.task_waits_blocking import BlockingTaskWaits
from pyasynq._call_shape import check_client_middleware
from pyasynq._checks import check_max_bytes, parse_positive_seconds
from pyasynq._clock import SYSTEM_CLOCK, Clock
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.facts import check_health
from pyasynq._redis.url import parse_redis_url
from pyasynq.context import EnqueueBatch, current_batch
from pyasynq.options import DEFAULT_MAX_PAYLOAD, Duration, EnqueueOptions, events_kept, resolve_options
from pyasynq.task import EnqueueResult, FinishedTask, Task, TaskInfo

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from pyasynq._broker.enqueueing.chunks import BlockingTasks
    from pyasynq._redis.clients import RedisSource
    from pyasynq._redis.url import RedisTarget


CallNext: TypeAlias = Callable[[Task], TaskInfo]
ClientMiddleware: TypeAlias = Callable[[Task, CallNext], TaskInfo]


def _wrap(middleware: ClientMiddleware, call_next: CallNext) -> CallNext:
    return lambda task: middleware(task, call_next)


class Client:
    """Puts tasks into queues.

    It connects with the first call. The asyncio client (`pyasynq.Client`) keeps separate connections for each
    event loop that uses it, so threads with a loop each may share it. The blocking one
    (`pyasynq.sync.Client`) may be shared by any number of threads. Signal handlers, destructors and log
    handlers may use it too; an exception that a signal handler raises during a call leaves the client usable.
    After a fork, neither client touches the sockets of the parent. Concurrent calls are batched, and may
    arrive in any order. Close it, or use it as a context manager; a client that is never closed gives a
    `ResourceWarning`.

    Args:
        url: where Redis is, see docs/redis.md, or a redis-py client, whose settings are read; its connections
            are not used.
        max_payload: largest size of one task's payload and headers together, in bytes.
        timeout: time that one round trip may take, including reconnecting and resending.
        middleware: the first one is the outermost; see `use`.
        clock: source of the current time, for process times.
        client_name: the name in `CLIENT LIST`.
        publish_events: publish an event for each enqueue, for `Inspector.follow`. True keeps about the last
            10,000 events of each queue; a number keeps about that many. It costs a round trip for each batch.

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
        seconds = parse_positive_seconds("timeout", timeout)
        target = parse_redis_url(url)
        self._max_payload = max_payload
        self._clock = clock
        self._middleware = list(middleware)
        for one in self._middleware:
            check_client_middleware(one)
        self._driver = self._connect(target, client_name=client_name, timeout=seconds, clock=clock)
        kept = events_kept("publish_events", publish_events)
        self._batcher = BlockingEnqueueBatcher(self._driver, clock, events_kept=kept)
        self._durable_batcher = BlockingEnqueueBatcher(self._driver, clock, events_kept=kept, durable=True)
        self._waits = BlockingTaskWaits(self._driver)

    def _connect(self, target: RedisTarget, **settings: Any) -> BlockingDriver:
        """Make the driver, which sends commands to Redis; the test kit's clients override this."""
        return BlockingDriver(target, **settings)

    def enqueue(
        self,
        task: Task | str,
        payload: bytes | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskInfo:
        """Put one task into its queue or its group, or schedule it for its process time.

        A call that is cancelled while it is in flight may have taken effect.

        Args:
            task: a `Task`, or the type of one.
            payload: only with a type; a `Task` has its own.
            **options: see `EnqueueOptions`; they override the task's own, one by one.

        Returns:
            the task as it is in Redis now; `enqueue_status` is the outcome of `on_duplicate`.

        Raises:
            TaskIDConflictError: a task with this `task_id` exists in the queue.
            DuplicateTaskError: the task is `unique`, another task holds the lock, and `on_duplicate` is
                `"raise"`. Also if `on_duplicate` cannot be carried out, because the holder of the lock is
                gone or does not wait.
            InvalidOptionError: an invalid option or payload.
            UnknownOptionError: a misspelt option.
            PayloadTooLargeError: the payload is larger than `max_payload`; nothing was sent.
            NotDurableError: the task is in its queue, but too few replicas have confirmed it within three
                quarters of the timeout.
            RedisOutOfMemoryError: Redis is full.
            RedisUnavailableError: Redis cannot be reached; the task is not in its queue.
            ReplyLostError: the connection broke; the task may or may not be in its queue.
            ClientClosedError: the client has been closed.
        """
        task = as_task(task, payload)
        if not self._middleware:
            return self._enqueue(task, options)
        return self._bind_middleware(options)(task)

    def enqueue_many(
        self,
        tasks: BlockingTasks,
        *,
        on_error: OnError = "raise",
        **shared: Unpack[EnqueueOptions],
    ) -> list[EnqueueResult]:
        """Put many tasks into their queues in their order, in chunks of at most 500 tasks or about 4 MB.

        Unique, scheduled and grouped tasks and different queues may be mixed. An error of one task or chunk
        does not affect the others: all are sent before an error is raised. When the caller is cancelled,
        the tasks already sent stay in their queues.

        Args:
            tasks: any iterable of tasks, also an async iterable for the asyncio client. It is read chunk by
                chunk while tasks are sent (by asyncio one chunk ahead), so a generator may yield more tasks
                than fit into memory.
            on_error: `"return"` returns the results also when tasks were lost.
            **shared: options for all of them, which override a task's own, one by one.

        Returns:
            a result for each task in the order of the input. A result is true if the task's payload will run.
            That includes a task that is less `durable` than requested: its error is a `NotDurableError`.

        Raises:
            EnqueueManyError: tasks were refused, or may be lost; its `results` has the result of each. A task
                whose id exists or whose lock is held is not lost.
            InvalidOptionError: an invalid shared option.
            UnknownOptionError: a misspelt shared option.
            ClientClosedError: the client has been closed.
            Exception: what `tasks` raises; earlier chunks have been sent then.
        """
        self._driver.check_open()
        resolve_options(shared)
        check_on_error(on_error)
        if self._middleware:
            return check_results(self._enqueue_through_middleware(tasks, shared), on_error)
        batchers = self._batcher, self._durable_batcher
        sender = BlockingChunkSender(batchers, shared, clock=self._clock, max_payload=self._max_payload)
        try:
            for chunk in chunks_blocking(tasks):
                sender.send(chunk)
        except Exception:
            sender.finish()
            raise
        return check_results(sender.finish(), on_error)

    def wait(self, queue: str, task_id: str, timeout: Duration | None = None) -> FinishedTask:
        """Wait until a task has ended: it succeeded, it failed for good, or it is gone.

        A task that will be retried has not ended. Redis pushes a message when the task changes (client
        tracking), and the client also polls every second. Any number of waits share one connection and one
        poll. While Redis is away, the wait continues. A wait that is cancelled or times out leaves nothing
        behind.

        Args:
            queue: the task's queue.
            task_id: its id.
            timeout: how long to wait; None is without limit, and 0 checks once.

        Returns:
            how it ended. `TaskEnd.GONE` means that the task is not in Redis: it succeeded and had no
            retention, it was deleted, or it never existed.

        Raises:
            WaitTimeoutError: the task has not ended in time.
            RedisError: Redis refuses us, or with a `timeout` of 0 cannot be reached.
            UndecodableMessageError: the stored message cannot be decoded.
            ClientClosedError: the client has been closed.
        """
        return self._waits.wait(queue, task_id, timeout)

    def result(self, queue: str, task_id: str, timeout: Duration | None = None) -> bytes | None:
        """Wait until a task has ended, and return the result of its handler; None if that is None.

        The result can be read only if the task has `retention`, and only for that time. For a task without
        `retention`, the call fails at once.

        Args:
            queue: the task's queue.
            task_id: its id.
            timeout: as for `wait`.

        Raises:
            ResultNotKeptError: the task has no retention, or is gone after it.
            TaskFailedError: the task failed for good; it contains the error's message.
            TaskDeletedError: the task was deleted.
            TaskNotFoundError: there was no such task when the wait began.
            Exception: what `wait` raises.
        """
        return self._waits.result(queue, task_id, timeout)

    def use(self, middleware: ClientMiddleware) -> ClientMiddleware:
        """Add middleware around every enqueue from now on; the middleware added first is the outermost.

        `def middleware(task, call_next)` returns `call_next(task)`. It may pass on another task,
        such as a copy with more headers or other options. The options of the call are part of the task. Tasks
        of `enqueue_many` pass through it one by one; the blocking client then also sends them one by one.

        Returns:
            the middleware, so that this can be a decorator.
        """
        check_client_middleware(middleware)
        self._middleware.append(middleware)
        return middleware

    def ping(self) -> None:
        """Check that Redis answers.

        Raises:
            RedisError: it does not answer, or refuses us.
            ClientClosedError: the client has been closed.
        """
        self._driver.run(check_health())

    def close(self) -> None:
        """Wait for calls in flight, at most the timeout, then close the connections. Idempotent.

        Pending `wait()` and `result()` calls fail with `ClientClosedError`.
        """
        self._waits.close()
        self._driver.close()
        self._batcher.close()
        self._durable_batcher.close()

    def __enter__(self) -> Self:
        """Return the client; it connects with the first call."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()

    def __del__(self) -> None:
        """Warn about a client that has connections and was never closed."""
        if self._abandon():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def _abandon(self) -> bool:
        """Release all connections at once, from any thread; return whether there were any."""
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

    def _enqueue(
        self, task: Task, options: Mapping[str, object], gathered: BlockingGatheredCalls | None = None
    ) -> TaskInfo:
        """Enqueue one task: alone, or together with the other tasks of the same `enqueue_many`."""
        now = self._clock.now()
        composed = compose_checked(task, options, now=now, max_payload=self._max_payload)
        if composed.settings.replicas:
            result = self._durable_batcher.enqueue(composed)
        else:
            result = (gathered or self._batcher).enqueue(composed)
        if result is not None and result.error is not None:
            raise result.error.with_traceback(None)  # many calls may share one error
        return build_task_info(composed, result, now)

    def _enqueue_through_middleware(
        self, tasks: BlockingTasks, options: Mapping[str, object]
    ) -> list[EnqueueResult]:
        results: list[EnqueueResult] = []
        call = self._bind_middleware(options, BlockingGatheredCalls(self._batcher))
        with EnqueueBatch() as batch:
            token = current_batch.set(batch)
            try:
                for chunk in chunks_blocking(tasks):
                    outcomes = outcomes_blocking(call, chunk)
                    results += [build_enqueue_result(outcome) for outcome in outcomes]
            finally:
                current_batch.reset(token)
        return results

    def _bind_middleware(
        self, options: Mapping[str, object], gathered: BlockingGatheredCalls | None = None
    ) -> CallNext:
        """Return a function that passes a task through all middleware and enqueues it."""

        def innermost(task: Task) -> TaskInfo:
            return self._enqueue(task, {}, gathered)

        call_next: CallNext = innermost
        for middleware in reversed(self._middleware):
            call_next = _wrap(middleware, call_next)
        outermost = call_next

        def through(task: Task) -> TaskInfo:
            return outermost(with_options(task, options))

        return through
