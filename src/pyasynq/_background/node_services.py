"""Services for one cluster node each (bulkheads): a silent node delays only its own queues."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, Protocol

from pyasynq._background.service import Service
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._redis.driver import AsyncDriver
    from pyasynq.events import Events

_ARRANGE_SECONDS: Final = 1.0
"""Seconds between two checks for a changed slot map."""


class NodeQueues:
    """Queues of an engine, grouped by the cluster node that serves them.

    Args:
        driver: knows the nodes.
        queues: returns the names of all queues.
    """

    def __init__(self, driver: AsyncDriver, queues: Callable[[], Sequence[str]]) -> None:
        self._driver = driver
        self._queues = queues
        self._known: object = None
        self._by_node: dict[str, tuple[str, ...]] = {}

    @property
    def nodes(self) -> frozenset[str]:
        """Addresses of the nodes that serve queues; an empty address stands for an unknown node."""
        return frozenset(self._group_by_node())

    def of(self, node: str) -> tuple[str, ...]:
        """Return the queues that a node serves now."""
        return self._group_by_node().get(node, ())

    def _group_by_node(self) -> dict[str, tuple[str, ...]]:
        known = self._queues(), self._driver.map_version
        if known != self._known:
            by_node: dict[str, list[str]] = {}
            for queue in known[0]:
                by_node.setdefault(self._driver.find_node(queue_keys(queue).pending), []).append(queue)
            self._known = known
            self._by_node = {node: tuple(queues) for node, queues in by_node.items()}
        return self._by_node


class MakeService(Protocol):
    """Factory of a service for some of the queues."""

    def __call__(self, node: str, queues: Callable[[], Sequence[str]]) -> Service:
        """Return a service for a node; `queues` returns the queues that it serves at the time of the call."""


class NodeServices(Service):
    """Runs a service for each node that serves queues, and follows the cluster's slot map.

    Args:
        name: name of the services.
        events: events of the engine.
        nodes: the queues of each node.
        make: function that makes the service of a node.
    """

    def __init__(self, name: str, events: Events, nodes: NodeQueues, make: MakeService) -> None:
        super().__init__(events)
        self.name = f"{name}, by node"
        self._nodes = nodes
        self._make = make
        self._members: dict[str, Service] = {}
        self._leaving: set[asyncio.Task[bool]] = set()

    async def enter(self) -> None:
        """Start a service for each node."""
        await self._arrange()

    async def round(self) -> float:
        """Start services for new nodes, and stop services of nodes that serve no queue any more."""
        await self._arrange()
        return _ARRANGE_SECONDS

    def wake(self) -> None:
        """End the pause of all services, and check for nodes that serve a new queue."""
        super().wake()
        for member in self._members.values():
            member.wake()

    def wake_for(self, node: str) -> None:
        """End the pause of a node's service."""
        member = self._members.get(node)
        if member is not None:
            member.wake()

    async def stop(self, limit: float = math.inf) -> bool:
        """Stop all services at the same time; return whether they ended in time."""
        in_time = await super().stop(limit)
        stopped = await asyncio.gather(*(member.stop(limit) for member in self._members.values()))
        self._members.clear()
        if self._leaving:
            _, late = await asyncio.wait(self._leaving, timeout=None if math.isinf(limit) else limit)
            in_time = in_time and not late
        return in_time and all(stopped)

    async def _arrange(self) -> None:
        nodes = self._nodes.nodes
        for node in self._members.keys() - nodes:
            # A round for a node that is gone may wait for its timeout.
            leaving = asyncio.ensure_future(self._members.pop(node).stop())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
        for node in nodes - self._members.keys():
            member = self._make(node, lambda node=node: self._nodes.of(node))  # type: ignore[misc]  # bound now
            member.node = node
            await member.start()
            self._members[node] = member
