"""Tasks that were not enqueued, or not as they were to be."""

from collections import Counter
from typing import TYPE_CHECKING, cast

from pyasynq.errors._base import PyasynqError
from pyasynq.errors._redis import RedisError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Self

    from pyasynq.task import EnqueueResult, TaskInfo


class EnqueueError(PyasynqError):
    """A task that could not be enqueued. Nothing was written for it."""


class TaskIDConflictError(EnqueueError):
    """A task with this id exists in the queue, in whatever state.

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
        holder: id of the task that holds it; empty if it let go before it could be read.
        reason: why the holder cannot be returned or take another payload; empty if neither was asked.
    """

    def __init__(self, queue: str, unique_key: str, holder: str = "", reason: str = "") -> None:
        # Not the key: it may hold a name that was made of the payload, and says nothing to people.
        who = f"task {holder!r}" if holder else "another task"
        why = f"; it {reason}" if reason else ""
        super().__init__(f"task already exists: {who} in queue {queue!r} holds its lock{why}")
        self.queue = queue
        self.unique_key = unique_key
        self.holder = holder
        self.reason = reason


class EnqueueManyError(EnqueueError, ExceptionGroup[PyasynqError]):
    """An `enqueue_many` lost some of its tasks, or may have.

    They were refused, it is unknown whether Redis has them, or too few replicas have them. It is an exception
    group of their errors, each of which is in it once, so `except*` works. A task that was not enqueued
    because its id exists or its lock is held is not lost: that is in the results only.

    Attributes:
        results: what `enqueue_many` would have returned: a result for each task, in their order.
    """

    results: "list[EnqueueResult]"

    def __new__(cls, results: "Iterable[EnqueueResult]") -> "Self":
        """Make a group of the errors of lost tasks; at least one of the results must have such."""
        results = list(results)
        lost = lost_results(results)
        errors = {id(result.error): result.error for result in lost if result.error is not None}
        kinds = Counter(type(result.error).__name__ for result in lost)
        counts = ", ".join(f"{count:,} {name}" for name, count in kinds.most_common())
        verb = "was" if len(lost) == 1 else "were"
        noun = "task" if len(results) == 1 else "tasks"
        lost_of_all = f"{len(lost):,} of {len(results):,} {noun} {verb}"
        message = f"{lost_of_all} not enqueued as asked: {counts}; see `results`"
        return cls._of(message, list(errors.values()), results)

    def __init__(self, results: "Iterable[EnqueueResult]") -> None:  # noqa: ARG002 - `__new__` has taken them
        super().__init__(self.message, cast("list[PyasynqError]", self.exceptions))

    @classmethod
    def _of(cls, message: str, errors: "Sequence[PyasynqError]", results: "list[EnqueueResult]") -> "Self":
        group = super().__new__(cls, message, errors)
        group.results = results
        return group

    def derive(  # type: ignore[override] # it has errors of this kind only
        self, errors: "Sequence[PyasynqError]"
    ) -> "EnqueueManyError":
        """Return a group of some of the errors, with all results."""
        return self._of(self.message, errors, self.results)

    def __reduce__(self) -> "tuple[Any, ...]":
        return _restore_group, (type(self), self.message, self.exceptions, self.results)


def _restore_group(
    kind: type[EnqueueManyError],
    message: str,
    errors: "Sequence[PyasynqError]",
    results: "list[EnqueueResult]",
) -> EnqueueManyError:
    return kind._of(message, errors, results)  # noqa: SLF001 - of this module


def lost_results(results: "Iterable[EnqueueResult]") -> "list[EnqueueResult]":
    """Return the results of tasks that are not in Redis as they were to be, for all that is known."""
    there = (TaskIDConflictError, DuplicateTaskError)
    return [result for result in results if result.error is not None and not isinstance(result.error, there)]


class TickTakenError(EnqueueError):
    """This tick of a schedule, or a later one, has been fired: most often by another scheduler, just now.

    Only client middleware of a scheduler sees it.

    Attributes:
        entry_id: of the schedule.
        tick: that was to be fired, in Unix time.
        last: that was fired last, in Unix time.
    """

    def __init__(self, entry_id: str, tick: int, last: int) -> None:
        super().__init__(f"tick {tick} of schedule {entry_id} has been fired; the last one was {last}")
        self.entry_id = entry_id
        self.tick = tick
        self.last = last


class NotDurableError(RedisError):
    """A `durable` task is in its queue, but too few replicas have confirmed that they have it too.

    It will be run, unless this Redis is lost before a replica has it. Who enqueues it again does so under the
    same `task_id`, so that it is not run twice.

    Attributes:
        info: the task.
        replicas: how many have it for certain.
        wanted: how many were to have it.
    """

    def __init__(self, info: "TaskInfo", replicas: int, wanted: int, cause: str) -> None:
        super().__init__(
            f"task {info.id!r} is in queue {info.queue!r}, but of {wanted} wanted "
            f"replica{'s' if wanted > 1 else ''} {replicas or 'none'} confirmed it: {cause}"
        )
        self.info = info
        self.replicas = replicas
        self.wanted = wanted
