"""Tasks that are taken before there is a slot for them, so that handlers do not wait for Redis."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyasynq._server.attempt import Attempt
    from pyasynq._server.settings import EngineSettings

_LONGEST: Final = 1.0
"""Seconds that an attempt counts as at most; also what is assumed before anything is known."""
_WEIGHT: Final = 0.02
"""Of the newest attempt in the mean: a single long one, or some hundred short ones, change its mind."""


class Prefetch:
    """How many tasks may wait for a slot, and those that do, in the order in which they were taken.

    There are so few of them that all would be run within a short time, one after the other. When they wait
    for longer all the same, tasks are not what they were: they are to be put back, and it is learnt anew.
    """

    __slots__ = ("_bytes", "_mean", "_most", "_most_bytes", "_patience", "_span", "_waiting")

    def __init__(self, most: int, settings: EngineSettings) -> None:
        self._most = most
        self._most_bytes = settings.prefetch_bytes
        self._span = settings.prefetch_span
        self._patience = settings.prefetch_patience
        self._mean = _LONGEST
        self._bytes = 0
        self._waiting: deque[Attempt] = deque()

    @property
    def allowed(self) -> int:
        """How many tasks may wait, those that do among them."""
        if self._bytes >= self._most_bytes:
            return 0
        return self._most if self._most * self._mean <= self._span else int(self._span / self._mean)

    @property
    def patient_until(self) -> float:
        """Monotonic time from which on the one that waits for longest has waited too long."""
        return self._waiting[0].started + self._patience if self._waiting else math.inf

    def learn(self, seconds: float) -> None:
        """Note how long a handler has run."""
        self._mean += _WEIGHT * (min(seconds, _LONGEST) - self._mean)

    def forget(self) -> None:
        """Assume that tasks are long, until some hundred of them have been short."""
        self._mean = _LONGEST

    def add(self, attempt: Attempt) -> None:
        """Let an attempt wait behind the others."""
        self._waiting.append(attempt)
        self._bytes += attempt.size

    def next(self) -> Attempt:
        """Return the attempt that has waited for longest; it waits no more."""
        attempt = self._waiting.popleft()
        self._bytes -= attempt.size
        return attempt

    def __len__(self) -> int:
        return len(self._waiting)
