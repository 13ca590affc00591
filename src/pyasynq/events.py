"""Events: small immutable values about what happens. Logs, metrics, traces and tests subscribe to them.

An event is built only when somebody has subscribed to its class, so an unwatched one costs a look-up:

    if events.wants(TaskFinished):
        events.emit(TaskFinished(...))
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

_log = logging.getLogger("pyasynq")


class Outcome(enum.StrEnum):
    """What came of one attempt, as it was settled."""

    SUCCEEDED = "succeeded"
    REVOKED = "revoked"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    ARCHIVED = "archived"
    REQUEUED = "requeued"
    LET_GO = "let_go"
    """The lease was lost; nothing was written."""


class TaskStarted(NamedTuple):
    """A handler is about to run."""

    queue: str
    task_id: str
    task_type: str
    retried: int


class TaskFinished(NamedTuple):
    """An attempt has ended and its outcome is decided; writing it down follows.

    If Redis refuses that for good (`SettleRefused`), a second event tells of the failure written instead.

    `error` is what the handler raised, or returned to say what becomes of the task; of a `Retry`, the error
    that it was raised from or in handling. Its traceback is taken from it when the attempt is over, with the
    frames of the handler and their variables; subscribers read it while they are called.
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
    """Seconds until the next attempt, of a task that is retried or snoozed."""


class TaskSettled(NamedTuple):
    """Redis has confirmed the outcome of an attempt, or refused it because the task is somebody else's."""

    queue: str
    task_id: str
    written: bool


class TaskRecovered(NamedTuple):
    """A task of a crashed worker is pending again."""

    queue: str
    task_id: str
    crashes: int
    server_id: str


class TaskPoisoned(NamedTuple):
    """A task was archived because its workers crashed `crashes` times."""

    queue: str
    task_id: str
    crashes: int
    server_id: str


class LeaseLost(NamedTuple):
    """An attempt's lease lapsed or was taken over; its handler is cancelled and nothing is written."""

    queue: str
    task_id: str


class SettleDelayed(NamedTuple):
    """Outcomes could not be written; they are kept, their leases renewed, and tried again."""

    tasks: int
    error: Exception


class SettleRefused(NamedTuple):
    """Redis refuses the outcome of an attempt for good; `remedy` says in words what is done with its task."""

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
    """Tasks of a group have become one task, and are no more."""

    queue: str
    group: str
    tasks: int
    task_id: str
    """Empty when another task stands for it, which holds its lock."""


class AggregationDeclined(NamedTuple):
    """The aggregator made no task of a group's tasks; they are kept, and it is asked again in two minutes."""

    queue: str
    group: str
    tasks: int


class AggregationFailed(NamedTuple):
    """A group's tasks could not be made into one; they are kept and tried again after `rest` seconds."""

    queue: str
    group: str
    error: BaseException
    rest: float


class AggregationLost(NamedTuple):
    """Tasks were put back into their group while they were being aggregated; nothing came of this try."""

    queue: str
    group: str


class AggregationOverdue(NamedTuple):
    """An aggregator's call for a group still runs `seconds` after its time, and cannot be stopped."""

    queue: str
    group: str
    seconds: float


class SetsReclaimed(NamedTuple):
    """Tasks whose aggregation was broken off, by a crash for one, were put back into their groups."""

    queue: str
    sets: int
    tasks: int


class RoundFinished(NamedTuple):
    """A service of the server has finished one round of its work.

    Attributes:
        node: the node of a cluster that the round was for; empty if it was for all of Redis.
    """

    service: str
    rest: float
    node: str = ""


class RoundFailed(NamedTuple):
    """A round of a service raised, or failed for one queue; it is tried again after `rest` seconds.

    Attributes:
        node: the node of a cluster that the round was for; empty if it was for all of Redis.
        queue: the queue that the round failed for; empty if it failed for all of them.
    """

    service: str
    error: Exception
    """With its traceback while subscribers are called, and without it afterwards."""
    rest: float
    node: str = ""
    queue: str = ""


class ServerStateChanged(NamedTuple):
    """A server is now `new`, `active`, `stopped` or `closed`."""

    server_id: str
    state: str


class ServerEnded(NamedTuple):
    """A server has closed.

    Attributes:
        outcomes: how many attempts ended in each way.
        seconds: since its start.
        unwritten: how many outcomes Redis has not confirmed; the tasks come back when their leases lapse.
    """

    server_id: str
    outcomes: Mapping[Outcome, int]
    seconds: float
    unwritten: int


class ServerStarting(NamedTuple):
    """A server has got its id; it is about to connect, and then to take its first task."""

    server_id: str


class HeartbeatWritten(NamedTuple):
    """Leases are renewed, the server's record is written, and the event loop has just heard of it."""

    server_id: str


class SignOfLife(NamedTuple):
    """The thread that renews leases and the event loop turn, whether or not Redis answers."""

    server_id: str


class QueuesAsked(NamedTuple):
    """A server has asked each of its queues for a sign of life.

    Attributes:
        server_id: of the server.
        queues: how many it asked.
        unreachable: the names of those that did not answer, or answered with an error.
    """

    server_id: str
    queues: int
    unreachable: tuple[str, ...]


class QueueChanged(NamedTuple):
    """A server or consumer that runs has begun to serve a queue, serves it otherwise, or serves it no longer.

    Attributes:
        server_id: of the server.
        queue: its name.
        change: `"added"`, `"changed"` or `"removed"`; then `"ended"` once none of its tasks runs any more.
    """

    server_id: str
    queue: str
    change: str


class ShutdownWaiting(NamedTuple):
    """A server that shuts down waits for running tasks, at most so many seconds."""

    tasks: int
    seconds: float


class TasksPutBack(NamedTuple):
    """Tasks that did not finish before a server closed are at the front of their queues again."""

    tasks: int


class ShutdownHung(NamedTuple):
    """Something did not end within its time at shutdown, and was given up: cancelled, left, or killed.

    Comes from another thread when the event loop is blocked. `where` is the place in the code, or a stack.
    """

    what: str
    where: str


class LeaveFailed(NamedTuple):
    """The last step of a service has raised an error; the shutdown goes on."""

    service: str
    error: Exception


class EventsDropped(NamedTuple):
    """Events of a queue's tasks were not published: Redis was away for too long, full, or did not answer."""

    queue: str
    events: int


class LoopBlocked(NamedTuple):
    """The event loop has not run for `seconds`; `stack` says where it is, and `tasks` in words what runs.

    The only event that comes from another thread, since nobody on the loop could emit it.
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
    """A handler outlived the server's closing; its task comes back some time after it or the program ends."""

    queue: str
    task_id: str
    task_type: str


class ServerWarning(NamedTuple):
    """Something about Redis or this host endangers tasks: eviction, clock skew, a refused command."""

    code: str
    message: str


class LimitsIgnored(NamedTuple):
    """A server that knows neither limits nor order, one in Go, works on a queue that has them.

    Reported once for each such server and queue, by every server of pyasynq that works on the queue.
    """

    queue: str
    host: str
    pid: int
    server_id: str


class SchedulerStateChanged(NamedTuple):
    """A scheduler is now `new`, `active`, `stopped` or `closed`."""

    scheduler_id: str
    state: str


class TickFired(NamedTuple):
    """This scheduler has enqueued the task of a tick."""

    entry_id: str
    spec: str
    task_type: str
    queue: str
    task_id: str
    tick: datetime


class TickFailed(NamedTuple):
    """A tick could not be fired. With `retried` it is tried again, and reported only once."""

    entry_id: str
    spec: str
    task_type: str
    tick: datetime
    error: Exception
    retried: bool


class TicksMissed(NamedTuple):
    """Ticks up to this one are left out: no scheduler ran, or none could reach Redis, and misfire is skip."""

    entry_id: str
    spec: str
    task_type: str
    tick: datetime


class FutureTickIgnored(NamedTuple):
    """The stored last tick of an entry lies over 5 minutes in the future, so the scheduler ignores it.

    The clock of Redis was ahead when the tick was written. The next tick that is fired replaces it.
    """

    entry_id: str
    spec: str
    task_type: str
    tick: datetime


class HookFailed(NamedTuple):
    """A hook of a scheduler raised."""

    hook: str
    error: Exception


class SyncFailed(NamedTuple):
    """The provider of periodic tasks raised, or what it returned cannot be; all entries stay as they are."""

    error: Exception


class PeriodicTaskRefused(NamedTuple):
    """A periodic task has an expression that cannot be read; the others are not affected."""

    spec: str
    task_type: str
    error: Exception


Event = TypeVar("Event", bound=tuple[object, ...])


class _Subscription(NamedTuple):
    callback: Callable[..., object]
    routine: Callable[[], bool] | None


class Events:
    """Who wants to know what. Subscribing and emitting belong to one thread, the event loop's."""

    __slots__ = ("_subscriptions",)

    def __init__(self) -> None:
        self._subscriptions: dict[type, tuple[_Subscription, ...]] = {}

    def subscribe(
        self,
        event_class: type[Event],
        callback: Callable[[Event], object],
        *,
        routine: Callable[[], bool] | None = None,
    ) -> Callable[[], None]:
        """Call `callback` with each event of exactly this class; return a function that ends it.

        What a callback raises is logged and changes nothing for the others. `routine` is asked whether events
        that tell of nothing special are wanted now as well, such as the success of a task; None is always.
        """
        subscription = _Subscription(callback, routine)
        self._subscriptions[event_class] = (*self._subscriptions.get(event_class, ()), subscription)

        def unsubscribe() -> None:
            left = tuple(one for one in self._subscriptions.get(event_class, ()) if one is not subscription)
            if left:
                self._subscriptions[event_class] = left
            else:
                self._subscriptions.pop(event_class, None)

        return unsubscribe

    def wants(self, event_class: type) -> bool:
        """Return whether anybody has subscribed to this class."""
        return event_class in self._subscriptions

    def wants_routine(self, event_class: type) -> bool:
        """Return whether anybody wants to know of an event of this class that tells of nothing special."""
        for subscription in self._subscriptions.get(event_class, ()):
            if subscription.routine is None or subscription.routine():
                return True
        return False

    def emit(self, event: tuple[object, ...]) -> None:
        """Hand the event to its subscribers, in the order of their subscriptions."""
        for subscription in self._subscriptions.get(type(event), ()):
            try:
                subscription.callback(event)
            except Exception:  # noqa: BLE001 - a subscriber's failure is its own
                _log.exception("a subscriber of %s raised", type(event).__name__)
