"""Events of servers and consumers, and of the tasks that they run."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.context import CancelReason
    from pyasynq.telemetry import AttemptCounts


class Outcome(enum.StrEnum):
    """The outcome of one attempt, as settled."""

    SUCCEEDED = "succeeded"
    REVOKED = "revoked"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    ARCHIVED = "archived"
    REQUEUED = "requeued"
    LET_GO = "let_go"
    """The lease was lost; nothing was written."""


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
    """An attempt has ended and its outcome is decided; settling follows.

    If Redis refuses the outcome for good (`SettleRefused`), a second event reports the failure written
    instead. `error` is what the handler raised, or returned to control its task; for a `Retry`, the error
    that it was raised from or in handling. Its traceback is removed when the attempt is over, with the frames
    of the handler and their variables; subscribers read it while they are called.
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
    """Seconds from pending to the start of the handler; None if unknown."""
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
        waited: seconds from pending to the start of the handler; None if unknown.
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

    The worker may have crashed, or have lost its connection before it had the task. `lapses` is how often in
    a row that has happened.
    """

    queue: str
    task_id: str
    lapses: int
    server_id: str
    task_type: str = ""


class TaskPoisoned(NamedTuple):
    """A task was archived because its workers crashed `crashes` times, or let its lease lapse as often."""

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
    """An attempt's lease lapsed or was taken over; its handler is cancelled and nothing is written."""

    queue: str
    task_id: str


class SettleDelayed(NamedTuple):
    """Outcomes could not be written; they are kept and retried, and their leases renewed."""

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
    """The archive of a queue was over its cap or age, and its oldest tasks were deleted."""

    queue: str
    tasks: int


class TasksAggregated(NamedTuple):
    """Tasks of a group have become one task, and are deleted."""

    queue: str
    group: str
    tasks: int
    task_id: str
    """Id of the aggregate task; empty if another task that holds its lock was accepted instead."""


class AggregationDeclined(NamedTuple):
    """The aggregator made no task of a group's tasks.

    The tasks are kept, and the aggregator is called again in two minutes.
    """

    queue: str
    group: str
    tasks: int


class AggregationFailed(NamedTuple):
    """A group's tasks could not be aggregated; they are kept and retried after `rest` seconds."""

    queue: str
    group: str
    error: BaseException
    rest: float


class AggregationLost(NamedTuple):
    """An aggregation had no effect: its tasks were put back into their group before it ended."""

    queue: str
    group: str


class AggregationOverdue(NamedTuple):
    """An aggregator's call for a group still runs `seconds` after its time, and cannot be stopped."""

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
        asked_at: monotonic time before the calls that Redis has answered in this round; None if it answered
            none, or if the service does not report it.
    """

    service: str
    rest: float
    node: str = ""
    asked_at: float | None = None


class RoundFailed(NamedTuple):
    """A round of a service raised, or failed for one queue; it is retried after `rest` seconds.

    Attributes:
        node: the cluster node that the round was for; empty if it was for all of Redis.
        queue: the queue that the round failed for; empty if it failed for all of them.
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
        obeyed: False for a consumer, whose program decides when it stops.
    """

    server_id: str
    action: str
    obeyed: bool


class ServerEnded(NamedTuple):
    """A server has closed.

    Attributes:
        outcomes: number of attempts that ended in each way.
        seconds: seconds since the server's start.
        unwritten: number of outcomes that Redis has not confirmed; those tasks come back when their leases
            lapse.
    """

    server_id: str
    outcomes: Mapping[Outcome, int]
    seconds: float
    unwritten: int


class ServerStarting(NamedTuple):
    """A server starts: it has its id, and has not connected yet."""

    server_id: str


class WorkerMeasured(NamedTuple):
    """Measurements of a server since its last such event: each second, and at its end.

    Nothing is measured unless there is a subscriber when the server starts.

    Attributes:
        server_id: id of the server.
        counts: how attempts ended, by queue and task type.
        running: number of attempts that run now, for each queue that is served.
        slots: number of attempts that may run at once; 0 for a consumer.
        busy_seconds: sum of the seconds in which attempts ran since the last event.
        unwritten: number of outcomes that Redis has not confirmed.
        lateness: seconds by which the event loop was late to report this.
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
        unreachable: the names of those that did not answer, or answered with an error.
    """

    server_id: str
    queues: int
    unreachable: tuple[str, ...]


class QueueChanged(NamedTuple):
    """A running server or consumer has begun to serve a queue, changed its settings, or stopped serving it.

    Attributes:
        server_id: id of the server.
        queue: its name.
        change: `"added"`, `"changed"` or `"removed"`; then `"ended"` once none of its tasks runs any more.
    """

    server_id: str
    queue: str
    change: str


class ShutdownWaiting(NamedTuple):
    """A server that shuts down waits for running tasks, for at most this many seconds."""

    tasks: int
    seconds: float


class TasksPutBack(NamedTuple):
    """Tasks that did not finish before a server closed are at the front of their queues again."""

    tasks: int


class ShutdownHung(NamedTuple):
    """Something exceeded its time at shutdown, and was given up: cancelled, left running, or killed.

    The event is emitted from another thread when the event loop is blocked. `where` is the place in the code,
    or a stack.
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
    """The event loop has not run for `seconds`; `stack` is its stack, and `tasks` describes what runs.

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
    """Descriptions of task types were not published: they are too large, or too many types are known."""

    server_id: str
    types: tuple[str, ...]


class LimitsIgnored(NamedTuple):
    """A Go server, which ignores limits and order, works on a queue that has them.

    Reported once for each such server and queue, by every pyasynq server that works on the queue.
    """

    queue: str
    host: str
    pid: int
    server_id: str
