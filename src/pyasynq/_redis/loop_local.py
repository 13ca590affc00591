"""Loop-local state: one value for each living event loop of this process."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_V = TypeVar("_V")

_forks = 0
"""Number of forks since the first process: it detects a fork without the system call for the process id."""


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 - written in the child before anything else runs
    _forks += 1


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_count_fork)


class LoopLocal(Generic[_V]):
    """A value for each event loop, made at its first use.

    Threads with a loop each may share the object. When a value for another loop is made, values of closed
    loops are released and, after a fork, all values of the parent process.

    Args:
        make: makes the value for the running loop.
        release: called with a value whose loop has been closed, or belongs to the parent process.
    """

    def __init__(self, make: Callable[[], _V], release: Callable[[_V], object]) -> None:
        self._make = make
        self._release = release
        self._forks = _forks
        self._values: dict[asyncio.AbstractEventLoop, _V] = {}

    def here(self) -> _V:
        """Return the value of the running loop; make it if there is none."""
        loop = asyncio.get_running_loop()
        value = self._values.get(loop)
        if value is None or self._forks != _forks:
            self._forget_ended()
            value = self._values[loop] = self._make()
        return value

    def own(self) -> _V | None:
        """Return the value of the running loop; None without a value or a running loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        return self._values.get(loop) if self._forks == _forks else None

    def all(self) -> list[_V]:
        """Return the values of all loops."""
        return list(self._values.values())

    def others(self) -> list[_V]:
        """Return the values of all loops except the running one."""
        own = self.own()
        return [value for value in self.all() if value is not own]

    def forget(self) -> None:
        """Forget all values without releasing them; `here` then makes new ones."""
        self._values = {}

    def _forget_ended(self) -> None:
        is_forked = self._forks != _forks
        for loop in list(self._values):
            if is_forked or loop.is_closed():
                value = self._values.pop(loop, None)
                if value is not None:
                    self._release(value)
        self._forks = _forks
