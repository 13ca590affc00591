"""Resting: what a service does between two rounds, and after rounds that failed."""

from __future__ import annotations

import asyncio
import math
import random


class Bell:
    """Ends a rest. Ringing it beforehand makes the next rest end at once; any ring is heard by one rest."""

    __slots__ = ("_rung", "_sleeper")

    def __init__(self) -> None:
        self._rung = False
        self._sleeper: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """End the rest that is going on, or the next one."""
        self._rung = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def silence(self) -> None:
        """Forget rings that nobody has heard."""
        self._rung = False

    async def rest(self, seconds: float) -> None:
        """Wait so many seconds, infinity included, or until the bell rings. Cancellation ends it."""
        if self._rung or seconds <= 0:
            # The other tasks of the loop get their turn even when there is no rest at all.
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        self._sleeper = loop.create_future()
        alarm = None if math.isinf(seconds) else loop.call_later(seconds, self._wake_up, self._sleeper)
        try:
            await self._sleeper
        finally:
            self._sleeper = None
            if alarm is not None:
                alarm.cancel()

    @staticmethod
    def _wake_up(sleeper: asyncio.Future[None]) -> None:
        if not sleeper.done():
            sleeper.set_result(None)


class Backoff:
    """Growing, jittered rests after failures in a row, so that a fleet does not come back in step."""

    __slots__ = ("_failures", "_first", "_most")

    def __init__(self, first: float = 0.1, most: float = 5.0) -> None:
        self._first = first
        self._most = most
        self._failures = 0

    def next(self) -> float:
        """Return how many seconds to rest after one more failure."""
        longest = min(self._most, self._first * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing

    def reset(self) -> None:
        """Begin anew after a success."""
        self._failures = 0
