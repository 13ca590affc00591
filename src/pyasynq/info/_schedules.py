"""Descriptions of schedulers and their entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasynq.options import DEFAULT_QUEUE

if TYPE_CHECKING:
    from datetime import datetime

    from pyasynq.task import Task, TaskInfo


@dataclass(frozen=True, slots=True)
class SchedulerEntryInfo:
    """A periodic task of a running scheduler, as its last record describes it."""

    id: str
    spec: str
    """The cron expression, or `@every` and a duration."""
    task: Task
    """Type and payload, and those options whose text could be read."""
    options: tuple[str, ...]
    """All options of the entry, as texts written by the scheduler."""
    next_enqueue_at: datetime | None
    previous_enqueue_at: datetime | None
    scheduler_id: str = ""
    """Host, process id and a random part of the scheduler."""
    engine: str = ""
    """`pyasynq`; empty for a scheduler in Go, which ignores pauses."""
    paused_since: datetime | None = None
    """Time at which an operator paused the entry; None if it is not paused."""

    @property
    def queue(self) -> str:
        """The queue that its tasks go to."""
        return self.task.options.get("queue", DEFAULT_QUEUE)


@dataclass(frozen=True, slots=True)
class EntryPauseResult:
    """Result of pausing a scheduler entry, or of ending its pause."""

    entry_id: str
    queue: str
    understood: bool
    """False for an entry of a scheduler in Go, which ignores pauses; nothing was written."""
    paused_since: datetime | None
    """Time at which the entry was paused; None if it is not paused."""


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Result of running a scheduler entry by hand."""

    entry_id: str
    task: TaskInfo
    """The task that was enqueued."""
    unread_options: tuple[str, ...] = ()
    """Options of the entry whose text could not be read, and that the task does not have."""


@dataclass(frozen=True, slots=True)
class SchedulerEvent:
    """One enqueue of a scheduler entry."""

    task_id: str
    enqueued_at: datetime | None
