"""Measurements of the server, once a second, for metrics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pyasynq._background.service import Service
from pyasynq._broker.inspecting.attempt_counts import make_counts
from pyasynq._engine.run.attempt import RUNNING
from pyasynq._wire.attempt_counts import add_vectors
from pyasynq.events import WorkerMeasured

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.tally import Tally, TypeCounts
    from pyasynq.telemetry import AttemptCounts

MEASURING_INTERVAL: Final = 1.0
"""Seconds between two measurements; a killed worker loses the counts of at most this long."""


class Measurer(Service):
    """Emits `WorkerMeasured` with the tally's counts and the number of running attempts. Never calls Redis.

    Args:
        parts: parts of the engine.
        tally: counts the ends of attempts.
        slots: number of attempts that may run at once; 0 for a consumer.
    """

    name = "metrics"

    def __init__(self, parts: Parts, tally: Tally, slots: int) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._tally = tally
        self._slots = slots
        self._vectors: dict[str, TypeCounts] = {}
        self._elapsed = 0.0
        """Total seconds that the running attempts had run at the last measurement."""
        self._due = float("inf")
        """Monotonic time at which the next round should begin."""
        tally.hand_to(self._receive)

    async def round(self) -> float:
        """Report the counts since the last round."""
        now = self._parts.clock.monotonic()
        self._tally.take()
        self._report(now, max(0.0, now - self._due))
        self._due = now + MEASURING_INTERVAL
        return MEASURING_INTERVAL

    async def leave(self) -> None:
        """Report the last counts."""
        self._tally.take()
        self._report(self._parts.clock.monotonic(), 0.0)

    def _receive(self, counts: Mapping[str, TypeCounts]) -> None:
        for queue, types in counts.items():
            kept = self._vectors.setdefault(queue, {})
            for task_type, vector in types.items():
                if task_type in kept:
                    add_vectors(kept[task_type], vector)
                else:
                    kept[task_type] = list(vector)

    def _report(self, now: float, lateness: float) -> None:
        vectors, self._vectors = self._vectors, {}
        counts: dict[str, dict[str, AttemptCounts]] = {
            queue: {task_type: make_counts(vector) for task_type, vector in types.items()}
            for queue, types in vectors.items()
        }
        running = [attempt for attempt in self._parts.roster if attempt.phase is RUNNING]
        elapsed = sum(now - attempt.started for attempt in running)
        ended = sum(one.run.seconds for types in counts.values() for one in types.values())
        # Attempts that were put back are not counted when they end, so the difference may be negative.
        busy = max(0.0, ended + elapsed - self._elapsed)
        self._elapsed = elapsed
        self.events.emit(
            WorkerMeasured(
                self._parts.server_id,
                counts,
                dict.fromkeys(self._parts.queues, 0) | Counter(attempt.queue for attempt in running),
                self._slots,
                busy,
                self._parts.settles.outstanding,
                lateness,
            )
        )
