"""What the inspector tells about queues and servers; of tasks it tells `TaskInfo` (module `task`)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from pyasynq.limits import UNLIMITED, QueueLimits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime, timedelta

    from pyasynq.options import Duration
    from pyasynq.task import Task, TaskInfo, TaskState


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
    paused_until: datetime | None = None
    """When the pause ends by itself."""
    aggregating_at: datetime | None = None
    """When the counting of `aggregating` began, for a queue of more than 1,000 groups; None is `timestamp`.

    Each question counts 5,000 groups more. Until all of them were counted once, it is an estimate.
    """
    memory_usage: int = 0
    """Bytes, estimated from a sample of the tasks."""
    limits: QueueLimits = UNLIMITED
    """What is stored for the queue by `set_queue_limits`; what servers ask for is in `ServerInfo.limits`."""

    @property
    def size(self) -> int:
        """All tasks of the queue, in whatever state."""
        return self.unfinished + self.archived + self.completed

    @property
    def unfinished(self) -> int:
        """The tasks that are still to be run, or are running."""
        return self.pending + self.active + self.scheduled + self.retry + self.aggregating


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of a cluster."""

    id: str
    """Its name in the cluster, 40 characters."""
    address: str
    """Host and port, as the cluster tells them."""


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """Something that happened to a task, as it was published; what the event does not tell is empty."""

    kind: str
    """`enqueued`, `started`, `succeeded`, `retried`, `archived` and so on, or `dropped` and `missed`."""
    queue: str
    at: datetime
    """When it happened, aware; by the clock of Redis as the worker knows it, or by that of the client."""
    position: str
    """Where in the queue's stream it stands; a follower can go on after it."""
    task_id: str = ""
    type: str = ""
    server_id: str = ""
    """Which server published it; of a task that was recovered or archived as poison, whose worker crashed."""
    retried: int = 0
    """How many retries had been spent before this attempt."""
    max_retry: int = 0
    seconds: float = 0.0
    """How long the attempt took."""
    error: str = ""
    count: int = 1
    """How many events were dropped, how many tasks were aggregated, or how many crashes there have been."""


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
    engine: str = ""
    """`pyasynq`; empty for a server in Go."""
    limits: Mapping[str, QueueLimits] = field(default_factory=dict)
    """Limits that the server asks for, by queue; what is stored for a queue wins over them."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group of tasks that wait to be made into one."""

    name: str
    size: int
    """Tasks; those that are being aggregated right now are not counted."""


@dataclass(frozen=True, slots=True)
class DailyStatistics:
    """What a queue processed on one day, in UTC. The numbers are kept for 90 days."""

    queue: str
    day: date
    processed: int
    """Attempts ended, failed ones included."""
    failed: int


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What an operation on all tasks of one state came to."""

    done: int
    skipped: int
    """Tasks that had gone elsewhere by the time it was their turn."""
    trimmed: int = 0
    """Archived tasks deleted because the archive was too large or they were too old."""


class TaskFilters(TypedDict, total=False):
    """What a search looks for; a task must match all that are given."""

    type: str
    """The whole name."""
    payload: str | bytes
    """Text or bytes that the payload contains."""
    error: str
    """Text that the last error contains."""
    older_than: Duration
    """How long the task has at least been in its state; in `retry`, since its last failure."""
    newer_than: Duration
    """How long the task has been in its state at most."""


@dataclass(frozen=True, slots=True)
class SearchPage:
    """What a search found in the part of a state that it looked at."""

    tasks: tuple[TaskInfo, ...]
    cursor: int | None
    """Where the next call goes on; None at the end."""
    scanned: int
    """How many tasks were looked at."""


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failed tasks whose errors are alike."""

    signature: str
    """The first line of the error, with what differs from task to task replaced: numbers, ids, quotations."""
    count: int
    types: Mapping[str, int]
    """Task types, and how many tasks of each."""
    latest: datetime | None
    """When the last of them failed."""
    sample: TaskInfo
    """The one that failed last."""


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """The errors of a state, the most frequent first."""

    groups: tuple[ErrorGroup, ...]
    scanned: int
    is_complete: bool
    """False when there are more tasks than were looked at."""


@dataclass(frozen=True, slots=True)
class TypeStatistics:
    """How many tasks of one type a queue has in each state."""

    type: str
    counts: Mapping[TaskState, int]
    retried: int
    """Retries that these tasks have spent, together."""

    @property
    def total(self) -> int:
        """The tasks of this type in all states."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class TypeReport:
    """The task types of a queue, the most frequent first."""

    types: tuple[TypeStatistics, ...]
    scanned: int
    is_complete: bool
    """False when a state has more tasks than were looked at."""


@dataclass(frozen=True, slots=True)
class SchedulerEntryInfo:
    """A periodic task of a running scheduler, as its last record tells it."""

    id: str
    spec: str
    """The cron expression, or `@every` and a duration."""
    task: Task
    """Type and payload, and those options whose text could be read."""
    options: tuple[str, ...]
    """All options as texts, as the scheduler wrote them."""
    next_enqueue_at: datetime | None
    previous_enqueue_at: datetime | None


@dataclass(frozen=True, slots=True)
class SchedulerEvent:
    """One enqueue of a scheduler entry."""

    task_id: str
    enqueued_at: datetime | None


class CancelStatus(enum.StrEnum):
    """What is known of a request to cancel."""

    REQUESTED = "requested"
    """Written down for the worker, which obeys at once, or at its next heartbeat if it missed the call."""
    SENT = "sent"
    """A worker in Go runs the task. It was told, acknowledges nothing, and always retries."""
    ENDED = "ended"
    """The attempt has ended; `state` says where the task is now."""
    NOT_ACTIVE = "not_active"
    """The task is not running; nothing was asked of anybody."""


@dataclass(frozen=True, slots=True)
class CancelResult:
    """The answer to a request to cancel, for one queue."""

    queue: str
    task_id: str
    status: CancelStatus
    state: TaskState | None
    """The task's state; None when it is gone."""
    attempt: str = field(default="", repr=False, compare=False)
    """Which attempt was asked; empty for one of a worker in Go."""
