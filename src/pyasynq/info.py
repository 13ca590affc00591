"""What the inspector tells about queues and servers; of tasks it tells `TaskInfo` (module `task`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """What Redis knows of a queue, at the time it was asked."""

    queue: str
    pending: int
    active: int
    scheduled: int
    retry: int
    archived: int
    completed: int
    aggregating: int
    """Tasks that wait in groups."""
    groups: int
    processed: int
    """Attempts ended today (UTC), failed ones included."""
    failed: int
    """Attempts failed today (UTC)."""
    processed_total: int
    failed_total: int
    latency: timedelta
    """How long the oldest pending task has waited; zero when none waits."""
    paused: bool
    timestamp: datetime
    """When Redis was asked, aware."""

    @property
    def size(self) -> int:
        """All tasks of the queue, in whatever state."""
        return self.unfinished + self.archived + self.completed

    @property
    def unfinished(self) -> int:
        """The tasks that are still to be run, or are running."""
        return self.pending + self.active + self.scheduled + self.retry + self.aggregating


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A task that a server is running, as the server's last record tells it (every 5 s)."""

    task_id: str
    task_type: str
    queue: str
    payload: bytes = field(repr=False)
    """Its first 4 KB."""
    started: datetime | None
    deadline: datetime | None


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A live server, as its last record tells it (every 5 s, valid for 10 s)."""

    id: str
    host: str
    pid: int
    status: str
    """`active`, or `stopped` when it takes no more tasks."""
    concurrency: int
    queues: Mapping[str, int]
    """Names and priorities."""
    strict_priority: bool
    started: datetime | None
    active_workers: tuple[WorkerInfo, ...]
