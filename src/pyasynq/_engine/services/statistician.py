"""Statistician service: writes the counts of ended attempts to Redis, after each heartbeat."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pyasynq._background.service import Service
from pyasynq._broker.attempt_counts import count_attempts
from pyasynq._wire.attempt_counts import MAX_COUNTED_TYPES, OTHER_TYPES, add_vectors
from pyasynq.errors import RedisUnavailableError
from pyasynq.events import HeartbeatWritten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.tally import Tally, TypeCounts


class Statistician(Service):
    """Adds what the tally has counted to the statistics in Redis, one call for each queue with new counts.

    A round follows each heartbeat, so that renewals go first and nothing is written while they fail. Counts
    that Redis has not received are kept for the next round. A call whose reply was lost is not repeated:
    its counts may be missing in the statistics, but they are never there twice.
    """

    name = "statistics"

    def __init__(self, parts: Parts, tally: Tally) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._tally = tally
        self._counts: dict[str, TypeCounts] = {}
        """Counts of ended attempts that are still to be written: vectors by queue and task type."""
        self._unsubscribe: Callable[[], None] | None = None
        tally.hand_to(self._receive)

    async def enter(self) -> None:
        """Subscribe to the `HeartbeatWritten` event, which starts each round."""
        self._unsubscribe = self.events.subscribe(HeartbeatWritten, lambda _: self.wake())

    async def round(self) -> float:
        """Add the counts of ended attempts to the statistics in Redis."""
        self._tally.take()
        await self._write()
        return math.inf

    async def leave(self) -> None:
        """Write the last counts, once."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._tally.take()
        await self._write()

    def _receive(self, counts: Mapping[str, TypeCounts]) -> None:
        for queue, types in counts.items():
            kept = self._counts.setdefault(queue, {})
            for task_type, vector in types.items():
                name = task_type if task_type in kept or len(kept) < MAX_COUNTED_TYPES else OTHER_TYPES
                if name in kept:
                    add_vectors(kept[name], vector)
                else:
                    kept[name] = list(vector)

    async def _write(self) -> None:
        counts, self._counts = self._counts, {}
        if not counts:
            return
        now = self._parts.redis_time.now()
        plans = [count_attempts(queue, types, now=now) for queue, types in counts.items()]
        results: list[Any] = await self._parts.driver.run_batch(plans)
        first: Exception | None = None
        for (queue, types), result in zip(counts.items(), results, strict=True):
            if isinstance(result, RedisUnavailableError):
                self._receive({queue: types})
            if isinstance(result, Exception):
                first = first or result
        if first is not None:
            raise first
