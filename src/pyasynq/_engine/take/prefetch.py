"""Prefetching: tasks taken before there is a slot for them, so that handlers do not wait for Redis."""

from __future__ import annotations

import itertools
import math
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.settings import EngineSettings

_LONGEST: Final = 1.0
"""Longest duration in seconds in the average: a longer attempt counts as this.

Also the estimate before any attempt has ended.
"""
_WEIGHT: Final = 0.02
"""Smoothing factor of the moving averages (EWMA).

One long task, or about 100 short ones, changes the estimate.

https://en.wikipedia.org/wiki/Exponential_smoothing
"""


class Prefetch:
    """The prefetch buffer: tasks that wait for a slot, and the limit of their number.

    Used by the event loop only.

    Exponential moving averages of task duration and of the gap between ends size the buffer. The buffer is
    small enough that each task gets a slot within a short time, at the recent rate of free slots. Long tasks
    are not prefetched at all. If tasks wait longer than estimated, they are put back, and the average
    duration is reset.

    Weighted fair queueing: each task taken costs its queue 1/weight; the cheapest queue goes next.
    Tasks of one queue keep their order. https://en.wikipedia.org/wiki/Weighted_fair_queueing
    """

    __slots__ = (
        "_bytes",
        "_learnt_at",
        "_least_paid",
        "_mean",
        "_mean_gap",
        "_most",
        "_most_bytes",
        "_paid",
        "_patience",
        "_prices",
        "_seconds",
        "_span",
        "_waiting",
        "number",
        "unlearnt",
    )

    def __init__(self, most: int, settings: EngineSettings, weights: Mapping[str, int]) -> None:
        self._most = most
        self._most_bytes = settings.prefetch_bytes
        self._span = settings.prefetch_span
        self._patience = settings.prefetch_patience
        self._mean = self._mean_gap = _LONGEST
        self._learnt_at = -math.inf
        self.unlearnt = 0
        """Number of handlers that have ended since the last `learn`."""
        self._seconds = 0.0
        """Total seconds that the handlers counted in `unlearnt` have run."""
        self._bytes = 0
        self.number = 0
        """Number of waiting tasks."""
        self._waiting: dict[str, deque[Attempt]] = {}
        """Waiting attempts of each queue that has any."""
        self._paid: dict[str, float] = {}
        self._least_paid = 0.0
        self.weigh(weights)

    def weigh(self, weights: Mapping[str, int]) -> None:
        """Divide slots among queues by these weights from now on; no task of another queue may be waiting."""
        self._prices = {queue: 1 / weight for queue, weight in weights.items()}
        self._paid = {queue: self._paid.get(queue, 0.0) for queue in weights}

    @property
    def allowed(self) -> int:
        """Maximum number of prefetched tasks, including the tasks that wait already."""
        if self._bytes >= self._most_bytes or self._mean >= self._span:
            return 0
        each = min(self._mean, self._mean_gap)
        return self._most if self._most * each <= self._span else int(self._span / each)

    @property
    def patient_until(self) -> float:
        """Monotonic time from which the longest waiting task has waited too long."""
        if not self._waiting:
            return math.inf
        return min(waiting[0].started for waiting in self._waiting.values()) + self._patience

    def ended(self, seconds: float) -> None:
        """Record how long a handler has run, for `learn`."""
        self.unlearnt += 1
        self._seconds += seconds if seconds < _LONGEST else _LONGEST

    def learn(self, now: float) -> None:
        """Update the averages with the handlers that have ended since the last time; `now` is monotonic."""
        number = self.unlearnt
        if not number:
            return
        weight = 1.0 - (1.0 - _WEIGHT) ** number
        self._mean += weight * (self._seconds / number - self._mean)
        self._mean_gap += weight * (min(now - self._learnt_at, _LONGEST) / number - self._mean_gap)
        self._learnt_at = now
        self.unlearnt, self._seconds = 0, 0.0

    def forget(self) -> None:
        """Reset the moving average of durations to one second; about 100 short tasks lower it again."""
        self._mean = _LONGEST
        self.unlearnt, self._seconds = 0, 0.0

    def add(self, queue: str, attempts: Sequence[Attempt]) -> None:
        """Append attempts to the waiting attempts of their queue."""
        waiting = self._waiting.get(queue)
        if waiting is None:
            waiting = self._waiting[queue] = deque()
            # An idle queue earns no credit.
            self._paid[queue] = max(self._paid[queue], self._least_paid)
        waiting.extend(attempts)
        self.number += len(attempts)
        self._bytes += sum([attempt.size for attempt in attempts])

    def __iter__(self) -> Iterator[Attempt]:
        return itertools.chain.from_iterable(self._waiting.values())

    def take(self, most: int) -> list[Attempt]:
        """Remove and return at most this many attempts, in the order of their turns."""
        number = min(most, self.number)
        if len(self._waiting) == 1:
            # A single queue does not pay: there is nothing to share.
            [(queue, waiting)] = self._waiting.items()
            taken = [waiting.popleft() for _ in range(number)]
            if not waiting:
                del self._waiting[queue]
        else:
            taken = [self._take_next() for _ in range(number)]
        self.number -= number
        self._bytes -= sum([attempt.size for attempt in taken])
        return taken

    def take_queue(self, queue: str) -> list[Attempt]:
        """Remove and return the attempts of one queue."""
        taken = list(self._waiting.pop(queue, ()))
        self.number -= len(taken)
        self._bytes -= sum([attempt.size for attempt in taken])
        return taken

    def _take_next(self) -> Attempt:
        queues = self._waiting
        queue = min(queues, key=self._paid.__getitem__)
        self._least_paid = self._paid[queue]
        self._paid[queue] += self._prices[queue]
        waiting = queues[queue]
        attempt = waiting.popleft()
        if not waiting:
            del queues[queue]
        return attempt
