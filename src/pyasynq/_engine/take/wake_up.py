"""Being told by Redis that a queue has changed, where it can do that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.key_watcher import Watcher

    Listener = Callable[[str], object]


class WakeUp:
    """Passes on what Redis reports. Where Redis cannot report changes, or while it is away, services poll."""

    def __init__(self, make_watcher: Callable[[Listener, Listener], Watcher]) -> None:
        self._on_change: Listener = lambda _: None
        self._on_loss: Listener = lambda _: None
        self._watcher = make_watcher(self._changed, self._lost)

    def listen(self, on_change: Listener, on_loss: Listener) -> None:
        """Have each key told that has changed, and each whose changes may have been missed."""
        self._on_change, self._on_loss = on_change, on_loss

    async def watch(self, *keys: str) -> bool:
        """Have the next change of each key reported; return whether it will be.

        A key that is watched costs nothing. One whose change was not reported must be forgotten first.
        """
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

    def _changed(self, key: str) -> None:
        self._on_change(key)

    def _lost(self, key: str) -> None:
        self._on_loss(key)
