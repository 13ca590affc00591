"""Janitor service: deletes completed tasks whose retention has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._broker.delayed import delete_expired_completed
from pyasynq._checks import parse_seconds
from pyasynq._engine.queue_failures import QueueFailures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._engine.engine_parts import Parts


class Janitor(Service):
    """Calls Redis every `janitor_interval`, for the queues whose last reading shows a task to delete."""

    name = "janitor"

    def __init__(self, parts: Parts, queues: Callable[[], Sequence[str]]) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._queues = queues
        self._failures = QueueFailures(self, parts.clock)
        self.first_rest = self._interval = parse_seconds("janitor_interval", parts.config.janitor_interval)

    async def round(self) -> float:
        """Delete completed tasks whose retention has ended, of each queue at most `janitor_batch_size`."""
        parts = self._parts
        now = parts.clock.redis_now()
        ready = self._failures.ready(self._queues())
        queues = parts.board.with_work(ready, lambda reading: reading.has_expired)
        if not queues:
            return self._interval
        results = await parts.driver.run_batch(
            [
                delete_expired_completed(queue, batch=parts.config.janitor_batch_size, now=now)
                for queue in queues
            ],
        )
        self._failures.answers(queues, results)
        return self._interval
