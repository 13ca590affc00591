"""Processors for one node of a cluster each."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyasynq._background.node_services import NodeServices
from pyasynq._engine.services.processor import Processor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._background.node_services import NodeQueues
    from pyasynq._engine.engine_parts import Parts


class MakeProcessor(Protocol):
    """Makes a processor for some of the queues."""

    def __call__(self, queues: Callable[[], Sequence[str]]) -> Processor:
        """Return a processor; `queues` returns the names of those that it serves at the time."""


class NodeProcessors(NodeServices):
    """A processor for each node; they share the slots, and a silent node keeps none of the others waiting.

    Args:
        parts: of the engine.
        nodes: which node serves which queues.
        make: makes the processor of a node.
    """

    def __init__(self, parts: Parts, nodes: NodeQueues, make: MakeProcessor) -> None:
        super().__init__(Processor.name, parts.events, nodes, self._make_processor)
        self._make_plain = make
        self._processors: dict[str, Processor] = {}
        """By node; one whose node serves no queue any more has nothing to do."""
        self._closes_when_idle = False
        self.on_idle: Callable[[], None] = lambda: None
        """Called when the server was told to close when idle, and is."""

    def wake(self) -> None:
        """End the rest of all processors. Called for each task that ends, so it does nothing else."""
        for processor in self._processors.values():
            processor.wake()

    def close_when_idle(self) -> None:
        """Call `on_idle` as soon as nothing runs and nothing waits to be written."""
        self._closes_when_idle = True
        for processor in self._processors.values():
            processor.close_when_idle()

    async def leave(self) -> None:
        """Write what is left, to all nodes at the same time."""
        if self.closing:
            return  # each of them does so when it is stopped
        await asyncio.gather(*(processor.leave() for processor in self._processors.values()))

    def _make_processor(self, node: str, queues: Callable[[], Sequence[str]]) -> Processor:
        processor = self._processors[node] = self._make_plain(queues)
        processor.on_answered = partial(self._wake_others, node)
        processor.on_idle = self.on_idle
        if self._closes_when_idle:
            processor.close_when_idle()
        return processor

    def _wake_others(self, node: str) -> None:
        for other, processor in self._processors.items():
            if other != node:
                processor.wake()
