"""Being told by Redis that a queue has changed, where it can do that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.key_watcher import Watcher


class WakeUp:
    """Passes on what Redis reports. Where Redis cannot report changes, or while it is away, services poll."""

    def __init__(self, make_watcher: Callable[[Callable[[str], object]], Watcher]) -> None:
        self._listeners: list[Callable[[str], None]] = []
        self._watcher = make_watcher(self._report)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each key that has changed."""
        self._listeners.append(listener)

    async def watch(self, *keys: str) -> bool:
        """Have the next change of each key reported; return whether it will be."""
        return await self._watcher.arm(*keys)

    def forget(self, *keys: str) -> None:
        """Report no more changes of these keys."""
        self._watcher.forget(*keys)

    def exists(self, key: str) -> bool:
        """Return whether a watched key was there when its watch was confirmed."""
        return self._watcher.exists(key)

    async def close(self) -> None:
        """Stop watching."""
        await self._watcher.close()

    def _report(self, key: str) -> None:
        for listener in self._listeners:
            listener(key)
