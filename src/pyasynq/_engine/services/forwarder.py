"""Moves scheduled and retry tasks to pending when they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._broker.delayed import forward
from pyasynq._checks import seconds_of
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.take.wake_up import WakeUp


class Forwarder(Service):
    """Rests until the next task is due, or until Redis reports that delayed tasks have changed."""

    name = "forwarder"

    def __init__(self, parts: Parts, wake_up: WakeUp) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._wake_up = wake_up
        self._longest = seconds_of("delayed_task_check_interval", parts.config.delayed_task_check_interval)
        self._keys = [
            key for queue in parts.queues for key in (queue_keys(queue).scheduled, queue_keys(queue).retry)
        ]
        self._last_round = float("-inf")

    def owns(self, key: str) -> bool:
        """Return whether a change of this key is the forwarder's concern."""
        return key in self._keys

    async def round(self) -> float:
        """Forward what is due in all queues."""
        parts = self._parts
        gap = self._last_round + parts.settings.forward_gap - parts.clock.monotonic()
        if gap > 0:
            # Many tasks that are scheduled in a row make one round.
            return gap
        # Watching comes first: what is added after the look is reported.
        await self._wake_up.watch(*self._keys)
        plans = [forward(queue, now=parts.clock.redis_now()) for queue in parts.queues]
        results = await parts.driver.run_batch(plans)
        rest = self._longest
        for result in results:
            if isinstance(result, Exception):
                raise result
            parts.redis_time.learn(result.redis_now)
            if result.next_due is not None:
                rest = min(rest, result.next_due - result.redis_now.timestamp)
        # Only a round that went well is kept apart from the next: after a failure the back-off says when.
        self._last_round = parts.clock.monotonic()
        return max(0.0, rest)
