"""Tasks that may kill their worker run alone, so that their neighbours are not blamed for the crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.take.queue_board import ServedQueue


def suspect_threshold(limits: Iterable[int]) -> int:
    """Return from how many crashes on a task is run alone; 0 when no limit leaves it a second run."""
    least = min((limit for limit in limits if limit > 1), default=0)
    return max(1, least - 1) if least else 0


class SuspectWatch:
    """Decides whether the processor may take tasks, with respect to the ones that may kill the worker.

    A suspect is taken only while every other attempt is old enough to have proved itself, and nothing
    is started beside a suspect until it has ended or is as old.
    """

    __slots__ = ("_age", "_alone", "threshold", "waiting")

    def __init__(self, threshold: int, age: float) -> None:
        self.threshold = threshold
        self._age = age
        self._alone: Attempt | None = None
        self.waiting: ServedQueue | None = None
        """The queue at whose front a suspect waits."""

    def took(self, attempts: Iterable[Attempt]) -> None:
        """Note which tasks were taken."""
        threshold = self.threshold
        for attempt in attempts if threshold else ():
            if attempt.crashes >= threshold:
                self._alone = attempt

    @property
    def is_wary(self) -> bool:
        """Whether a suspect was taken, or waits to be."""
        return self._alone is not None or self.waiting is not None

    def blocked(self, taken: Collection[Attempt], now: float) -> bool:
        """Return whether nothing may be taken now, besides these attempts that have not ended."""
        if self._must_run_alone(taken, now):
            return True
        # A waiting suspect may be taken when no attempt is young.
        return self.waiting is not None and any(now - attempt.started < self._age for attempt in taken)

    def forget_proven(self, taken: Collection[Attempt], now: float) -> None:
        """Forget the suspect if it has ended or is old enough; nothing refers to its message then."""
        if not self._must_run_alone(taken, now):
            self._alone = None

    def _must_run_alone(self, taken: Collection[Attempt], now: float) -> bool:
        alone = self._alone
        return alone is not None and alone in taken and now - alone.started < self._age
