"""Peer watch: counts servers, and finds servers that ignore queue limits and order, as Go servers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._background.service import Service
from pyasynq._broker.servers import count_servers, list_server_keys, read_server
from pyasynq.events import LimitsIgnored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._wire.messages import ServerInfo

_RECORDS_AT_ONCE: Final = 100


class PeerWatch(Service):
    """Service that counts the servers, and reports servers that ignore queue limits and order.

    It has a round at the start and with each heartbeat. It reads the records of servers only if a queue has a
    limit or an order. A server never changes its program, nor a Go server its queues. So each record is read
    once.
    """

    name = "peer_watch"

    def __init__(self, parts: Parts, limited: Callable[[], Collection[str]]) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._limited = limited
        self._peers: dict[str, ServerInfo | None] = {}
        """Servers that ignore limits, by the keys of their records; None for a server that applies limits."""
        self._reported: set[tuple[str, str]] = set()
        """Reported servers: the key of the record, and the queue."""

    async def round(self) -> float:
        """Count the servers, and report new servers that ignore limits."""
        [servers] = await self._parts.driver.run_batch([count_servers(self._parts.redis_time.now())])
        # If the node with the list of servers is unreachable, the last number is kept.
        if not isinstance(servers, Exception):
            self._parts.board.note_servers(servers)
        limited = self._limited()
        if limited:
            await self._check_peers()
            self._report(limited)
        return self._parts.settings.heartbeat_interval

    async def _check_peers(self) -> None:
        keys = await self._parts.driver.run(list_server_keys(self._parts.redis_time.now()))
        self._peers = {key: self._peers[key] for key in keys if key in self._peers}
        self._reported = {one for one in self._reported if one[0] in self._peers}
        unknown = [key for key in keys if key not in self._peers][:_RECORDS_AT_ONCE]
        records = await self._parts.driver.run_batch([read_server(key) for key in unknown])
        for key, record in zip(unknown, records, strict=True):
            if isinstance(record, Exception):
                raise record
            if record is not None:
                self._peers[key] = None if record.engine else record

    def _report(self, limited: Collection[str]) -> None:
        for key, peer in self._peers.items():
            if peer is None:
                continue
            for queue in peer.queues:
                if queue in limited and (key, queue) not in self._reported:
                    self._reported.add((key, queue))
                    self.events.emit(LimitsIgnored(queue, peer.host, peer.pid, peer.server_id))
