"""Rate limit of attempts for each key, such as an address (sliding window in memory)."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_MOST_KEYS: Final = 10_000


class RateLimit:
    """Sliding-window rate limit of attempts for each key, in the memory of this process.

    Args:
        tries: number of attempts allowed in the period.
        seconds: length of the period.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, tries: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._tries = tries
        self._seconds = seconds
        self._clock = clock
        self._times: OrderedDict[Hashable, deque[float]] = OrderedDict()

    def allow(self, key: Hashable) -> bool:
        """Return whether an attempt is allowed, and count it if so; a refused attempt does not count."""
        times = self._keep_recent(key)
        if len(times) >= self._tries:
            return False
        times.append(self._clock())
        return True

    def left(self, key: Hashable) -> int:
        """Return the number of attempts left now."""
        return self._tries - len(self._keep_recent(key))

    def wait_seconds(self, key: Hashable) -> float:
        """Return the seconds until the next attempt is allowed; 0 if it is allowed now."""
        times = self._keep_recent(key)
        return max(times[0] + self._seconds - self._clock(), 0.0) if len(times) >= self._tries else 0.0

    def _keep_recent(self, key: Hashable) -> deque[float]:
        times = self._times.pop(key, None) or deque()
        start = self._clock() - self._seconds
        while times and times[0] <= start:
            times.popleft()
        self._times[key] = times
        if len(self._times) > _MOST_KEYS:
            self._times.popitem(last=False)
        return times
