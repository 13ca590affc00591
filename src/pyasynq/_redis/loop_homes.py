"""State that an object for asyncio keeps for each event loop: one home per living loop of this process."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_H = TypeVar("_H")


class LoopHomes(Generic[_H]):
    """Finds the home of the running event loop, and makes it at the first call.

    Threads with a loop each may share the object. The homes of loops that were closed are let go when another
    loop comes, and all of them after a fork.

    Args:
        make: makes a home for the running loop.
        let_go: told of a home whose loop does not run any more, or runs in the parent process.
    """

    def __init__(self, make: Callable[[], _H], let_go: Callable[[_H], object]) -> None:
        self._make = make
        self._let_go = let_go
        self._pid = os.getpid()
        self._homes: dict[asyncio.AbstractEventLoop, _H] = {}

    def here(self) -> _H:
        """Return the home of the running loop."""
        loop = asyncio.get_running_loop()
        home = self._homes.get(loop)
        if home is None or self._pid != os.getpid():
            self._forget_ended()
            home = self._homes[loop] = self._make()
        return home

    def own(self) -> _H | None:
        """Return the home of the running loop if there is one."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        return self._homes.get(loop) if self._pid == os.getpid() else None

    def all(self) -> list[_H]:
        """Return the homes of all loops."""
        return list(self._homes.values())

    def others(self) -> list[_H]:
        """Return the homes of all loops except the running one."""
        own = self.own()
        return [home for home in self.all() if home is not own]

    def forget(self) -> None:
        """Forget all homes; the next call makes a new one."""
        self._homes = {}

    def _forget_ended(self) -> None:
        is_forked = self._pid != os.getpid()
        for loop in list(self._homes):
            if is_forked or loop.is_closed():
                home = self._homes.pop(loop, None)
                if home is not None:
                    self._let_go(home)
        self._pid = os.getpid()
