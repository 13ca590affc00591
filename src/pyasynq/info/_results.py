"""Results of operations on tasks."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._sequence import TupleSequence

if TYPE_CHECKING:
    from pyasynq.task import TaskState

    from ._cancellation import CancelStatus


class Refusal(enum.StrEnum):
    """Reason for which an operation left a task as it was."""

    MISSING = "missing"
    """The queue has no task with this id."""
    STATE = "state"
    """The operation is not for tasks in the state that `TaskResult.state` names."""
    AGGREGATED = "aggregated"
    """The task is a member of an aggregation set: it is being aggregated with other tasks of its group."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of an operation for one of several tasks."""

    task_id: str
    refused: Refusal | None = None
    """Reason why the task was left unchanged; None if it was changed."""
    state: TaskState | str | None = None
    """The state that forbids the operation; text for a state that pyasynq does not know."""
    cancel: CancelStatus | None = None
    """The request's state, as far as it is known; set by `cancel_tasks`."""

    @property
    def done(self) -> bool:
        """Whether the operation was done."""
        return self.refused is None

    def __str__(self) -> str:
        """Return `done`, or the reason for the refusal in words."""
        return _REFUSALS[self.refused].format(state=self.state) if self.refused else "done"


_REFUSALS = {
    Refusal.MISSING: "there is no such task",
    Refusal.STATE: "it is {state}",
    Refusal.AGGREGATED: "it is being aggregated",
}


@dataclass(frozen=True, slots=True)
class TaskResults(TupleSequence[TaskResult]):
    """Results of an operation on several tasks: a sequence with one for each id, in the order of the ids.

    An id that was given twice has one result.
    """

    results: tuple[TaskResult, ...]
    trimmed: int = 0
    """Number of archived tasks deleted because the archive was too large or they were too old."""

    @property
    def done(self) -> int:
        """Number of tasks for which the operation was done."""
        return sum(result.done for result in self.results)

    @property
    def refused(self) -> tuple[TaskResult, ...]:
        """Results of the tasks that were left unchanged."""
        return tuple(result for result in self.results if not result.done)

    @property
    def _items(self) -> tuple[TaskResult, ...]:
        return self.results


@dataclass(frozen=True, slots=True)
class BulkResult:
    """Result of an operation on all tasks of one state."""

    done: int
    skipped: int
    """Number of tasks that had left the state before their turn."""
    trimmed: int = 0
    """Number of archived tasks deleted because the archive was too large or they were too old."""
