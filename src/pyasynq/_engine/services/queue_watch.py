"""Asks each queue of a server for a sign of life, counts the servers, and keeps the queues registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._background.service import Service
from pyasynq._broker.queue_registry import queue_exists
from pyasynq._broker.registrar_async import AsyncRegistrar
from pyasynq._broker.servers import count_servers
from pyasynq._wire.keys import queue_keys
from pyasynq.events import QueueChanged, QueuesAsked

if TYPE_CHECKING:
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.take.wake_up import WakeUp

_REGISTER_SECONDS: Final = 60.0
"""How often the names of the queues are written, for clients that died before they could."""
_RETRY_SECONDS: Final = 1.0


class QueueWatch(Service):
    """Asks all queues in one batch per heartbeat; each second while one of them cannot be asked.

    A queue that cannot be asked does not fail the round. It is named in the event.
    Removed queues are forgotten here, once none of their attempts is left.
    """

    name = "queue_watch"

    def __init__(self, parts: Parts, wake_up: WakeUp) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._wake_up = wake_up
        self._registrar = AsyncRegistrar(parts.driver)
        self._register_at = 0.0

    async def round(self) -> float:
        """Tell which queues can be asked, and register those that have tasks or a history."""
        parts = self._parts
        self._forget_removed()
        queues = parts.queues
        *answers, servers = await parts.driver.run_batch(
            [*map(queue_exists, queues), count_servers(parts.redis_time.now())]
        )
        if not isinstance(servers, Exception):
            parts.board.note_servers(servers)
        found = dict(zip(queues, answers, strict=True))
        unreachable = tuple(queue for queue, answer in found.items() if isinstance(answer, Exception))
        self.events.emit(QueuesAsked(parts.server_id, len(found), unreachable))
        now, interval = parts.clock.monotonic(), parts.settings.heartbeat_interval
        if now >= self._register_at:
            self._register_at = now + _REGISTER_SECONDS
            self._registrar.register([queue for queue, answer in found.items() if answer is True])
        return min(_RETRY_SECONDS, interval) if unreachable else interval

    def _forget_removed(self) -> None:
        """Forget removed queues whose attempts have all ended."""
        parts = self._parts
        for queue in parts.board.forget_removed(attempt.queue for attempt in parts.roster):
            self._wake_up.forget(*queue.keys.values(), queue_keys(queue.name).scheduled)
            self.events.emit(QueueChanged(parts.server_id, queue.name, "ended"))

    async def leave(self) -> None:
        """Register no more queues."""
        await self._registrar.close()
