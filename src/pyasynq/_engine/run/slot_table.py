"""The attempts that hold a slot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq._engine.run.attempt import Attempt


class RunningAttempts:
    """Attempts in the order in which they were started. All of it belongs to the event loop."""

    __slots__ = ("_attempts", "_idle_waiters")

    def __init__(self) -> None:
        self._attempts: dict[Attempt, None] = {}
        self._idle_waiters: list[asyncio.Future[None]] = []

    def add(self, attempt: Attempt) -> None:
        """Give an attempt a slot."""
        self._attempts[attempt] = None

    def remove(self, attempt: Attempt) -> None:
        """Free an attempt's slot, if it has one."""
        self._attempts.pop(attempt, None)
        if not self._attempts:
            for waiter in self._idle_waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no attempt holds a slot, at most so many seconds; return whether that is so."""
        if not self._attempts:
            return True
        idle = asyncio.get_running_loop().create_future()
        self._idle_waiters.append(idle)
        await asyncio.wait({idle}, timeout=seconds)
        self._idle_waiters.remove(idle)
        return not self._attempts

    def __contains__(self, attempt: object) -> bool:
        return attempt in self._attempts

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._attempts)

    def __len__(self) -> int:
        return len(self._attempts)
