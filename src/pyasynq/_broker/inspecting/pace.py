"""Adaptive chunk size: the number of positions in one call, from the duration of earlier calls."""

from __future__ import annotations

from typing import Final

_SHORTEST: Final = 0.004
"""Duration of a call in seconds, without the network's share, below which the next call reads more."""
_LONGEST: Final = 0.008
"""Duration in seconds above which the next call reads less; no call is to keep Redis busy for 10 ms."""
_LEAST: Final = 50
_MOST: Final = 250
"""Largest number of positions in a call: 250 ordinary tasks take Redis about 2.4 ms.

A payload of 5 MB takes 4 ms more.
"""
_FIRST: Final = 100


class ChunkPace:
    """Adaptive number of positions in one call: doubled after a short call, halved after a long one.

    The shortest call so far counts as the network's share, so a distant Redis does not make chunks
    small. Written and read by the walks of one inspector.
    """

    def __init__(self) -> None:
        self.size = _FIRST
        self._network = 1.0

    def note(self, seconds: float) -> None:
        """Adapt the chunk size to the duration of a call."""
        self._network = min(self._network, seconds)
        busy = seconds - self._network
        if busy > _LONGEST:
            self.size = max(_LEAST, self.size // 2)
        elif busy < _SHORTEST:
            self.size = min(_MOST, self.size * 2)
