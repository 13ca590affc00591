"""Poison guard: decides when to take a task that may kill its worker, and what runs alongside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyasynq._broker.leases import RAN_ALONE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.settings import EngineSettings
    from pyasynq._engine.take.queue_board import ServedQueue


_MOST_DOUBLINGS = 10


def suspect_threshold(limits: Iterable[int]) -> int:
    """Return the number of crashes from which a task is a suspect; 0 if no crash limit is above 1."""
    least = min((limit for limit in limits if limit > 1), default=0)
    return max(1, least - 1) if least else 0


class PoisonGuard:
    """Token bucket for silences, in which a suspect runs alone: then a crash proves that it was the cause.

    In a silence nothing else is taken: running attempts end, and then the suspect is taken. The bucket
    gains 0.1 s of silence each second, and a silence uses it up. So other tasks keep 90 % of the worker's
    time. When the bucket is empty, the silence ends: other tasks run alongside the suspect, and a crash
    proves nothing. Each crash without proof doubles the length of the next silence, up to 10 s.

    The bucket begins to fill after a random delay, so that workers that start together are not silent
    together. `draw`, a random number from 0 to 1, is the share of the longest delay. That delay is the time
    in which the bucket gains the shortest silence (10 s by default).

    Attributes:
        threshold: number of crashes from which a task is a suspect; 0 for never.
        waiting: crashes of the first suspect of each queue that has one; written by the intake.
        is_silent: whether nothing else is taken.
        alone: the suspect that runs in this silence.
    """

    __slots__ = (
        "_counted_at",
        "_next_beside",
        "_saved",
        "_settings",
        "alone",
        "is_silent",
        "threshold",
        "waiting",
    )

    def __init__(self, threshold: int, settings: EngineSettings, now: float, draw: float) -> None:
        self.threshold = threshold
        self.waiting: dict[ServedQueue, int] = {}
        self.is_silent = False
        self.alone: Attempt | None = None
        self._settings = settings
        self._saved = 0.0
        """Seconds of silence in the bucket at `_counted_at`."""
        # Workers of one container start together. If they were silent together, a failure that kills all of
        # them would prove each of their suspects to be poison.
        self._counted_at = now + draw * settings.silence_least / settings.silence_share
        self._next_beside = -math.inf
        """Monotonic time from which the next suspect may start alongside an attempt that never ends."""

    @property
    def is_wary(self) -> bool:
        """Whether a suspect waits, or runs alone."""
        return self.is_silent or bool(self.waiting)

    def saved(self, now: float) -> float:
        """Return the seconds of silence in the token bucket; a silence that has begun uses them up."""
        passed = now - self._counted_at
        if self.is_silent:
            return max(0.0, self._saved - passed)
        return min(self._settings.silence_longest, self._saved + passed * self._settings.silence_share)

    def due(self, crashes: int, taken: Iterable[Attempt], now: float) -> float:
        """Return the monotonic time from which a silence for a waiting suspect may begin.

        If one of the taken attempts never ends, as `never_ends` judges, return the time at which the suspect
        may start alongside it.
        """
        if self.never_ends(taken, now):
            return self._next_beside
        doublings = min(_MOST_DOUBLINGS, max(0, crashes - self.threshold))
        wanted = min(self._settings.silence_longest, self._settings.silence_least * (1 << doublings))
        return now + max(0.0, wanted - self.saved(now)) / self._settings.silence_share

    def never_ends(self, taken: Iterable[Attempt], now: float) -> bool:
        """Return whether one of these attempts has run for longer than the longest silence."""
        return any(now - attempt.started >= self._settings.silence_longest for attempt in taken)

    def advance(
        self, crashes: int | None, taken: Collection[Attempt], reserved: int, now: float
    ) -> str | None:
        """Begin or end a silence when it is time.

        Returns the suffix of the token of a call for a suspect to be sent now, or None for no call.

        Args:
            crashes: number of crashes of the suspect whose turn it is; None when no suspect is wanted.
            taken: the attempts that have not ended.
            reserved: number of tasks requested by calls without an answer.
            now: monotonic time.
        """
        if self.alone is not None and self.alone not in taken:
            self.end_silence(now)
        if self.alone is not None or (self.is_silent and reserved):
            return None
        if crashes is None:
            self.end_silence(now)
            return None
        if not self.is_silent:
            if now < self.due(crashes, taken, now):
                return None
            if self.never_ends(taken, now):
                self._next_beside = now + self._settings.suspect_rest
                return ""
            self.begin_silence(now)
        if taken or reserved:
            if self.saved(now):
                return None
            self.end_silence(now)
        return RAN_ALONE if self.is_silent else ""

    def begin_silence(self, now: float) -> None:
        """Begin a silence: no task may be taken except the suspect."""
        self._saved, self._counted_at, self.is_silent = self.saved(now), now, True

    def end_silence(self, now: float) -> None:
        """End the silence: other tasks may be taken again."""
        self._saved, self._counted_at, self.is_silent, self.alone = self.saved(now), now, False, None

    def forget(self, queue: str) -> None:
        """Forget the suspects that wait in a queue."""
        self.waiting = {one: crashes for one, crashes in self.waiting.items() if one.name != queue}

    def took(self, attempts: Collection[Attempt], queue: ServedQueue, suspect_waiting: int) -> None:
        """Record the answer of a dequeue call, and the crashes of the suspect that it left in the queue."""
        for attempt in attempts if self.is_silent else ():
            if RAN_ALONE in attempt.token:
                self.alone = attempt
        # The queues take turns: the one asked last comes last.
        self.waiting.pop(queue, None)
        if suspect_waiting:
            self.waiting[queue] = suspect_waiting
