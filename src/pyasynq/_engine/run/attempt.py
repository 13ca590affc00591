"""Attempts: one run of one task, passed through the engine from dequeue to settle."""

from __future__ import annotations

import enum
import math
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyasynq._background.code_places import build_timeout_error
from pyasynq._clock import LAST_SECOND
from pyasynq._wire.history import NO_PROGRESS, encode_progress
from pyasynq._wire.messages import new_task_message
from pyasynq.options import DEFAULT_TIMEOUT_SECONDS
from pyasynq.task import TaskProgress

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from pyasynq._broker.verdicts import Verdict
    from pyasynq._engine.tally import TypeCells
    from pyasynq._wire.history import ProgressJson, ProgressReport
    from pyasynq._wire.messages import TaskMessage
    from pyasynq.context import Home
    from pyasynq.errors import TaskTimeoutError

LEASE_SCORE_MARGIN = 20
"""Safety margin in seconds: a claim names a lease end that is this much later than expected.

It covers renewals in flight and a wrong estimate of Redis' time. It is less than the 30 seconds that Asynq
servers wait after the end of a lease before they recover a task.
"""

LARGE_BYTES: Final = 4_096
"""Size in bytes from which the payload of a settled attempt is dropped.

Copying the other fields of a smaller message costs more than it frees.
"""

LONGEST_NANOSECONDS: Final = 20
"""Largest number of digits of a Unix time in nanoseconds: a longer one is beyond the year 5000."""

_making_events = threading.Lock()


class Phase(enum.Enum):
    """State of an attempt."""

    TAKEN = "taken"
    """Dequeued; its handler has not started."""
    RUNNING = "running"
    SETTLING = "settling"
    """Ended; its outcome is decided and not yet confirmed by Redis."""
    ABANDONED = "abandoned"
    """The handler outlived its server, inside a program that continues."""


# Constants, because Python 3.11 is slow to look up a member of an enum.
TAKEN: Final = Phase.TAKEN
RUNNING: Final = Phase.RUNNING
SETTLING: Final = Phase.SETTLING
ABANDONED: Final = Phase.ABANDONED


class Attempt:
    """One run of one task. Written and read by the event loop only, unless a field says otherwise.

    Attributes:
        id: id of the task, as in the queue's lists; by default the id in the message.
        unique_key: key of the task's lock; empty for none.
        token: token of the dequeue call that took the task (fencing token); Redis stores it with the task.
        lease_until: monotonic time at which the lease ends, counted from before the call that asked for it.
            Written by the heartbeat's thread, or by the loop if the attempt is not renewed; read by both.
        lease_score: latest Unix time that may have been requested as the end of the lease. Increased by
            `expect_renewals`, on the loop and in the heartbeat's thread, before each call with a claim.
        lease_end: Unix time at which the lease ends in Redis, by its last reply. Written with `lease_until`,
            read by the loop.
        renewed: whether the heartbeat renews the lease; otherwise only its holder extends it.
        phase: the attempt's state. RUNNING is written by `begin`, SETTLING by the code that hands the attempt
            to the settle queue, ABANDONED by the shutdown. Also read by the heartbeat's thread.
        deadline: monotonic time at which the attempt is cancelled; infinity for never.
        deadline_at: the deadline as Unix time; None for never.
        cause: why the attempt is being cancelled. It decides the outcome, regardless of what the handler then
            does. Also read by handler threads.
        cancelled_at: monotonic time of the first cancel; 0 before it, and if the handler may not start.
        lost: whether a reply of Redis showed that another worker has the task.
        overdue_reported: seconds past its deadline when it was last reported as overdue.
        task: asyncio task that runs the handler; None before and after. Written by the runner.
        on_cancel: called when a running attempt without an asyncio task is cancelled.
        settled: future of the settle: whether the outcome was written, or the error.
        verdict: how a leased attempt ended, once it is settled; None for the attempts of workers.
        size: size of the message, in bytes; 0 if no setting needs it.
        pending_since: time at which the task became pending, as text from Redis: Unix time in nanoseconds.
            None if that is not known, as after a lost reply. Written once by the intake.
        cells: counters of the queue, in which the end of the attempt is counted; None if nothing counts it.
            Written once by the intake.
        started: monotonic time at which it began; before the start, the time at which it was taken.
        started_at: Unix time at which it began.
        thread_id: id of the thread that has run a handler of this attempt last; 0 for none. Written by that
            thread, read by the loop.
        threads: number of threads that run handlers of this attempt now. Written by `HandlerThreads` under
            its lock, read by the loop.
        dropped_result: why the handler's result is not stored; empty if it is. Written by the handler's
            thread, read when the attempt is concluded.
        progress: the handler's last progress report. Replaced by any thread of the handler, read by the loop.
        progress_queued: whether the report is queued for the service that writes it. Set by the thread that
            wrote `progress`, cleared by the loop before it reads that.
    """

    __slots__ = (
        "__weakref__",
        "_cancel_event",
        "cancelled_at",
        "cause",
        "cells",
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
        "pending_since",
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
        "unique_key",
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
        self.unique_key: str = message.unique_key
        self.token = token
        self.crashes = crashes
        self.lease_until = lease_until
        self.lease_score = lease_score
        self.lease_end = lease_score
        self.renewed = True
        self.size = 0
        self.pending_since: bytes | None = None
        self.cells: TypeCells | None = None
        self.phase = TAKEN
        self.started = 0.0
        self.started_at = 0.0
        self.deadline = math.inf
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

    def begin(self, *, monotonic: float, unix_time: float) -> None:
        """Start the attempt, which ends at its timeout or at the task's deadline, whichever is earlier."""
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
        # A peer that wrote milliseconds for seconds asks for a time beyond the range of datetime.
        self.deadline_at = at if at < LAST_SECOND else LAST_SECOND

    def wait_to_begin(self) -> None:
        """Suspend the timeout of an attempt while it waits for a slot; its task's deadline still applies."""
        at = self.message.deadline or None
        self.deadline_at = at
        self.deadline = math.inf if at is None else self.started + at - self.started_at

    @property
    def waited(self) -> float | None:
        """Seconds from pending to the start of the handler; None if unknown, or before the start.

        The result is 0 if the producer's clock was ahead of Redis' clock.
        """
        since = self.pending_since
        if since is None or not self.started_at:
            return None
        # Any program may have written this text, and a very long number would take long to parse.
        if len(since) > LONGEST_NANOSECONDS or not since.isdigit():
            return None
        return max(0.0, self.started_at - int(since) / 1_000_000_000)

    def has_lease(self, monotonic: float) -> bool:
        """Return whether the lease is valid, as far as this process knows."""
        return monotonic < self.lease_until

    def cancel(self, cause: BaseException, *, monotonic: float) -> bool:
        """Cancel the attempt; return False when it has ended or is already being cancelled.

        A coroutine gets `CancelledError`. A thread cannot be stopped: it is notified and awaited.
        """
        if self.cause is not None or self.phase is Phase.SETTLING:
            return False
        # Set before the cause: the heartbeat's thread reads both to compute how long the attempt is overdue.
        self.cancelled_at = monotonic
        self.cause = cause
        if self._cancel_event is not None:
            self._cancel_event.set()
        # A task that is cancelled before its first step never runs, so the attempt would not be settled.
        # An attempt that has not started reads the cause when it does.
        if self.phase is Phase.RUNNING and self.task is not None:
            self.task.cancel()
        elif self.phase is Phase.RUNNING and self.on_cancel is not None:
            self.on_cancel(self)
        return True

    def cancel_event(self) -> threading.Event:
        """Return the event, for handler threads, that is set when the attempt is being cancelled."""
        with _making_events:
            event = self._cancel_event
            if event is None:
                event = self._cancel_event = threading.Event()
        # The loop sets the cause before it reads the event, so one of the two sides always sets it.
        if self.cause is not None:
            event.set()
        return event

    def progress_json(self) -> ProgressJson:
        """Return the handler's last progress report; empty for none."""
        report = self.progress
        if report is None:
            return NO_PROGRESS
        done, total, note, said_at = report
        at = datetime.fromtimestamp(self.started_at + said_at - self.started, UTC)
        return encode_progress(TaskProgress(done, total, note, at))

    def build_timeout_error(self) -> TaskTimeoutError:
        """Return the timeout error of this attempt, with the limit and the handler's current line."""
        thread_id = self.thread_id if self.threads else None
        error = build_timeout_error(self.deadline - self.started, self.task, thread_id)
        error.is_deadline = self._ends_by_deadline
        return error

    @property
    def _ends_by_deadline(self) -> bool:
        """Whether the task's deadline ends the attempt before its timeout does."""
        timeout, deadline = self.message.timeout, self.message.deadline
        return bool(deadline) and not 0 < timeout < deadline - self.started_at

    def drop_payload(self) -> None:
        """Drop the payload of a settled attempt, and other fields that a context does not show.

        This frees memory. A timer that a handler has cancelled stays in the event loop until its time, and
        keeps the context in which it was made. With `asyncio.timeout(3600)` that is an hour.
        """
        # The task of a consumer's attempt may be read later.
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
        """Return the seconds since the attempt should have ended; negative before that.

        If the time ended before the handler could start, the seconds are counted from the start.
        """
        if self.phase is not RUNNING and self.phase is not ABANDONED:
            return -math.inf
        since = min(self.deadline, self.cancelled_at) if self.cause is not None else self.deadline
        return monotonic - max(self.started, since)


def expect_renewals(attempts: Iterable[Attempt], redis_seconds: int, lease: int) -> None:
    """Raise each attempt's `lease_score` to the lease end that a renewal sent now would set.

    A claim sent now then stays valid, even if a renewal reaches Redis before it.
    """
    latest = redis_seconds + lease + LEASE_SCORE_MARGIN
    for attempt in attempts:
        if attempt.lease_score < latest:
            attempt.lease_score = latest
