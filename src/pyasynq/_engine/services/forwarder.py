"""Moves scheduled and retry tasks to pending when they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._broker.delayed import forward
from pyasynq._checks import seconds_of
from pyasynq._engine.queue_failures import QueueFailures
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.take.wake_up import WakeUp


class Forwarder(Service):
    """Rests until the next task is due, or until Redis reports that delayed tasks have changed."""

    name = "forwarder"

    def __init__(self, parts: Parts, queues: Callable[[], Sequence[str]], wake_up: WakeUp) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._queues = queues
        self._failures = QueueFailures(self, parts.clock)
        self._wake_up = wake_up
        self._longest = seconds_of("delayed_task_check_interval", parts.config.delayed_task_check_interval)
        self._last_round = float("-inf")

    async def round(self) -> float:
        """Forward what is due in the queues."""
        parts = self._parts
        gap = self._last_round + parts.settings.forward_gap - parts.clock.monotonic()
        if gap > 0:
            # Many tasks that are scheduled in a row make one round.
            return gap
        queues = self._failures.ready(self._queues())
        # Watching comes first: what is added after the look is reported.
        await self._wake_up.watch(*_delayed_keys(queues))
        plans = [forward(queue, now=parts.clock.redis_now()) for queue in queues]
        results = await parts.driver.run_batch(plans)
        rest = self._longest
        for _, result in self._failures.answers(queues, results):
            parts.redis_time.learn(result.redis_now)
            if result.next_due is not None:
                rest = min(rest, result.next_due - result.redis_now.timestamp)
        # Only a round that went well is kept apart from the next: after a failure the back-off says when.
        self._last_round = parts.clock.monotonic()
        return max(0.0, rest)


def is_delayed_key(key: str) -> bool:
    """Return whether this is the key of the scheduled or the retried tasks of a queue."""
    return key.endswith((":scheduled", ":retry"))


def _delayed_keys(queues: Iterable[str]) -> list[str]:
    return [key for queue in queues for key in (queue_keys(queue).scheduled, queue_keys(queue).retry)]
