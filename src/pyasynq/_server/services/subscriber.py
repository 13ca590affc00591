"""Hears cancel requests and passes them on to the attempts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pyasynq._server.service import Service
from pyasynq.errors import TaskCanceledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._broker.subscription import Subscription
    from pyasynq._server.parts import Parts


class Subscriber(Service):
    """One round is one subscription: it lasts until the connection breaks or the service is stopped."""

    name = "subscriber"

    def __init__(self, parts: Parts, subscribe: Callable[[], Subscription]) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._subscribe = subscribe
        self._listening: asyncio.Task[None] | None = None
        self.subscribed = False
        """Whether requests that are published now are heard."""

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
        """End the subscription that is going on."""
        if self._listening is not None:
            self._listening.cancel()

    async def _listen(self) -> None:
        async with self._subscribe() as messages:
            self.subscribed = True
            try:
                # A message is the bare id of a task, in whatever queue.
                async for message in messages:
                    self._cancel(message.decode("utf-8", "replace"))
            finally:
                self.subscribed = False

    def _cancel(self, task_id: str) -> None:
        now = self._parts.clock.monotonic()
        for attempt in self._parts.roster.with_id(task_id):
            attempt.cancel(TaskCanceledError(), monotonic=now)
