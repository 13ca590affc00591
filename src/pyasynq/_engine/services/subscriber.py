"""Subscriber service: receives cancel requests and passes them on to the attempts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._broker.cancellation import read_requests
from pyasynq.errors import TaskCanceledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._broker.cancellation import CancelRequest
    from pyasynq._clock import Instant
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._redis.subscription import Subscription

_SAME_CALL_SECONDS = 5
"""Maximum age in seconds of a stored request that counts as the request that was just published."""


class Subscriber(Service):
    """Service that receives cancel requests by Redis Pub/Sub, and cancels the attempts of these tasks.

    A round is one subscription; it lasts until the connection breaks or the service stops.
    """

    name = "subscriber"

    def __init__(self, parts: Parts, subscribe: Callable[[], Subscription]) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._subscribe = subscribe
        self._listening: asyncio.Task[None] | None = None
        self.subscribed = False
        """Whether requests that are published now are received."""

    async def round(self) -> float:
        """Subscribe and listen; raises when the connection breaks."""
        listening = self._listening = asyncio.create_task(self._listen())
        if self.closing:
            listening.cancel()
        try:
            await asyncio.wait({listening})
        finally:
            listening.cancel()
            self._listening = None
        if not listening.cancelled():
            listening.result()
        return 0.0

    def interrupt(self) -> None:
        """End the current subscription."""
        if self._listening is not None:
            self._listening.cancel()

    async def _listen(self) -> None:
        async with self._subscribe() as messages:
            self.subscribed = True
            try:
                # A message is the bare id of a task, in any queue.
                async for message in messages:
                    await self._cancel(message.decode("utf-8", "replace"))
            finally:
                self.subscribed = False

    async def _cancel(self, task_id: str) -> None:
        attempts = self._parts.roster.with_id(task_id)
        plans = [read_requests(attempt.queue, [task_id]) for attempt in attempts]
        results = await self._parts.driver.run_batch(plans) if plans else []
        now = self._parts.redis_time.now()
        for attempt, requests in zip(attempts, results, strict=True):
            if isinstance(requests, Exception):
                # The heartbeat reads stored requests later.
                raise requests
            cause = cancellation_cause(attempt.token, requests.get(task_id), now)
            if cause is not None:
                attempt.cancel(cause, monotonic=self._parts.clock.monotonic())


def cancellation_cause(token: str, request: CancelRequest | None, now: Instant) -> TaskCanceledError | None:
    """Return the cause of cancellation for a published request; None if it is for another attempt.

    Programs in Go publish requests without storing them. So an old stored request that names another attempt
    does not belong to the published one.

    Args:
        token: token of the running attempt.
        request: the request that is stored for the task.
        now: Redis' time.
    """
    if request is not None and request.token == token:
        return TaskCanceledError(request.outcome)
    if request is not None and now.seconds - request.requested_at < _SAME_CALL_SECONDS:
        return None
    return TaskCanceledError()
