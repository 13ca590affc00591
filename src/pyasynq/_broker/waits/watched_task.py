"""An awaited task: its waiters, its known state, and the time of the next check."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.waits.endings import ENDS, build_not_kept_error, classify_missing
from pyasynq.errors import RedisTLSError, RedisUnavailableError, ReplyLostError
from pyasynq.task import FinishedTask

if TYPE_CHECKING:
    import asyncio

    from pyasynq._broker.waits.endings import TaskCheck

_SAFETY_POLL: Final = 1.0
_POLL_GRID: Final = 0.25
_FREE_CHANGES: Final = 10
_CHANGE_GAP: Final = 0.05
"""Seconds between two checks of a task that has changed often, such as by progress reports."""
_FIRST_POLL: Final = 0.05
_POLL_GROWTH: Final = 1.5
"""Factor by which the poll interval grows (back-off) up to the safety poll, if Redis pushes no changes."""


class Waiter(NamedTuple):
    """One call that waits for the end of a task, or for its result, which may become impossible earlier."""

    ended: asyncio.Future[FinishedTask]
    checked: asyncio.Future[None]
    for_result: bool


class WatchedTask:
    """A task that is being waited for. Used by one event loop.

    Attributes:
        retention: seconds for which it is kept after success; None before it has been found.
        seen: monotonic time at which it was last seen and had not ended.
        due: monotonic time of the next check.
        rest: poll interval in seconds: the time between checks if no push comes.
        checked: monotonic time at which the last check began.
        trouble: the error of the last check; None if it succeeded.
    """

    __slots__ = (
        "_changes",
        "checked",
        "due",
        "id",
        "key",
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
        self.checked = 0.0
        self._changes = 0
        self.rest = _FIRST_POLL
        self.trouble: Exception | None = None

    def note_check(self, seen: TaskCheck, began: float) -> None:
        """Record a check that began at this monotonic time; end the waits if the task has ended.

        Waits for its result also end if the task has no retention, so that no result can come.
        """
        self.trouble = None
        if seen.info is not None:
            self.retention = seen.info.retention.total_seconds()
            end = ENDS.get(seen.info.state)
            if end is not None:
                self._end(FinishedTask(self.queue, self.id, end, seen.info))
                return
        if not seen.exists:
            end = classify_missing(self.retention, time.monotonic() - self.seen)
            self._end(FinishedTask(self.queue, self.id, end, None))
            return
        self.seen = began
        for waiter in self.waiters:
            if waiter.for_result and self.retention == 0 and not waiter.ended.done():
                waiter.ended.set_exception(build_not_kept_error(self.queue, self.id, 0))

    def note_error(self, error: Exception) -> None:
        """Record the error of a check; a permanent one ends the waits."""
        self.trouble = error
        passes = isinstance(error, RedisUnavailableError | ReplyLostError)
        if passes and not isinstance(error, RedisTLSError):
            return
        for waiter in self.waiters:
            if not waiter.ended.done():
                waiter.ended.set_exception(error)

    def note_change(self, now: float) -> float:
        """Record a change; return when to check: at once, unless the task changes all the time."""
        self._changes += 1
        return now if self._changes <= _FREE_CHANGES else max(now, self.checked + _CHANGE_GAP)

    def next_poll(self, checked: float, *, told: bool) -> float:
        """Return when to poll next (monotonic), after a check that began at `checked`.

        `told` says that Redis pushes changes: then the polls of many tasks are aligned. Otherwise each call
        lengthens the poll interval (exponential back-off).
        """
        if told:
            self.rest = _FIRST_POLL
            return (checked + _SAFETY_POLL) // _POLL_GRID * _POLL_GRID
        rest, self.rest = self.rest, min(self.rest * _POLL_GROWTH, _SAFETY_POLL)
        return checked + rest

    def _end(self, task: FinishedTask) -> None:
        for waiter in self.waiters:
            if not waiter.ended.done():
                waiter.ended.set_result(task)
