"""Estimate of Redis' clock between two replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._clock import Instant, SystemClock

if TYPE_CHECKING:
    from pyasynq._clock import Clock


class RedisTime:
    """Redis' clock, carried forward by this process' monotonic clock.

    Used for times inside messages and for scores that a server computes, so that hosts with wrong clocks do
    no harm. Reading and updating are safe from any thread.
    """

    __slots__ = ("_ahead", "_clock", "_is_estimated")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_estimated = type(clock).redis_now is SystemClock.redis_now
        """Whether Redis' time is estimated; False if a test's clock gives it. Stored for fast reads."""
        self._ahead = clock.now().timestamp - clock.monotonic()

    def learn(self, redis_now: Instant) -> None:
        """Correct the estimate by Redis' time in a reply that has just arrived."""
        self._ahead = redis_now.timestamp - self._clock.monotonic()

    def timestamp(self, monotonic: float) -> float:
        """Return the estimated Unix time in seconds that corresponds to a recent monotonic time.

        A test's clock answers instead if there is one.
        """
        if self._is_estimated:
            return monotonic + self._ahead
        given = self._clock.redis_now()
        return monotonic + self._ahead if given is None else given.timestamp

    def now(self) -> Instant:
        """Return the estimated current time of Redis; a test's clock answers instead if there is one."""
        given = self._clock.redis_now()
        if given is not None:
            return given
        return Instant.from_timestamp(self._clock.monotonic() + self._ahead)
