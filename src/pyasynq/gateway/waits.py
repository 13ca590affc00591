"""Waits of requests, such as long polls, which are cancelled when their instance shuts down."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

_T = TypeVar("_T")


class WaitEndedError(Exception):
    """Error: the instance shuts down, so the wait has ended."""


class Waits:
    """Waits of one instance. Belongs to one event loop."""

    def __init__(self) -> None:
        self._scopes: set[asyncio.Timeout] = set()
        """Timeout scopes without a deadline, one for each waiting request; `end` lets all of them expire."""
        self.is_ending = False

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._scopes)

    async def run(self, wait: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a wait.

        Raises:
            WaitEndedError: `end` was called; the wait was cancelled, or has not begun.
        """
        if self.is_ending:
            wait.close()
            raise WaitEndedError
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._scopes.add(scope)
                return await wait
        except TimeoutError:
            if not scope.expired():
                raise
            raise WaitEndedError from None
        finally:
            self._scopes.discard(scope)

    def end(self) -> None:
        """End all waits, and refuse new waits."""
        self.is_ending = True
        now = asyncio.get_running_loop().time()
        for scope in self._scopes:
            scope.reschedule(now)
