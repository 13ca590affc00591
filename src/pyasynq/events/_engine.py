"""Events of servers and consumers, and of the tasks that they run."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.context import CancelReason
    from pyasynq.telemetry import AttemptCounts


class Outcome(enum.StrEnum):
    """Outcome of one attempt, as it is written to Redis."""

    SUCCEEDED = "succeeded"
    REVOKED = "revoked"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    ARCHIVED = "archived"
    REQUEUED = "requeued"
    LET_GO = "let_go"
    """The attempt lost its lease, so that no outcome was written."""


class TaskStarted(NamedTuple):
    """A handler is about to run.

    Attributes:
        waited: seconds since the task became pending; None if unknown.
    """

    queue: str
    task_id: str
    task_type: str
    retried: int
    waited: float | None = None


class TaskFinished(NamedTuple):
    """An attempt has ended, and its outcome is decided. The outcome is written to Redis after this event.

    If Redis refuses the outcome for good (`SettleRefused`), a second event reports the failure written
    instead. `error` is the exception that the handler raised, or the control value that it returned. For a
    `Retry` without a reason it is the error that caused the `Retry`. After the attempt, the traceback of
    `error` is removed, and with it the handler's frames and variables: read it in the callback.
    """

    queue: str
    task_id: str
    task_type: str
    retried: int
    max_retry: int
    outcome: Outcome
    seconds: float
    error: BaseException | None
    delay: float | None = None
    """Seconds until the next attempt of a task that is retried or snoozed."""
    waited: float | None = None
    """Seconds between the time when the task became pending and the start of its handler; None if unknown."""
    reason: CancelReason | None = None
    """Why the attempt was cancelled; None if it was not."""
    asked: bool = False
    """Whether the handler asked for the outcome, by `Snooze`, `Retry`, `Archive`, `Cancel` and the like."""


class AttemptTraced(NamedTuple):
    """A tracing middleware has recorded a sampled span for an attempt that has just ended.

    Attributes:
        queue: the task's queue.
        task_type: the task's type.
        seconds: duration of the attempt.
        waited: seconds between the time when the task became pending and the start of its handler; None if
            unknown.
        trace_id: id of the span's trace, 32 hexadecimal digits.
        span_id: id of the span, 16 hexadecimal digits.
    """

    queue: str
    task_type: str
    seconds: float
    waited: float | None
    trace_id: str
    span_id: str


class TaskSettled(NamedTuple):
    """Redis has confirmed the outcome of an attempt, or refused it because another worker has the task."""

    queue: str
    task_id: str
    written: bool


class TaskRecovered(NamedTuple):
    """A task of a crashed worker is pending again."""

    queue: str
    task_id: str
    crashes: int
    server_id: str
    task_type: str = ""


class LeaseLapsed(NamedTuple):
    """A task that was leased to a remote worker is pending again: its lease ended, and was never extended.

    The worker may have crashed, or have lost its connection before it received the task. `lapses` is the
    number of times in a row that this has happened to the task.
    """

    queue: str
    task_id: str
    lapses: int
    server_id: str
    task_type: str = ""


class TaskPoisoned(NamedTuple):
    """A task was archived as poison: its workers crashed, or let its lease lapse, `crashes` times."""

    queue: str
    task_id: str
    crashes: int
    server_id: str
    task_type: str = ""


class WorkerDied(NamedTuple):
    """A worker died with this task, which is pending again, or archived as poison. For hooks."""

    queue: str
    task_id: str
    task_type: str
    retried: int
    max_retry: int
    crashes: int
    server_id: str
    archived: bool


class LeaseLost(NamedTuple):
    """An attempt lost its lease, which lapsed or was taken over; its handler is cancelled without outcome."""

    queue: str
    task_id: str


class SettleDelayed(NamedTuple):
    """Outcomes could not be written to Redis. They are retried, and the leases of their tasks are renewed."""

    tasks: int
    error: Exception


class SettleRefused(NamedTuple):
    """Redis refuses the outcome of an attempt for good; `remedy` says what happens to its task."""

    queue: str
    task_id: str
    remedy: str
    error: Exception


class GhostsDropped(NamedTuple):
    """Ids without a task were found in the pending list and removed."""

    queue: str
    ids: int


class MessageQuarantined(NamedTuple):
    """A message that cannot be decoded was archived, its bytes untouched."""

    queue: str
    task_id: str
    reason: str


class ArchiveTrimmed(NamedTuple):
    """The oldest tasks in the archive of a queue were deleted, because it was over its size or age limit."""

    queue: str
    tasks: int


class TasksAggregated(NamedTuple):
    """The tasks of a group were aggregated into one task, and deleted."""

    queue: str
    group: str
    tasks: int
    task_id: str
    """Id of the aggregate task; empty if its lock was held by another task, which was accepted instead."""


class AggregationDeclined(NamedTuple):
    """The aggregator declined to make a task from the tasks of a group.

    The tasks are kept, and the aggregator is called again in two minutes.
    """

    queue: str
    group: str
    tasks: int


class AggregationFailed(NamedTuple):
    """The tasks of a group could not be aggregated; they are kept, and retried after `rest` seconds."""

    queue: str
    group: str
    error: BaseException
    rest: float


class AggregationLost(NamedTuple):
    """An aggregation had no effect: its tasks were put back into their group before it ended."""

    queue: str
    group: str


class AggregationOverdue(NamedTuple):
    """A call of an aggregator still runs `seconds` after its timeout, and cannot be stopped."""

    queue: str
    group: str
    seconds: float


class SetsReclaimed(NamedTuple):
    """Tasks whose aggregation was interrupted, such as by a crash, were put back into their groups."""

    queue: str
    sets: int
    tasks: int


class RoundFinished(NamedTuple):
    """A background service has finished one round, an iteration of its loop.

    Attributes:
        node: the cluster node that the round was for; empty if it was for all of Redis.
        asked_at: monotonic time, in seconds, just before the calls that Redis answered in this round. None if
            Redis answered no call, or if the service does not report the time.
    """

    service: str
    rest: float
    node: str = ""
    asked_at: float | None = None


class RoundFailed(NamedTuple):
    """A round of a service raised, or failed for one queue; the round is retried after `rest` seconds.

    Attributes:
        node: the cluster node that the round was for; empty if it was for all of Redis.
        queue: the queue that the round failed for; empty if it failed as a whole.
    """

    service: str
    error: Exception
    """The error; its traceback is removed after the subscribers were called."""
    rest: float
    node: str = ""
    queue: str = ""


class ServerStateChanged(NamedTuple):
    """A server is now `new`, `active`, `stopped` or `closed`."""

    server_id: str
    state: str


class ServerAsked(NamedTuple):
    """An operator has asked a server to take no more tasks (`quiet`), or to shut down (`stop`).

    Attributes:
        obeyed: whether the request takes effect; False for a consumer, whose program decides when it stops.
    """

    server_id: str
    action: str
    obeyed: bool


class ServerEnded(NamedTuple):
    """A server has closed.

    Attributes:
        outcomes: number of attempts that ended in each way.
        seconds: seconds since the server's start.
        unwritten: number of outcomes that Redis has not confirmed. These tasks are recovered and run again
            when their leases lapse.
    """

    server_id: str
    outcomes: Mapping[Outcome, int]
    seconds: float
    unwritten: int


class ServerStarting(NamedTuple):
    """A server starts: it has an id, and has not connected to Redis yet."""

    server_id: str


class WorkerMeasured(NamedTuple):
    """Measurements of a server, once a second and when it closes.

    Nothing is measured unless there is a subscriber when the server starts.

    Attributes:
        server_id: id of the server.
        counts: counts of the attempts that ended since the last event, by queue and task type.
        running: number of attempts that run now, for each queue that is served.
        slots: number of attempts that may run at once; 0 for a consumer.
        busy_seconds: total running time of all attempts since the last event, in seconds.
        unwritten: number of outcomes that Redis has not confirmed.
        lateness: delay of the event loop, in seconds: how late it was to emit this event.
    """

    server_id: str
    counts: Mapping[str, Mapping[str, AttemptCounts]]
    running: Mapping[str, int]
    slots: int
    busy_seconds: float
    unwritten: int
    lateness: float


class ExchangeEnded(NamedTuple):
    """One round trip of the processor to Redis has ended: a pipeline was answered, or failed.

    Attributes:
        seconds: time from sending to the last answer.
        outcomes: number of attempts whose outcomes were in the pipeline.
        calls: number of calls in the pipeline.
    """

    seconds: float
    outcomes: int
    calls: int


class HeartbeatWritten(NamedTuple):
    """A heartbeat has renewed the leases and written the server's record. Emitted on the event loop."""

    server_id: str


class SignOfLife(NamedTuple):
    """Liveness of a server, about once a second: its lease-renewing thread and its event loop run.

    The event says nothing about Redis; see `QueuesAsked`.
    """

    server_id: str


class QueuesAsked(NamedTuple):
    """A server has checked whether Redis answers for each of its queues.

    Attributes:
        server_id: id of the server.
        queues: number of queues checked.
        unreachable: names of the queues for which Redis did not answer, or answered with an error.
    """

    server_id: str
    queues: int
    unreachable: tuple[str, ...]


class QueueChanged(NamedTuple):
    """A running server or consumer has begun to serve a queue, changed its settings, or stopped serving it.

    Attributes:
        server_id: id of the server.
        queue: name of the queue.
        change: `"added"`, `"changed"` or `"removed"`. After `"removed"`, `"ended"` follows when none of its
            tasks runs any more.
    """

    server_id: str
    queue: str
    change: str


class ShutdownWaiting(NamedTuple):
    """A server that shuts down waits for running tasks, for at most this many seconds."""

    tasks: int
    seconds: float


class TasksPutBack(NamedTuple):
    """Unfinished tasks of a closing server were put back (requeued) at the front of their queues."""

    tasks: int


class ShutdownHung(NamedTuple):
    """A part of a server exceeded its time limit at shutdown. It was cancelled, left running, or killed.

    `what` describes the part. `where` is its position in the code, or its stack. The event is emitted from
    another thread if the event loop is blocked.
    """

    what: str
    where: str


class LeaveFailed(NamedTuple):
    """The cleanup of a background service at its stop has raised an error; the shutdown continues."""

    service: str
    error: Exception


class EventsDropped(NamedTuple):
    """Events of a queue's tasks were not published: Redis was unreachable or full, or did not answer."""

    queue: str
    events: int


class LoopBlocked(NamedTuple):
    """The event loop has been blocked for `seconds`; `stack` is its stack, `tasks` describes what runs.

    The event is emitted from another thread, because the blocked loop cannot emit it.
    """

    seconds: float
    stack: str
    tasks: str = ""


class AttemptOverdue(NamedTuple):
    """A handler still runs `seconds` after its deadline and cannot be stopped."""

    queue: str
    task_id: str
    task_type: str
    seconds: float


class AttemptAbandoned(NamedTuple):
    """A handler still ran when its server closed; its task is recovered after the handler or program ends."""

    queue: str
    task_id: str
    task_type: str


class TypesNotPublished(NamedTuple):
    """Descriptions of task types were not published: they are too large, or Redis already has too many."""

    server_id: str
    types: tuple[str, ...]


class LimitsIgnored(NamedTuple):
    """A Go server takes tasks from a queue with limits or ordered tasks, although Go servers ignore both.

    Reported once for each such server and queue, by every pyasynq server that works on the queue.
    """

    queue: str
    host: str
    pid: int
    server_id: str
