"""A task that is waited for: who waits, what is known of it, and when it is to be looked at."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.waits.endings import ENDS, end_of_missing, not_kept
from pyasynq.errors import RedisTLSError, RedisUnavailableError, ReplyLostError
from pyasynq.task import FinishedTask

if TYPE_CHECKING:
    import asyncio

    from pyasynq._broker.waits.endings import Look

_SAFETY_POLL: Final = 1.0
_POLL_GRID: Final = 0.25
_FREE_CHANGES: Final = 10
_CHANGE_GAP: Final = 0.05
"""Seconds between two looks at a task that has changed more often than that, as by reports of progress."""
_FIRST_POLL: Final = 0.05
_POLL_GROWTH: Final = 1.5
"""Where Redis does not tell of changes, polls come further and further apart, up to the safety poll."""


class Waiter(NamedTuple):
    """One call that waits: for the end of a task, or for its result, which may be out of reach before."""

    ended: asyncio.Future[FinishedTask]
    looked: asyncio.Future[None]
    for_result: bool


class WatchedTask:
    """A task that is waited for.

    Attributes:
        retention: seconds that it is kept after success; None before it has been found.
        seen: monotonic time at which it was last there and had not ended.
        due: monotonic time of the next look.
        rest: seconds until the look after that, without a push.
        looked: monotonic time at which the last look began.
        trouble: why the last look failed.
    """

    __slots__ = (
        "_changes",
        "due",
        "id",
        "key",
        "looked",
        "queue",
        "rest",
        "retention",
        "seen",
        "trouble",
        "waiters",
    )

    def __init__(self, queue: str, task_id: str, key: str) -> None:
        self.queue = queue
        self.id = task_id
        self.key = key
        self.waiters: list[Waiter] = []
        self.retention: float | None = None
        self.seen = 0.0
        self.due = math.inf
        self.looked = 0.0
        self._changes = 0
        self.rest = _FIRST_POLL
        self.trouble: Exception | None = None

    def found(self, seen: Look, began: float) -> None:
        """Take what a look has found; it began at this monotonic time."""
        self.trouble = None
        if seen.info is not None:
            self.retention = seen.info.retention.total_seconds()
            end = ENDS.get(seen.info.state)
            if end is not None:
                self._end(FinishedTask(self.queue, self.id, end, seen.info))
                return
        if not seen.exists:
            end = end_of_missing(self.retention, time.monotonic() - self.seen)
            self._end(FinishedTask(self.queue, self.id, end, None))
            return
        self.seen = began
        for waiter in self.waiters:
            if waiter.for_result and self.retention == 0 and not waiter.ended.done():
                waiter.ended.set_exception(not_kept(self.queue, self.id, 0))

    def failed(self, error: Exception) -> None:
        """Take the error of a look: one that will not pass by itself ends the waits."""
        self.trouble = error
        passes = isinstance(error, RedisUnavailableError | ReplyLostError)
        if passes and not isinstance(error, RedisTLSError):
            return
        for waiter in self.waiters:
            if not waiter.ended.done():
                waiter.ended.set_exception(error)

    def changed(self, now: float) -> float:
        """Return when to look after a change: at once, unless the task changes all the time."""
        self._changes += 1
        return now if self._changes <= _FREE_CHANGES else max(now, self.looked + _CHANGE_GAP)

    def next_poll(self, looked: float, *, told: bool) -> float:
        """Return when to look again without a push, after a look that began at a monotonic time.

        Where pushes are to be expected, polls of many tasks fall together.
        """
        if told:
            self.rest = _FIRST_POLL
            return (looked + _SAFETY_POLL) // _POLL_GRID * _POLL_GRID
        rest, self.rest = self.rest, min(self.rest * _POLL_GROWTH, _SAFETY_POLL)
        return looked + rest

    def _end(self, task: FinishedTask) -> None:
        for waiter in self.waiters:
            if not waiter.ended.done():
                waiter.ended.set_result(task)
