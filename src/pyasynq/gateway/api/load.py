"""Load shedding: an overloaded instance refuses requests before it starts to work on them."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyasynq.web.api.problem import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TICK_SECONDS: Final = 0.05
_LAG_SECONDS: Final = 0.1
"""Seconds of delay from which a tick of the timer counts as late."""
_LATE_TICKS: Final = 3
"""Number of consecutive late ticks that count as overload; a single one may be a pause of the machine."""


class LoopLag:
    """Lag of the event loop, measured by a timer (one callback every 50 ms). Belongs to one event loop."""

    def __init__(self) -> None:
        self._lags: deque[float] = deque(maxlen=_LATE_TICKS)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_overloaded(self) -> bool:
        """Whether several ticks in a row came more than 100 ms late."""
        return len(self._lags) == _LATE_TICKS and min(self._lags) > _LAG_SECONDS

    def start(self) -> None:
        """Start the timer. Idempotent."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            due = loop.time() + _TICK_SECONDS
            self._timer = loop.call_at(due, self._tick, loop, due)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, lag: float) -> None:
        """Record how late one tick of the timer was, in seconds."""
        self._lags.append(lag)

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self.note(now - due)
        due = now + _TICK_SECONDS
        self._timer = loop.call_at(due, self._tick, loop, due)


class LoadGate:
    """Admission control of one instance: refuses requests above a limit, or when the event loop lags.

    Args:
        max_inflight: number of requests processed at once; waiting requests (long polls) do not count.
        count_waiting: returns how many of the requests in `inflight` only wait (long polls).
    """

    def __init__(self, max_inflight: int, count_waiting: Callable[[], int]) -> None:
        self._max_inflight = max_inflight
        self._count_waiting = count_waiting
        self.lag = LoopLag()
        self.inflight = 0
        """Number of requests in progress: received and not yet answered.

        Lease requests that wait for tasks are not counted.
        """

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count a request as in flight while a block runs, without a check for overload."""
        self.inflight += 1
        try:
            yield
        finally:
            self.inflight -= 1

    @contextmanager
    def admitting(self) -> Iterator[None]:
        """Count a request as in flight while a block runs. Raises `ProblemError` on overload."""
        with self.counting():
            self.check()
            yield

    def check(self, *, is_urgent: bool = False) -> None:
        """Raise `ProblemError` if the instance is too busy for a request that `counting` has counted.

        Args:
            is_urgent: whether the request ends work (such as a settle), so that it is accepted even while
                the event loop lags.
        """
        if self.inflight - self._count_waiting() > self._max_inflight:
            raise _refuse("Too many requests are worked on here.")
        if self.lag.is_overloaded and not is_urgent:
            raise _refuse("This instance is busy.")


def _refuse(detail: str) -> ProblemError:
    remedy = "Nothing was done: send it again after Retry-After."
    return ProblemError(503, "overloaded", detail, remedy, headers={"Retry-After": "1"})
