"""Being told by Redis that a queue has changed, where it can do that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyasynq.errors import RedisError

if TYPE_CHECKING:
    from collections.abc import Callable


class KeyWatcher(Protocol):
    """What this needs of `_broker.wakeup.Watcher`."""

    @property
    def supported(self) -> bool:
        """Whether this server reports changes."""

    async def arm(self, key: str) -> None:
        """Have the next change of a key reported."""

    async def close(self) -> None:
        """Close the connection."""


class WakeUp:
    """Passes on what Redis reports. Without a watcher, or while it fails, nothing is watched and services poll."""

    def __init__(self, make_watcher: Callable[[Callable[[str], None]], KeyWatcher] | None) -> None:
        self._listeners: list[Callable[[str], None]] = []
        self._watcher = make_watcher(self._report) if make_watcher is not None else None

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each key that has changed."""
        self._listeners.append(listener)

    async def watch(self, *keys: str) -> bool:
        """Have the next change of each key reported; return whether it will be."""
        watcher = self._watcher
        if watcher is None or not watcher.supported:
            return False
        try:
            for key in keys:
                await watcher.arm(key)
        except RedisError:
            # The caller looks again before long, and arms again then.
            return False
        return watcher.supported

    async def close(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            await self._watcher.close()

    def _report(self, key: str) -> None:
        for listener in self._listeners:
            listener(key)
