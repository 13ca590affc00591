"""One run of one task: the value that goes through the engine from dequeue to settle."""

from __future__ import annotations

import enum
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from pyasynq._wire.messages import TaskMessage
    from pyasynq.context import Home

LEASE_SCORE_MARGIN = 20
"""Seconds by which claims name a later end of the lease than was ever asked for.

They cover renewals that are on their way and a wrong estimate of Redis' time, and are fewer than the 30 that
peers in Go wait after the end of a lease before they take a task.
"""

DEFAULT_TIMEOUT_SECONDS = 1_800
"""For a message with neither timeout nor deadline, which no client should have written."""


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


class Attempt:
    """One run of one task.

    Everything but the lease belongs to the event loop. The lease is moved forward by the heartbeat's
    thread and read by the loop; each of its two numbers is read and written in one step.

    Attributes:
        token: names the dequeue call that took the task; Redis holds it beside the task.
        lease_until: monotonic time at which the lease ends, counted from before the call that asked for it.
        lease_score: latest Unix time that this attempt may have asked for as the end of its lease.
        deadline: monotonic time at which the attempt is cut off, infinity for never.
        deadline_at: the same as Unix time, None for never.
        cause: why the attempt is being cancelled; it is the outcome, whatever the handler then does.
        cancelled_at: monotonic time of the first cancel.
        lost: whether Redis said that the task is somebody else's.
        threads: how many threads run handlers of this attempt right now; they keep it themselves.
    """

    __slots__ = (
        "__weakref__",
        "_cancel_event",
        "cancelled_at",
        "cause",
        "crashes",
        "deadline",
        "deadline_at",
        "home",
        "id",
        "lease_score",
        "lease_until",
        "lost",
        "message",
        "overdue_reported",
        "phase",
        "queue",
        "started",
        "started_at",
        "task",
        "threads",
        "token",
    )

    def __init__(
        self,
        home: Home,
        queue: str,
        message: TaskMessage,
        token: str,
        *,
        crashes: int = 0,
        lease_until: float = 0.0,
        lease_score: int = 0,
    ) -> None:
        self.home = home
        self.queue = queue
        self.id: str = message.id
        self.message = message
        self.token = token
        self.crashes = crashes
        self.lease_until = lease_until
        self.lease_score = lease_score
        self.phase = Phase.TAKEN
        self.started = 0.0
        self.started_at = 0.0
        self.deadline = float("inf")
        self.deadline_at: float | None = None
        self.cause: BaseException | None = None
        self.cancelled_at = 0.0
        self.lost = False
        self.overdue_reported = 0.0
        self.task: asyncio.Task[None] | None = None
        self.threads = 0
        self._cancel_event: threading.Event | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Queue and id: the same id may stand in two queues."""
        return self.queue, self.id

    def begin(self, *, monotonic: float, unix_time: float) -> None:
        """Start the attempt's time: its deadline is the earlier one of its timeout and its own deadline."""
        self.phase = Phase.RUNNING
        self.started = monotonic
        self.started_at = unix_time
        message = self.message
        left: float | None = message.timeout if message.timeout > 0 else None
        if message.deadline:
            until_deadline = message.deadline - unix_time
            left = until_deadline if left is None else min(left, until_deadline)
        if left is None:
            left = DEFAULT_TIMEOUT_SECONDS
        self.deadline = monotonic + left
        self.deadline_at = unix_time + left

    def has_lease(self, monotonic: float) -> bool:
        """Return whether the attempt may still write, as far as this process can tell."""
        return monotonic < self.lease_until

    def expect_renewals(self, redis_seconds: int, lease: int) -> None:
        """Let claims that are made now hold although a renewal may overtake them on the way to Redis."""
        self.lease_score = max(self.lease_score, redis_seconds + lease + LEASE_SCORE_MARGIN)

    def cancel(self, cause: BaseException, *, monotonic: float) -> bool:
        """Break the attempt off; return False when it has ended or is being cancelled already.

        A coroutine gets `CancelledError`. A thread cannot be stopped: it is told, and waited for.
        """
        if self.cause is not None or self.phase is Phase.SETTLING:
            return False
        self.cause = cause
        self.cancelled_at = monotonic
        if self._cancel_event is not None:
            self._cancel_event.set()
        # A task that is cancelled before its first step never takes one, and nobody would settle; one that
        # has not begun sees the cause when it does.
        if self.phase is Phase.RUNNING and self.task is not None:
            self.task.cancel()
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

    def overdue_seconds(self, monotonic: float) -> float:
        """Return how long ago the attempt should have ended; negative while its time is not over."""
        if self.phase not in {Phase.RUNNING, Phase.ABANDONED}:
            return float("-inf")
        since = min(self.deadline, self.cancelled_at) if self.cause is not None else self.deadline
        return monotonic - since
