"""Reports about the errors and the types of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyasynq.task import TaskInfo, TaskState


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failed tasks whose errors have the same signature."""

    signature: str
    """Error signature: the error's first line, with placeholders for numbers, ids and quotations."""
    count: int
    types: Mapping[str, int]
    """Number of tasks by type."""
    latest: datetime | None
    """Time of the latest of these failures."""
    sample: TaskInfo
    """The task that failed last."""
    earliest: datetime | None = None
    """Time of the earliest of these failures, among the examined tasks."""


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """The errors of the newest tasks of a state, the most frequent first."""

    groups: tuple[ErrorGroup, ...]
    scanned: int
    """Number of tasks that were examined."""
    is_complete: bool
    """False if there are more tasks than were examined."""
    total: int = 0
    """Number of tasks in the state, examined or not."""
    without_error: int = 0
    """Number of examined tasks without an error, such as tasks archived by hand."""
    since: datetime | None = None
    """Time at which the oldest examined task was archived, or failed (state `retry`)."""
    until: datetime | None = None
    """Time at which the newest examined task was archived, or failed."""


@dataclass(frozen=True, slots=True)
class TypeStatistics:
    """Numbers of tasks of one type in a queue, by state."""

    type: str
    counts: Mapping[TaskState, int]
    retried: int
    """Total number of retries spent by these tasks."""

    @property
    def total(self) -> int:
        """Number of tasks of this type in all states."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class TypeReport:
    """The task types among the newest tasks of a queue, the most frequent first."""

    types: tuple[TypeStatistics, ...]
    scanned: int
    """Number of tasks that were examined."""
    is_complete: bool
    """False if a state has more tasks than were examined."""
    total: int = 0
    """Number of tasks in the states that were searched; a lower bound if not all groups were reached."""
    undated: tuple[TaskState, ...] = ()
    """States left out of a report with a time range: Redis does not store since when tasks are in them."""
