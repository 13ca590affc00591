"""Outbox relay service: enqueues the completion callbacks of ended tasks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pyasynq._background.service import Service
from pyasynq._broker.outbox import deliver_endings, list_endings
from pyasynq._engine.queue_failures import QueueFailures
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._broker.outbox import StoredEnding
    from pyasynq._engine.engine_parts import Parts

MIN_AGE_SECONDS: Final = 2.0
"""Age in seconds from which any server delivers an outbox entry.

Before that, only the server that settled the task delivers it.
"""
_MOST_IN_HAND: Final = 10_000
"""Maximum number of undelivered ends of tasks in memory; further ones are read from the outbox later."""


class OutboxRelay(Service):
    """Message relay of the transactional outbox: enqueues callbacks of ended tasks.

    It delivers the callbacks of tasks that this server settled, and old outbox entries that no other server
    has delivered.

    Outboxes are read only if the queue look shows that they have entries. An entry that fails stays in
    Redis, where any server of the queue finds it again.
    https://microservices.io/patterns/data/polling-publisher.html
    """

    name = "outbox_relay"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._failures = QueueFailures(self, parts.clock)
        self._in_hand: dict[str, list[StoredEnding]] = {}
        """Undelivered ends of tasks by queue. Written by the settle queue and the rounds, on the loop."""

    def take(self, queue: str, endings: Sequence[StoredEnding]) -> None:
        """Accept ends of tasks that have just been settled; if too many wait, leave them to the outbox."""
        waiting = sum(map(len, self._in_hand.values()))
        if waiting + len(endings) <= _MOST_IN_HAND:
            self._in_hand.setdefault(queue, []).extend(endings)
            self.wake()

    async def round(self) -> float:
        """Deliver the ends of this server's tasks, then old outbox entries that no server has delivered."""
        await self._deliver_in_hand()
        board = self._parts.board
        ready = self._failures.ready(self._parts.queues)
        queues = board.with_work(ready, lambda reading: reading.has_endings)
        if queues:
            await self._deliver_old(queues)
        return self._parts.settings.look_interval

    async def leave(self) -> None:
        """Deliver the undelivered ends of this server's tasks; other servers retry failed deliveries."""
        with suppress(PyasynqError):
            await self._deliver_in_hand()

    async def _deliver_in_hand(self) -> None:
        in_hand, self._in_hand = self._in_hand, {}
        if in_hand:
            await self._deliver(list(in_hand.items()))

    async def _deliver_old(self, queues: Sequence[str]) -> None:
        plans = [list_endings(queue, seconds=MIN_AGE_SECONDS) for queue in queues]
        found = self._failures.answers(queues, await self._parts.driver.run_batch(plans))
        if old := [(queue, endings) for queue, endings in found if endings]:
            await self._deliver(old)

    async def _deliver(self, found: Sequence[tuple[str, Sequence[StoredEnding]]]) -> None:
        now = self._parts.clock.redis_now()
        plans = [deliver_endings(queue, endings, now=now) for queue, endings in found]
        results = await self._parts.driver.run_batch(plans)
        self._failures.answers([queue for queue, _ in found], results)
