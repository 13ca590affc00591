"""An interruptible pause between two rounds of a service."""

from __future__ import annotations

import asyncio
import math


class Rest:
    """An interruptible sleep. A wake-up while nothing sleeps ends the next sleep at once, and only that."""

    __slots__ = ("_sleeper", "is_woken")

    def __init__(self) -> None:
        self._sleeper: asyncio.Future[None] | None = None
        self.is_woken = False
        """Whether a wake-up has ended the current sleep, or will end the next one; read-only for others."""

    def wake(self) -> None:
        """End the current sleep, or the next one."""
        self.is_woken = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def clear(self) -> None:
        """Forget a wake-up that has not ended a sleep."""
        self.is_woken = False

    async def sleep(self, seconds: float) -> None:
        """Sleep for this many seconds, possibly infinite, or until `wake`. Cancellation ends it."""
        if self.is_woken or seconds <= 0:
            # Other tasks of the loop get their turn even without a sleep.
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
