"""One run of one task: the value that goes through the engine from dequeue to settle."""

from __future__ import annotations

import enum
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._background.code_places import timeout_error
from pyasynq._clock import LAST_SECOND
from pyasynq._wire.history import NO_PROGRESS, encode_progress
from pyasynq._wire.messages import new_task_message
from pyasynq.task import TaskProgress

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from pyasynq._broker.verdicts import Verdict
    from pyasynq._wire.history import ProgressJson
    from pyasynq._wire.messages import TaskMessage
    from pyasynq.context import Home
    from pyasynq.errors import TaskTimeoutError

LEASE_SCORE_MARGIN = 20
"""Seconds by which claims name a later end of the lease than was ever asked for.

They cover renewals that are on their way and a wrong estimate of Redis' time, and are fewer than the 30 that
peers in Go wait after the end of a lease before they take a task.
"""

DEFAULT_TIMEOUT_SECONDS = 1_800
"""For a message with neither timeout nor deadline, which no client should have written."""

LARGE_BYTES: Final = 4_096
"""Smaller messages are kept: a copy takes longer than their memory is worth."""

_making_events = threading.Lock()


class Phase(enum.Enum):
    """How far an attempt has come."""

    TAKEN = "taken"
    """Dequeued; its handler has not begun."""
    RUNNING = "running"
    SETTLING = "settling"
    """Ended; its outcome is decided and not yet confirmed by Redis."""
    ABANDONED = "abandoned"
    """Outlived its server, inside a program that goes on."""


# Python 3.11 takes longer to find a member of an enum than everything else here.
TAKEN: Final = Phase.TAKEN
RUNNING: Final = Phase.RUNNING
SETTLING: Final = Phase.SETTLING
ABANDONED: Final = Phase.ABANDONED


class ServerStopping(Exception):  # noqa: N818 - a cause, not an error
    """Why shutdown cancels an attempt."""


class ProgressReport(NamedTuple):
    """What a handler said of its progress, and at what monotonic time. A plain value: there may be many."""

    done: float
    total: float | None
    note: str
    said_at: float


class Attempt:
    """One run of one task: written and read by the event loop alone, unless a field says otherwise.

    Attributes:
        id: the task's, as it stands in the queue's lists; the message's own unless given.
        token: names the dequeue call that took the task; Redis holds it beside the task.
        lease_until: monotonic time at which the lease ends, counted from before the call that asked for it.
            Moved by the heartbeat's thread, or by the loop if the attempt is not renewed; read by both.
        lease_score: latest Unix time that this attempt may have asked for as the end of its lease. Raised
            by `expect_renewals` on the loop and in the heartbeat's thread, before each call that claims.
        lease_end: Unix time at which the lease ends in Redis, as its last reply said. Written with
            `lease_until`, read by the loop.
        renewed: whether the heartbeat renews the lease; otherwise whoever holds the attempt does, or nobody.
        phase: how far it has come. RUNNING is written by `begin`, SETTLING by what hands the attempt to the
            settle queue, ABANDONED by the shutdown. Read by the heartbeat's thread, too.
        deadline: monotonic time at which the attempt is cut off, infinity for never.
        deadline_at: the same as Unix time, None for never.
        cause: why the attempt is being cancelled; it is the outcome, whatever the handler then does. Read by
            handler threads, too.
        cancelled_at: monotonic time of the first cancel.
        lost: whether Redis said that the task is another worker's.
        overdue_reported: seconds past its deadline at the last report of it.
        task: runs the handler; None before and after. Written by the runner.
        on_cancel: called when an attempt that runs is cancelled, for those that are no task of asyncio.
        settled: done when nothing is left to write: with whether it was written, or with what went wrong.
        verdict: how a leased attempt ended, once it is settled; None for the attempts of workers.
        size: of the message, in bytes; 0 where nobody asks.
        started: monotonic time at which it began; until then, at which it was taken.
        started_at: Unix time at which it began.
        thread_id: of the thread that has run a handler of this attempt last; 0 for none. Written by that
            thread, read by the loop.
        threads: number of threads that run handlers of this attempt now. Written by `HandlerThreads` under
            its lock, read by the loop.
        dropped_result: why what the handler returned is not stored; empty if it is. Written where the handler
            runs, read when the attempt is concluded.
        progress: what the handler said last. Replaced by any thread of the handler, read by the loop.
        progress_queued: whether it is on its way to the service that writes it. Set by the thread that has
            written `progress`, cleared by the loop before it reads that.
    """

    __slots__ = (
        "__weakref__",
        "_cancel_event",
        "cancelled_at",
        "cause",
        "crashes",
        "deadline",
        "deadline_at",
        "dropped_result",
        "home",
        "id",
        "lease_end",
        "lease_score",
        "lease_until",
        "lost",
        "message",
        "on_cancel",
        "overdue_reported",
        "phase",
        "progress",
        "progress_queued",
        "queue",
        "renewed",
        "settled",
        "size",
        "started",
        "started_at",
        "task",
        "thread_id",
        "threads",
        "token",
        "verdict",
    )

    def __init__(
        self,
        home: Home,
        queue: str,
        message: TaskMessage,
        token: str,
        *,
        task_id: str = "",
        crashes: int = 0,
        lease_until: float = 0.0,
        lease_score: int = 0,
    ) -> None:
        self.home = home
        self.queue = queue
        self.id: str = task_id or message.id
        self.message = message
        self.token = token
        self.crashes = crashes
        self.lease_until = lease_until
        self.lease_score = lease_score
        self.lease_end = lease_score
        self.renewed = True
        self.size = 0
        self.phase = TAKEN
        self.started = 0.0
        self.started_at = 0.0
        self.deadline = float("inf")
        self.deadline_at: float | None = None
        self.cause: BaseException | None = None
        self.cancelled_at = 0.0
        self.lost = False
        self.overdue_reported = 0.0
        self.task: asyncio.Task[None] | None = None
        self.on_cancel: Callable[[Attempt], None] | None = None
        self.settled: asyncio.Future[bool | Exception] | None = None
        self.thread_id = 0
        self.threads = 0
        self.dropped_result = ""
        self.progress: ProgressReport | None = None
        self.progress_queued = False
        self.verdict: Verdict | None = None
        self._cancel_event: threading.Event | None = None

    @property
    def unique_key(self) -> str:
        """The message's, empty for none."""
        return self.message.unique_key

    def begin(self, *, monotonic: float, unix_time: float) -> None:
        """Start the attempt's time: its deadline is the earlier one of its timeout and its own deadline."""
        self.phase = RUNNING
        self.started = monotonic
        self.started_at = unix_time
        left: float = self.message.timeout
        deadline = self.message.deadline
        if deadline:
            until_deadline = deadline - unix_time
            left = min(left, until_deadline) if left > 0 else until_deadline
        elif left <= 0:
            left = DEFAULT_TIMEOUT_SECONDS
        self.deadline = monotonic + left
        at = unix_time + left
        # A peer that gives milliseconds for seconds asks for a time that no datetime can show.
        self.deadline_at = at if at < LAST_SECOND else LAST_SECOND

    def wait_to_begin(self) -> None:
        """Stop the time of an attempt that waits for its turn to run, until it begins anew."""
        at = self.message.deadline or None
        self.deadline_at = at
        self.deadline = float("inf") if at is None else self.started + at - self.started_at

    def has_lease(self, monotonic: float) -> bool:
        """Return whether the attempt may still write, as far as this process can tell."""
        return monotonic < self.lease_until

    def cancel(self, cause: BaseException, *, monotonic: float) -> bool:
        """Break the attempt off; return False when it has ended or is being cancelled already.

        A coroutine gets `CancelledError`. A thread cannot be stopped: it is told, and waited for.
        """
        if self.cause is not None or self.phase is Phase.SETTLING:
            return False
        # Before the cause: with that, the heartbeat's thread reads since when the attempt is overdue.
        self.cancelled_at = monotonic
        self.cause = cause
        if self._cancel_event is not None:
            self._cancel_event.set()
        # A task that is cancelled before its first step never takes one, and nobody would settle; one that
        # has not begun sees the cause when it does.
        if self.phase is Phase.RUNNING and self.task is not None:
            self.task.cancel()
        elif self.phase is Phase.RUNNING and self.on_cancel is not None:
            self.on_cancel(self)
        return True

    def cancel_event(self) -> threading.Event:
        """Return an event that is set when the attempt is being cancelled; for handler threads."""
        with _making_events:
            event = self._cancel_event
            if event is None:
                event = self._cancel_event = threading.Event()
        # The loop sets the cause before it looks for the event, so one of the two sides sees the other.
        if self.cause is not None:
            event.set()
        return event

    def progress_json(self) -> ProgressJson:
        """Return what the handler said last of its progress; empty for nothing."""
        report = self.progress
        if report is None:
            return NO_PROGRESS
        done, total, note, said_at = report
        at = datetime.fromtimestamp(self.started_at + said_at - self.started, UTC)
        return encode_progress(TaskProgress(done, total, note, at))

    def timeout_error(self) -> TaskTimeoutError:
        """Return the error for the end of its time: it says the limit, and where the handler stands."""
        thread_id = self.thread_id if self.threads else None
        return timeout_error(self.deadline - self.started, self.task, thread_id)

    def drop_payload(self) -> None:
        """Keep of a large message only what a context shows of it, once the attempt is settled.

        A timer that a handler has cancelled stays in the event loop until its time, and the context in which
        it was made with it: for an hour, if `asyncio.timeout(3600)` was written there.
        """
        # A consumer's attempt may be asked for its task later.
        if self.settled is None:
            message = self.message
            self.message = new_task_message(
                id=message.id,
                type=message.type,
                queue=message.queue,
                retry=message.retry,
                retried=message.retried,
                retention=message.retention,
                unique_key=message.unique_key,
                headers=dict(message.headers),
            )

    def overdue_seconds(self, monotonic: float) -> float:
        """Return how long ago the attempt should have ended; negative while its time is not over."""
        if self.phase is not RUNNING and self.phase is not ABANDONED:
            return float("-inf")
        since = min(self.deadline, self.cancelled_at) if self.cause is not None else self.deadline
        return monotonic - since


def expect_renewals(attempts: Iterable[Attempt], redis_seconds: int, lease: int) -> None:
    """Let claims that are made now hold although a renewal may overtake them on the way to Redis."""
    latest = redis_seconds + lease + LEASE_SCORE_MARGIN
    for attempt in attempts:
        if attempt.lease_score < latest:
            attempt.lease_score = latest
