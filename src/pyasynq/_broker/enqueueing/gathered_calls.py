"""Tasks of one `enqueue_many` that pass middleware one by one: they leave together, in their order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from pyasynq.task import EnqueueStatus

if TYPE_CHECKING:
    from pyasynq._broker.enqueueing.coalesce_async import EnqueueBatcher
    from pyasynq._broker.enqueueing.coalesce_blocking import BlockingEnqueueBatcher
    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq.task import EnqueueResult

_Call: TypeAlias = "tuple[Composed, asyncio.Future[EnqueueResult | None]]"


class GatheredCalls:
    """Collects the tasks that arrive in one iteration of the loop, and sends them as one batch.

    Batches leave one after another, so a queue has the tasks in the order in which they arrived here. Single
    calls do not promise that: two of their batches may be under way at once.

    Args:
        batcher: sends the batches.
    """

    def __init__(self, batcher: EnqueueBatcher) -> None:
        self._batcher = batcher
        self._waiting: list[_Call] = []
        self._sending: asyncio.Task[None] | None = None
        """Task that sends the waiting calls, and ends when none is left."""

    def enqueue(self, composed: Composed) -> asyncio.Future[EnqueueResult | None]:
        """Enqueue one task; await the return value, as with `EnqueueBatcher.enqueue`."""
        call: asyncio.Future[EnqueueResult | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((composed, call))
        if self._sending is None:
            # The new task starts after all calls that are ready in this loop iteration.
            self._sending = asyncio.create_task(self._send_all(), name="pyasynq enqueue gathered")
        return call

    async def _send_all(self) -> None:
        while self._waiting:
            calls, self._waiting = [call for call in self._waiting if not call[1].done()], []
            try:
                started = self._batcher.start_all([composed for composed, _ in calls])
                results = await self._batcher.wait_for(started)
            except asyncio.CancelledError:
                for _, call in calls:
                    call.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - each caller of the batch gets it
                for _, call in calls:
                    if not call.done():
                        call.set_exception(error)
                continue
            for (_, call), result in zip(calls, results, strict=True):
                if not call.done():
                    is_plain = result.status is EnqueueStatus.ENQUEUED and result.error is None
                    call.set_result(None if is_plain else result)
        self._sending = None


class BlockingGatheredCalls:
    """The blocking counterpart of `GatheredCalls`: calls come one after another, so each is sent alone."""

    def __init__(self, batcher: BlockingEnqueueBatcher) -> None:
        self.enqueue = batcher.enqueue
