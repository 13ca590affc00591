"""Descriptions of queues, servers and schedulers, as the inspector returns them; of tasks see `TaskInfo`."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict, TypeVar, overload

from pyasynq.limits import UNLIMITED, QueueLimits
from pyasynq.options import DEFAULT_QUEUE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime, timedelta

    from pyasynq.options import Duration
    from pyasynq.task import Task, TaskInfo, TaskState
    from pyasynq.task_types import ServedTypes

_Item_co = TypeVar("_Item_co", covariant=True)


class _TupleSequence(Sequence[_Item_co]):
    """A read-only sequence of the items in a tuple, for descriptions that carry more than their items."""

    __slots__ = ()

    @property
    def _items(self) -> tuple[_Item_co, ...]:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> _Item_co: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[_Item_co, ...]: ...

    def __getitem__(self, index: int | slice) -> _Item_co | tuple[_Item_co, ...]:
        """Return one item, or the items of a slice."""
        return self._items[index]

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._items)


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """State of a queue in Redis, at the time of the query."""

    queue: str
    pending: int
    active: int
    scheduled: int
    retry: int
    archived: int
    completed: int
    aggregating: int
    """Number of tasks that wait in groups."""
    groups: int
    processed: int
    """Attempts ended today (UTC), failed ones included."""
    failed: int
    """Attempts failed today (UTC)."""
    processed_total: int
    failed_total: int
    latency: timedelta
    """Time for which the oldest pending task has waited; zero if none waits."""
    paused: bool
    timestamp: datetime
    """Time at which Redis was asked, aware."""
    paused_until: datetime | None = None
    """Time at which the pause ends by itself; None if it does not."""
    aggregating_at: datetime | None = None
    """Time at which counting `aggregating` began, for queues with over 1,000 groups; None means `timestamp`.

    Each query counts 5,000 more groups. Until all of them were counted once, the number is an estimate.
    """
    memory_usage: int | None = None
    """Bytes, estimated from a sample of the tasks; None unless it was asked for."""
    memory_at: datetime | None = None
    """Time at which `memory_usage` was estimated."""
    due: int = 0
    """Scheduled and retry tasks whose time has come and that no server has forwarded to pending yet."""
    limits: QueueLimits = UNLIMITED
    """Limits stored by `set_queue_limits`; those that servers set are in `ServerInfo.limits`."""

    @property
    def size(self) -> int:
        """Number of tasks in all states."""
        return self.unfinished + self.archived + self.completed

    @property
    def unfinished(self) -> int:
        """Number of tasks that still have to run, or are running."""
        return self.pending + self.active + self.scheduled + self.retry + self.aggregating


@dataclass(frozen=True, slots=True)
class QueueInfos(_TupleSequence[QueueInfo]):
    """States of many queues in Redis: a sequence of `QueueInfo` in the order of the queues' names.

    A queue that could not be read is in `unreadable` instead, so that one damaged queue hides no other.
    """

    infos: tuple[QueueInfo, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Name of a queue, and the error that reading it gave."""
    as_of: datetime | None = None
    """Time up to which the replicas that were read have all writes of their primaries; None if unknown.

    None if primaries were read.
    """
    missing_rights: tuple[str, ...] = ()
    """Rights that the user lacks to see everything, as ACL rules name them: `+info` for `as_of`."""

    @property
    def _items(self) -> tuple[QueueInfo, ...]:
        return self.infos


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """State of a replica that an inspector reads from."""

    primary: str
    """Host and port of its primary, as the replica tells them."""
    is_connected: bool
    """Whether the replication link to its primary is up."""
    behind: timedelta | None
    """Replication lag: time since it last heard of its primary, up to 10 s in quiet times; None for never."""
    as_of: datetime | None
    """Time up to which the replica has received its primary's writes."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of a cluster."""

    id: str
    """Id of the node in the cluster, 40 characters."""
    address: str
    """Host and port, as the cluster tells them."""


@dataclass(frozen=True, slots=True)
class QueueLocation:
    """Place of a queue in a cluster."""

    queue: str
    slot: int
    """Slot of all its keys, 0 to 16,383."""
    nodes: tuple[ClusterNode, ...]
    """Nodes that have the slot: its primary, then the replicas; empty if none has it."""


@dataclass(frozen=True, slots=True)
class RedisTexts:
    """Raw replies of Redis about itself, such as INFO."""

    info: str
    """Reply to INFO; of a cluster, to CLUSTER INFO. Lines end with a carriage return and a newline."""
    cluster_nodes: str = ""
    """Reply to CLUSTER NODES; empty if Redis is not a cluster."""
    is_cluster: bool = False


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """Published event of a task, such as its start; fields that do not apply to the event are empty."""

    kind: str
    """`enqueued`, `started`, `succeeded`, `retried`, `archived` and so on, or `dropped` and `missed`."""
    queue: str
    at: datetime
    """Time of the event, aware; by the worker's estimate of Redis' clock, or by the client's clock."""
    position: str
    """Position of the event in the queue's stream; a follower can continue after it."""
    task_id: str = ""
    type: str = ""
    server_id: str = ""
    """Server that published it; for a recovered or poison task, the server that crashed."""
    retried: int = 0
    """Number of retries spent before this attempt."""
    max_retry: int = 0
    seconds: float = 0.0
    """Duration of the attempt in seconds."""
    waited: float | None = None
    """Seconds that a task was pending before it started; None if the event does not tell."""
    error: str = ""
    count: int = 1
    """Number of dropped events, of aggregated tasks, or of worker crashes, depending on the event."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A task that a server is running, as the server's last record tells it (every 5 s)."""

    task_id: str
    task_type: str
    queue: str
    payload: bytes = field(repr=False)
    """First 4 KB of the task's payload."""
    started: datetime | None
    deadline: datetime | None


class ServerAction(enum.StrEnum):
    """Action that an operator may ask of a server."""

    QUIET = "quiet"
    """Take no more tasks; running tasks continue."""
    STOP = "stop"
    """Shut down: the whole worker, with all its processes if it has several."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """Acknowledgement of a request in the record of a server."""

    action: ServerAction
    number: str
    """Number of the request, unique among the requests to one server."""
    obeyed: bool
    """Whether the server obeys; False for a consumer, whose program decides when to stop."""


class RequestStatus(enum.StrEnum):
    """State of a request to a server."""

    REQUESTED = "requested"
    """Stored in Redis; the server reads the request with its next heartbeat, within 5 seconds."""
    OBEYED = "obeyed"
    """Acknowledged in the record of the server: it takes no more tasks."""
    REFUSED = "refused"
    """Acknowledged by a consumer, which does not obey: its program decides when to stop."""
    ENDED = "ended"
    """The server has closed, or its record has lapsed."""
    NOT_UNDERSTOOD = "not_understood"
    """The server is one in Go, which reads no requests; nothing was written."""


@dataclass(frozen=True, slots=True)
class ServerRequestResult:
    """Result of a request to a server."""

    server_id: str
    action: ServerAction
    status: RequestStatus
    number: str = field(default="", repr=False, compare=False)
    """Number of the request, unique among the requests to one server; empty if none was written."""


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
    """Limits that the server declares, by queue; limits stored for a queue override them."""
    types: ServedTypes | None = None
    """Task types that the server has handlers for; None if it does not say: in Go, or with one for all."""
    answer: ServerAnswer | None = None
    """The last request of an operator that the server has acknowledged."""
    loop_blocked: timedelta | None = None
    """Time for which the event loop was blocked when the record was written; None if it was not."""
    team: str = ""
    """Name of the team that runs the server; empty if it does not say."""
    version: str = ""
    """Version of the application, as `App(version=...)` says; empty if it does not say."""
    engine_version: str = ""
    """Version of pyasynq; empty for a server in Go."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group of tasks that wait to be made into one."""

    name: str
    size: int
    """Tasks; those that are being aggregated right now are not counted."""


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of the groups of a queue, in the order in which Redis lists them."""

    groups: tuple[GroupInfo, ...]
    cursor: str
    """Argument `cursor` of the call for the next page; empty at the end."""
    total: int
    """Number of groups of the queue."""


@dataclass(frozen=True, slots=True)
class DailyStatistics:
    """Attempts of a queue on one day, in UTC. The numbers are kept for 90 days."""

    queue: str
    day: date
    processed: int
    """Attempts ended, failed ones included."""
    failed: int


class Refusal(enum.StrEnum):
    """Reason for which an operation left a task as it was."""

    MISSING = "missing"
    """The queue has no task with this id."""
    STATE = "state"
    """The operation is not for tasks in the state that `TaskResult.state` names."""
    AGGREGATED = "aggregated"
    """The task is being aggregated with others of its group."""


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
class TaskResults(_TupleSequence[TaskResult]):
    """Results of an operation on several tasks: a sequence with one for each id, in the order of the ids.

    An id that was given twice has one result.
    """

    results: tuple[TaskResult, ...]
    trimmed: int = 0
    """Archived tasks deleted because the archive was too large or they were too old."""

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
    """Archived tasks deleted because the archive was too large or they were too old."""


@dataclass(frozen=True, slots=True)
class SlowCall:
    """A script of pyasynq or of Asynq that Redis has noted as slow."""

    script: str
    at: datetime
    took: timedelta


@dataclass(frozen=True, slots=True)
class RedisNode:
    """Facts about one server of Redis, as far as the user may ask for them."""

    address: str
    info: Mapping[str, str]
    """Fields of INFO; empty without the right to it."""
    clients: Mapping[str, int] | None
    """Connections by their client names; None if unknown, or if there are more than 2,000."""
    slow_calls: tuple[SlowCall, ...] | None
    """Scripts of the last day that took more than 10 ms, the newest first; None if unknown."""


@dataclass(frozen=True, slots=True)
class RedisReport:
    """Facts about the servers of Redis: one, or each primary of a cluster."""

    nodes: tuple[RedisNode, ...]
    missing_rights: tuple[str, ...] = ()
    """Rights that the user lacks to see everything, as ACL rules name them: `+info`, `+slowlog|get`."""


class TaskFilters(TypedDict, total=False):
    """Conditions of a search; a task must match all that are given."""

    type: str
    """The whole name."""
    payload: str | bytes
    """Text or bytes that the payload contains."""
    error: str
    """Text that the last error contains."""
    older_than: Duration
    """Shortest time that the task has been in its state; in `retry`, since its last failure."""
    newer_than: Duration
    """Longest time that the task has been in its state."""


class ScanText(NamedTuple):
    """A text that Redis looks for before it sends a task."""

    source: Literal["message", "id", "result"]
    """Searched bytes: the message (type, payload, error, headers, group), message and id, or the result."""
    data: bytes


class ScanNumber(NamedTuple):
    """A range of numbers that Redis tests before it sends a task."""

    source: int | str
    """Number of a field of the message, whose bytes are counted, or the name of a value in JSON."""
    low: str
    """The lowest number, included; empty means unbounded."""
    high: str
    """The highest number, included; empty means unbounded."""
    text: str = ""
    """Text that the value in JSON may be instead."""


class ScanFilter(NamedTuple):
    """Filter that Redis applies during a walk: bounds of scores, and texts that a message must contain."""

    low: int | None = None
    """The lowest score, in Unix seconds; None means unbounded. Only tasks in sorted sets have scores."""
    high: int | None = None
    """The highest score, in Unix seconds; None means unbounded."""
    texts: tuple[tuple[ScanText | ScanNumber, ...], ...] = ()
    """Tests, case-sensitive; a task must pass at least one test of each inner tuple."""


@dataclass(frozen=True, slots=True)
class CollectionCount:
    """Size of a collection of tasks."""

    size: int
    positions: int
    """Number of its tasks whose score is in the range of the filter."""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A part of a walk through a collection of tasks."""

    tasks: tuple[TaskInfo, ...]
    """The matching tasks, except tasks whose message cannot be decoded."""
    cursor: str
    """Argument `cursor` of the next call; empty at the end."""
    looked_at: int
    """Number of examined positions, including tasks that are left out."""


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Matches in the part of a state that one call of a search examined."""

    tasks: tuple[TaskInfo, ...]
    cursor: int | None
    """Argument `cursor` of the next call; None at the end."""
    scanned: int
    """Number of tasks that were examined."""


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failed tasks whose errors are alike."""

    signature: str
    """The first line of the error, with what differs from task to task replaced: numbers, ids, quotations."""
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
        """The tasks of this type in all states."""
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


@dataclass(frozen=True, slots=True)
class SchedulerEntryInfo:
    """A periodic task of a running scheduler, as its last record tells it."""

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


class CancelStatus(enum.StrEnum):
    """State of a request to cancel, as far as it is known."""

    REQUESTED = "requested"
    """Stored for the worker, which obeys at once, or at its next heartbeat if it missed the message."""
    SENT = "sent"
    """Sent to the Go worker that runs the task, which never acknowledges, and always retries the task."""
    ENDED = "ended"
    """The attempt has ended; `state` says where the task is now."""
    NOT_ACTIVE = "not_active"
    """The task is not running, so no request was made."""


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
