"""What time it is on Redis, as far as a server can tell between two replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._clock import Instant

if TYPE_CHECKING:
    from pyasynq._clock import Clock


class RedisTime:
    """Redis' clock, carried forward by this process' monotonic clock.

    Used for times that must stand inside a message and for scores that a server computes, so that hosts
    with wrong clocks do no harm. Reading and updating are safe from any thread.
    """

    __slots__ = ("_ahead", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = clock.now().timestamp - clock.monotonic()

    def learn(self, redis_now: Instant) -> None:
        """Take over the time of a reply that has just arrived."""
        self._ahead = redis_now.timestamp - self._clock.monotonic()

    def timestamp(self, monotonic: float) -> float:
        """Return the estimate for the present, a monotonic time, as Unix time in seconds.

        With a clock of a test it is what that clock says.
        """
        given = self._clock.redis_now()
        return monotonic + self._ahead if given is None else given.timestamp

    def now(self) -> Instant:
        """Return the estimate; with a clock of a test, what that clock says."""
        given = self._clock.redis_now()
        if given is not None:
            return given
        return Instant.from_timestamp(self._clock.monotonic() + self._ahead)
