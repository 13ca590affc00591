"""Sending many tasks chunk by chunk: while Redis processes one chunk, the next one is composed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from pyasynq._broker.enqueueing.chunks import Chunk
from pyasynq._broker.enqueueing.coalesce_async import EnqueueBatcher
from pyasynq._broker.enqueueing.coalesce_blocking import BlockingEnqueueBatcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq._clock import Clock
    from pyasynq.task import EnqueueResult, Task

_B = TypeVar("_B", EnqueueBatcher, BlockingEnqueueBatcher)


class _Composer(Generic[_B]):
    """Common base of chunk senders: makes chunks of tasks, and collects the result of each task."""

    def __init__(
        self,
        batchers: tuple[_B, _B],
        options: Mapping[str, object],
        *,
        clock: Clock,
        max_payload: int,
    ) -> None:
        self._batcher: _B = batchers[0]
        self._durable_batcher: _B = batchers[1]
        self._options = options
        self._clock = clock
        self._max_payload = max_payload
        self._results: list[EnqueueResult] = []

    def _compose(self, tasks: Sequence[Task]) -> tuple[Chunk, _B]:
        chunk = Chunk(tasks, self._options, now=self._clock.now(), max_payload=self._max_payload)
        return chunk, self._durable_batcher if chunk.is_durable else self._batcher


class ChunkSender(_Composer[EnqueueBatcher]):
    """Sends chunks in their order, never two at a time; for asyncio.

    Args:
        batchers: the normal one, and the one for durable tasks.
        options: options of the call.
        clock: source of the current time, for process times.
        max_payload: largest size of one task's payload, in bytes.
    """

    _under_way: tuple[Chunk, EnqueueBatcher, asyncio.Task[list[EnqueueResult]]] | None = None

    async def send(self, tasks: Sequence[Task]) -> None:
        """Compose a chunk, wait for the answer to the one before it, and start to send this one.

        If the caller is cancelled, the earlier chunk is still sent.
        """
        chunk, batcher = self._compose(tasks)
        await self._settle()
        self._under_way = chunk, batcher, batcher.start_all(chunk.composed)
        # The batcher takes the chunk in one iteration of the loop, and may send it in the next.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def finish(self) -> list[EnqueueResult]:
        """Wait for the answers to all chunks; return a result for each task, in their order."""
        await self._settle()
        return self._results

    async def _settle(self) -> None:
        if self._under_way is not None:
            (chunk, batcher, started), self._under_way = self._under_way, None
            self._results += chunk.results(await batcher.wait_for(started))


class BlockingChunkSender(_Composer[BlockingEnqueueBatcher]):
    """Sends chunks one after another; the blocking counterpart of `ChunkSender`, without its overlap."""

    def send(self, tasks: Sequence[Task]) -> None:
        """Compose a chunk, send it, and wait for the answer."""
        chunk, batcher = self._compose(tasks)
        self._results += chunk.results(batcher.enqueue_all(chunk.composed))

    def finish(self) -> list[EnqueueResult]:
        """Return a result for each task, in their order."""
        return self._results
