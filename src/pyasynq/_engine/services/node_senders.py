"""Senders for the nodes of a cluster (bulkheads): a slow or silent node delays only its own queues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pyasynq._engine.services.sender import Sender
from pyasynq._redis.failures import drop_tracebacks
from pyasynq._wire.keys import queue_keys
from pyasynq.events import RoundFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq._background.service import Service
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.services.sender import RoundCalls
    from pyasynq._engine.take.intake import Intake

_SHORTEST_PATIENCE: Final = 0.1
_LONGEST_PATIENCE: Final = 0.5
_PATIENCE_FACTOR: Final = 4
_WEIGHT: Final = 0.1
"""Smoothing factor of the exponentially weighted moving average (EWMA): weight of the newest value."""


class NodeSender(Sender):
    """The sender of one node.

    Attributes:
        in_flight: number of pipelines without an answer.
        is_failing: whether the last exchange failed.
        mean_seconds: exponentially weighted moving average (EWMA) of the response time.
    """

    def __init__(self, service: Service, parts: Parts, intake: Intake) -> None:
        super().__init__(service, parts, intake)
        self.in_flight = 0
        self.is_failing = False
        self.mean_seconds = 0.0

    @property
    def patience(self) -> float:
        """Seconds that a round waits for an answer: four times the mean, within limits; 0 after a failure."""
        if self.is_failing:
            return 0.0
        return min(max(_SHORTEST_PATIENCE, _PATIENCE_FACTOR * self.mean_seconds), _LONGEST_PATIENCE)


class _Wait:
    """Wait of one processor round for the nodes' answers; ends one loop iteration after the last answer."""

    def __init__(self, patience: Mapping[str, float]) -> None:
        loop = asyncio.get_running_loop()
        self._awaited = {node for node, seconds in patience.items() if seconds}
        self._late = patience.keys() - self._awaited
        self._end = loop.create_future()
        self._timer = loop.call_later(max(patience.values(), default=0.0), self._finish)

    def answered(self, node: str) -> None:
        """Record that a node has answered or failed."""
        self._awaited.discard(node)
        self._late.discard(node)
        if not self._awaited:
            self._finish()

    async def late(self) -> set[str]:
        """Wait for the answers; return the nodes that have not answered in time."""
        if self._awaited:
            await self._end
        self._timer.cancel()
        return self._awaited | self._late

    def _finish(self) -> None:
        if not self._end.done():
            self._end.set_result(None)


class NodeSenders:
    """Sends the calls of a round to the nodes of a cluster in parallel. Used by the event loop only.

    A round waits for all nodes that answer in their usual time, so that the queues of all nodes share slots
    by their priorities. It does not wait for a slow or failed node. The queues of such a node are skipped
    until the node has answered, or after a failure until its back-off ends. Meanwhile other queues may use
    the slots that were reserved for its tasks. Tasks that arrive when no slot is left are put back to the
    front of their queue.

    Args:
        service: the processor.
        parts: parts of the engine.
        intake: makes the calls.
    """

    def __init__(self, service: Service, parts: Parts, intake: Intake) -> None:
        self._service = service
        self._parts = parts
        self._intake = intake
        self._senders: dict[str, NodeSender] = {}
        self._left: dict[str, frozenset[str]] = {}
        """Queues of the skipped nodes, by node."""
        self._running: set[asyncio.Task[None]] = set()
        self._error: Exception | None = None
        """Error raised while replies were passed on, perhaps after the round; the next `send` raises it."""

    async def send(self, calls: RoundCalls) -> None:
        """Send the calls of a round, and pass on the replies; those of slow nodes are passed on later."""
        parts = calls.by_node(self._find_node)
        for node in parts.keys() - self._senders.keys():
            self._senders[node] = NodeSender(self._service, self._parts, self._intake)
        wait = _Wait({node: self._senders[node].patience for node in parts})
        for node, part in parts.items():
            self._start(node, part, wait)
        for node in await wait.late():
            self._intake.free_room(parts[node].asks)
            self._leave(node)
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def finish(self) -> None:
        """Wait until all calls have been answered or have failed; then stop skipping nodes."""
        if self._running:
            await asyncio.wait(self._running)
        self._left.clear()
        self._arrange()

    def _start(self, node: str, calls: RoundCalls, wait: _Wait) -> None:
        task = asyncio.create_task(self._send(node, calls, wait), name=f"pyasynq processor, node {node}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _send(self, node: str, calls: RoundCalls, wait: _Wait) -> None:
        sender, clock = self._senders[node], self._parts.clock
        sender.in_flight += 1
        began = clock.monotonic()
        try:
            error = await sender.send(calls)
        except Exception as raised:  # noqa: BLE001 - `send` raises it
            self._error = raised
            error = None
        wait.answered(node)
        sender.in_flight -= 1
        sender.is_failing = error is not None
        if error is not None:
            self._service.events.emit(RoundFailed(self._service.name, error, sender.rest, node))
            drop_tracebacks(error)
            self._leave(node)
            asyncio.get_running_loop().call_later(sender.rest, self._return, node)
            return
        sender.mean_seconds += _WEIGHT * (clock.monotonic() - began - sender.mean_seconds)
        if not sender.in_flight:
            self._return(node)

    def _leave(self, node: str) -> None:
        """Skip a node until it has answered, or after a failure until its back-off ends."""
        known = self._parts.board.known
        self._left[node] = frozenset(queue for queue in known if self._find_node(queue) == node)
        self._arrange()

    def _return(self, node: str) -> None:
        """Send calls to a node again, after it has answered or its back-off has ended."""
        if self._left.pop(node, None) is not None:
            self._arrange()
            self._service.wake()

    def _arrange(self) -> None:
        queues = frozenset[str]().union(*self._left.values())
        self._parts.board.withhold(queues)
        self._parts.settles.withhold(queues)

    def _find_node(self, queue: str) -> str:
        return self._parts.driver.find_node(queue_keys(queue).pending)
