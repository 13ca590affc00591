"""Batches of tasks on their way into queues: the plans of one pipeline, and the result of each task."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from functools import partial
from inspect import iscoroutine
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from pyasynq._broker.enqueueing.compose import compose, new_task_id
from pyasynq._broker.enqueueing.enqueue import enqueue_and_publish, enqueue_durably, enqueue_run, split_runs
from pyasynq._broker.enqueueing.enqueue_rules import build_enqueued
from pyasynq.errors import (
    DuplicateTaskError,
    EnqueueError,
    EnqueueManyError,
    InvalidOptionError,
    NotDurableError,
    PayloadTooLargeError,
    PyasynqError,
    ReplyLostError,
    TaskIDConflictError,
    describe_value,
    lost_results,
)
from pyasynq.options import header_bytes, merge_options
from pyasynq.task import EnqueueResult, EnqueueStatus, Task, TaskInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._broker.enqueueing.enqueue import OtherResults
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan

_T = TypeVar("_T")

BlockingTasks: TypeAlias = Iterable[Task]
OnError: TypeAlias = Literal["raise", "return"]
"""Option `on_error` of `enqueue_many`, for lost tasks: raise `EnqueueManyError`, or return the results."""
AsyncTasks: TypeAlias = Iterable[Task] | AsyncIterable[Task]

_WITH_HOLDER: Final = (EnqueueStatus.EXISTING, EnqueueStatus.REPLACED)
_MAX_TASKS: Final = 500
_queue_of: Final = attrgetter("queue")
_MAX_BYTES: Final = 4_000_000


class RunBatch:
    """Tasks of one batch of plans; maps the outcomes of the plans back to the tasks."""

    def __init__(
        self,
        composed: Sequence[Composed],
        *,
        now: Instant,
        events_kept: int = 0,
        durable: bool = False,
    ) -> None:
        self._composed = composed
        self._runs = split_runs(composed)
        enqueue = partial(enqueue_run, now=now)
        if events_kept:
            enqueue = partial(enqueue_and_publish, now=now, max_length=events_kept)
        if durable:
            enqueue = partial(enqueue_durably, enqueue, now=now)
        self.plans: list[Plan[OtherResults]] = [enqueue(run) for run in self._runs]
        self.queues = list(map(_queue_of, self._runs))
        """The queue of each plan."""

    def other_results(self, outcomes: Sequence[OtherResults | Exception]) -> OtherResults:
        """Return the results of tasks that were refused, failed, or merged into others, by position.

        Tasks without an entry were enqueued as new tasks.

        Raises:
            Exception: the error of a plan; an error of pyasynq is not raised, but becomes a result.
        """
        others: OtherResults = {}
        for run, outcome in zip(self._runs, outcomes, strict=True):
            if isinstance(outcome, PyasynqError):
                of_run = {n: build_failure(item.id, run.queue, outcome) for n, item in enumerate(run.tasks)}
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                of_run = outcome
            for n, result in of_run.items():
                others[run.positions[n]] = result
        return others

    def results(self, outcomes: Sequence[OtherResults | Exception]) -> list[EnqueueResult]:
        """Return a result for each task, in their order. Raises the same as `other_results`."""
        others = self.other_results(outcomes)
        results = [build_enqueued(item) for item in self._composed]
        for position, result in others.items():
            results[position] = result
        return results


class Chunk:
    """Some tasks of an `enqueue_many`. An invalid task gets its result here and affects no other task."""

    def __init__(
        self,
        tasks: Sequence[Task],
        options: Mapping[str, object],
        *,
        now: Instant,
        max_payload: int,
    ) -> None:
        self.composed: list[Composed] = []
        self._refused: dict[int, EnqueueResult] = {}
        self._count = len(tasks)
        self.is_durable = False
        for position, task in enumerate(tasks):
            try:
                composed = compose_checked(task, options, now=now, max_payload=max_payload)
            except PyasynqError as error:
                self._refused[position] = build_failure(None, None, error)
            else:
                self.composed.append(composed)
                if composed.settings.replicas:
                    self.is_durable = True

    def results(self, sent: Sequence[EnqueueResult]) -> list[EnqueueResult]:
        """Return the result of each task, given the results of the composed tasks."""
        rest = iter(sent)
        refused = self._refused
        return [refused[n] if n in refused else next(rest) for n in range(self._count)]


def check_on_error(on_error: object) -> None:
    """Raise `InvalidOptionError` for anything but `"raise"` and `"return"`."""
    if on_error not in {"raise", "return"}:
        raise InvalidOptionError("on_error", on_error, "must be 'raise' or 'return'")


def check_results(results: list[EnqueueResult], on_error: OnError) -> list[EnqueueResult]:
    """Return the results of an `enqueue_many`, or raise.

    Raises:
        EnqueueManyError: tasks were lost, and `on_error` is `"raise"`.
    """
    if on_error == "raise" and lost_results(results):
        raise EnqueueManyError(results)
    return results


def as_task(task: Task | str, payload: bytes | None) -> Task:
    """Return the task, or make one of a type and a payload.

    Raises:
        InvalidOptionError: for a value of another class, and for a `Task` with a separate payload.
    """
    if isinstance(task, str):
        return Task(task, payload)
    _check_is_task(task)
    if payload is not None:
        raise InvalidOptionError("payload", type(payload), "a Task carries its own payload")
    return task


def with_options(task: Task, options: Mapping[str, object]) -> Task:
    """Return a copy of a task with the options of the call merged into its own.

    Raises:
        InvalidOptionError: for a value that is not a task.
        UnknownOptionError: for a name that is not an option.
    """
    _check_is_task(task)
    return Task(task.type, task.payload, **merge_options(task.options, options))


def _check_is_task(task: object) -> None:
    if not isinstance(task, Task):
        hint = ""
        if iscoroutine(task):
            task.close()
            hint = "; a call runs the handler: write handler.task(...), which makes a Task of it"
        elif callable(getattr(task, "task", None)):
            hint = f"; write {getattr(task, '__name__', 'handler')}.task(...), which makes one"
        raise InvalidOptionError("task", task, f"must be a Task{hint}")


def compose_checked(
    task: Task,
    options: Mapping[str, object],
    *,
    now: Instant,
    max_payload: int,
    new_id: Callable[[], str] = new_task_id,
) -> Composed:
    """Check a task's class and size; return the composed task.

    Raises:
        PayloadTooLargeError: when the payload, or payload and headers together, are too large.
        InvalidOptionError: for a value that is not a task, and for impossible options.
    """
    # Compared first, because a call for each task costs 2 % of an `enqueue_many`.
    if type(task) is not Task:
        _check_is_task(task)
    payload = task.payload
    if payload is not None and len(payload) > max_payload:
        raise PayloadTooLargeError(len(payload), max_payload)
    composed = compose(task, options, now=now, new_id=new_id)
    headers = composed.settings.headers
    if headers:
        size = len(payload or b"") + header_bytes(headers)
        if size > max_payload:
            raise PayloadTooLargeError(size, max_payload, what="payload and headers have")
    return composed


def build_failure(task_id: str | None, queue: str | None, error: PyasynqError) -> EnqueueResult:
    """Return the result of a task that was refused, that may not be in Redis, or that is not durable."""
    if isinstance(error, NotDurableError):
        info = error.info
        holder = info if info.enqueue_status in _WITH_HOLDER else None
        return EnqueueResult(info.enqueue_status, info.id, info.queue, error, holder)
    if isinstance(error, TaskIDConflictError):
        return EnqueueResult(EnqueueStatus.CONFLICT, error.task_id, error.queue, error)
    if isinstance(error, DuplicateTaskError):
        return EnqueueResult(EnqueueStatus.DUPLICATE, task_id, error.queue, error)
    status = EnqueueStatus.UNKNOWN if isinstance(error, ReplyLostError) else EnqueueStatus.REFUSED
    return EnqueueResult(status, task_id, queue, error)


def build_enqueue_result(outcome: object) -> EnqueueResult:
    """Return the result of one task that went through client middleware, from the middleware's outcome."""
    if isinstance(outcome, TaskInfo):
        status = outcome.enqueue_status
        holder = outcome if status in _WITH_HOLDER else None
        return EnqueueResult(status, outcome.id, outcome.queue, holder=holder)
    if isinstance(outcome, PyasynqError):
        return build_failure(None, None, outcome)
    if isinstance(outcome, Exception):
        error = EnqueueError(f"client middleware raised {type(outcome).__name__}: {outcome}")
        error.__cause__ = outcome
        return build_failure(None, None, error)
    return build_failure(
        None,
        None,
        EnqueueError(f"client middleware returned {describe_value(type(outcome))} instead of a TaskInfo"),
    )


async def chunks_async(tasks: AsyncTasks) -> AsyncIterator[list[Task]]:
    """Cut any iterable or async iterable into chunks of at most 500 tasks or about 4 MB."""
    if not isinstance(tasks, AsyncIterable):
        for chunk in chunks_blocking(tasks):
            yield chunk
        return
    collected = _Collected()
    async for task in tasks:
        if collected.add(task):
            yield collected.take()
    if collected.tasks:
        yield collected.tasks


def chunks_blocking(tasks: BlockingTasks) -> Iterator[list[Task]]:
    """Cut any iterable into chunks of at most 500 tasks or about 4 MB."""
    collected = _Collected()
    for task in tasks:
        if collected.add(task):
            yield collected.take()
    if collected.tasks:
        yield collected.tasks


class _Collected:
    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self._size = 0

    def add(self, task: Task) -> bool:
        """Add a task; return whether the chunk is full now."""
        tasks = self.tasks
        tasks.append(task)
        # A value that is not a task is refused later.
        self._size += len(getattr(task, "payload", None) or b"")
        return len(tasks) >= _MAX_TASKS or self._size >= _MAX_BYTES

    def take(self) -> list[Task]:
        tasks, self.tasks, self._size = self.tasks, [], 0
        return tasks


async def outcomes_async(
    call: Callable[[Task], Awaitable[_T]], tasks: Sequence[Task]
) -> list[_T | Exception]:
    """Make the calls at the same time, so that they coalesce; return a value or an exception for each."""
    import asyncio  # noqa: PLC0415 - the blocking client needs none of it

    outcomes = await asyncio.gather(*[call(task) for task in tasks], return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
            raise outcome
    return outcomes  # type: ignore[return-value] # what else gather could return was raised


def outcomes_blocking(call: Callable[[Task], _T], tasks: Sequence[Task]) -> list[_T | Exception]:
    """Make the calls one after another; the blocking counterpart of `outcomes_async`."""
    outcomes: list[_T | Exception] = []
    for task in tasks:
        try:
            outcomes.append(call(task))
        except Exception as error:  # noqa: BLE001 - it is the call's outcome
            outcomes.append(error)
    return outcomes
