"""Errors of tasks that were not enqueued, or not as requested."""

from collections import Counter
from typing import TYPE_CHECKING, cast

from pyasynq.errors._base import PyasynqError
from pyasynq.errors._redis import RedisError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Self

    from pyasynq.task import EnqueueResult, TaskInfo


class EnqueueError(PyasynqError):
    """A task could not be enqueued. Nothing was written for it, unless this is an `EnqueueManyError`."""


class TaskIDConflictError(EnqueueError):
    """A task with this id exists in the queue, in any state.

    Attributes:
        queue: the queue's name.
        task_id: the id.
    """

    def __init__(self, queue: str, task_id: str) -> None:
        super().__init__(f"task ID conflicts with another task: {task_id!r} exists in queue {queue!r}")
        self.queue = queue
        self.task_id = task_id


class DuplicateTaskError(EnqueueError):
    """A unique task of the same type and payload, or of the same `unique_key`, holds the lock in this queue.

    Attributes:
        queue: the queue's name.
        unique_key: the lock's key in Redis.
        holder: id of the task that holds it; empty if it was released before it could be read.
        reason: why the holder cannot be returned or take another payload; empty if neither was requested.
    """

    def __init__(self, queue: str, unique_key: str, holder: str = "", reason: str = "") -> None:
        # The message omits the key, which may contain a name made from the payload and does not help people.
        who = f"task {holder!r}" if holder else "another task"
        why = f"; it {reason}" if reason else ""
        super().__init__(f"task already exists: {who} in queue {queue!r} holds its lock{why}")
        self.queue = queue
        self.unique_key = unique_key
        self.holder = holder
        self.reason = reason


class EnqueueManyError(EnqueueError, ExceptionGroup[PyasynqError]):
    """Some tasks of an `enqueue_many` call were not enqueued, or it is unknown whether they were.

    Redis refused the tasks, its reply was lost, or too few replicas have confirmed them. It is an exception
    group that contains each of these errors once, so `except*` works. A task that was not enqueued
    because its id exists or its lock is held does not count: its error is in the results only.

    Attributes:
        results: results that `enqueue_many` would have returned: one for each task, in the same order.
    """

    results: "list[EnqueueResult]"

    def __new__(cls, results: "Iterable[EnqueueResult]") -> "Self":
        """Make a group of the errors of lost tasks (`lost_results`); at least one result must be lost."""
        results = list(results)
        lost = lost_results(results)
        errors = {id(result.error): result.error for result in lost if result.error is not None}
        kinds = Counter(type(result.error).__name__ for result in lost)
        counts = ", ".join(f"{count:,} {name}" for name, count in kinds.most_common())
        verb = "was" if len(lost) == 1 else "were"
        noun = "task" if len(results) == 1 else "tasks"
        lost_of_all = f"{len(lost):,} of {len(results):,} {noun} {verb}"
        message = f"{lost_of_all} not enqueued as asked: {counts}; see `results`"
        return cls._make(message, list(errors.values()), results)

    def __init__(self, results: "Iterable[EnqueueResult]") -> None:  # noqa: ARG002 - `__new__` has taken them
        super().__init__(self.message, cast("list[PyasynqError]", self.exceptions))

    @classmethod
    def _make(cls, message: str, errors: "Sequence[PyasynqError]", results: "list[EnqueueResult]") -> "Self":
        group = super().__new__(cls, message, errors)
        group.results = results
        return group

    def derive(  # type: ignore[override] # it has errors of this kind only
        self, errors: "Sequence[PyasynqError]"
    ) -> "EnqueueManyError":
        """Return a group of these errors, which are a part of this group's errors, with all results."""
        return self._make(self.message, errors, self.results)

    def __reduce__(self) -> "tuple[Any, ...]":
        return _restore_group, (type(self), self.message, self.exceptions, self.results)


def _restore_group(
    kind: type[EnqueueManyError],
    message: str,
    errors: "Sequence[PyasynqError]",
    results: "list[EnqueueResult]",
) -> EnqueueManyError:
    return kind._make(message, errors, results)


def lost_results(results: "Iterable[EnqueueResult]") -> "list[EnqueueResult]":
    """Return the results of tasks that are or may be missing in Redis, or that too few replicas confirmed."""
    there = (TaskIDConflictError, DuplicateTaskError)
    return [result for result in results if result.error is not None and not isinstance(result.error, there)]


class TickTakenError(EnqueueError):
    """This tick of a schedule, or a later tick, has been fired before, usually by another scheduler.

    Only client middleware of a scheduler sees it.

    Attributes:
        entry_id: id of the schedule.
        tick: the tick to fire, in Unix time.
        last: the tick that was fired last, in Unix time.
    """

    def __init__(self, entry_id: str, tick: int, last: int) -> None:
        super().__init__(f"tick {tick} of schedule {entry_id} has been fired; the last one was {last}")
        self.entry_id = entry_id
        self.tick = tick
        self.last = last


class SchedulePausedError(EnqueueError):
    """A schedule is paused: its tick counts as fired and enqueues nothing.

    Only client middleware of a scheduler sees it.

    Attributes:
        entry_id: id of the schedule.
        tick: the due tick, in Unix time.
    """

    def __init__(self, entry_id: str, tick: int) -> None:
        super().__init__(f"schedule {entry_id} is paused; tick {tick} enqueues nothing")
        self.entry_id = entry_id
        self.tick = tick


class NotDurableError(RedisError):
    """A `durable` task is in its queue, but too few replicas have confirmed that they have it too.

    The task will run, unless this Redis is lost before a replica has it. To enqueue it again, use the
    same `task_id`, so that it does not run twice.

    Attributes:
        info: the task.
        replicas: number of replicas that have confirmed the task.
        wanted: number of replicas requested.
    """

    def __init__(self, info: "TaskInfo", replicas: int, wanted: int, cause: str) -> None:
        super().__init__(
            f"task {info.id!r} is in queue {info.queue!r}, but of {wanted} wanted "
            f"replica{'s' if wanted > 1 else ''} {replicas or 'none'} confirmed it: {cause}"
        )
        self.info = info
        self.replicas = replicas
        self.wanted = wanted
