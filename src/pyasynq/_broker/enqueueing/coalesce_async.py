"""Coalescing for asyncio (write batching): calls made while a batch is being sent form the next batch.

There is no timer. A lone call leaves at once, as a batch of one; under load batches grow by themselves. If
many coroutines call, two batches are in flight: while Redis processes one half of the calls, the callers of
the other half continue. The number of calls and bytes is limited; above that callers wait, and get an error
at the timeout. So memory stays bounded while Redis is away.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyasynq._broker.enqueueing.batcher import Batcher
from pyasynq._broker.registrar_async import AsyncRegistrar
from pyasynq._redis.loop_local import LoopLocal
from pyasynq.errors import RedisUnavailableError, ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._clock import Clock
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq.task import EnqueueResult

_WORTH_A_BATCH: Final = 32
"""Number of waiting calls that justify a second batch while one is in flight."""


class _Room:
    """Calls and bytes that were admitted and not answered yet (admission control, back-pressure)."""

    def __init__(self, max_calls: int, max_bytes: int) -> None:
        self._max_calls = max_calls
        self._max_bytes = max_bytes
        self.calls = 0
        self.bytes = 0

    def take_in(self, size: int) -> bool:
        """Admit a call if it fits, or if no other call is in progress; return whether it was admitted."""
        if self.calls and (self.calls >= self._max_calls or self.bytes + size > self._max_bytes):
            return False
        self.calls += 1
        self.bytes += size
        return True

    def let_out(self, composed: Sequence[Composed]) -> None:
        """Release the room of calls that have been answered, or given up."""
        self.calls -= len(composed)
        self.bytes -= sum([len(item.encoded) for item in composed])


_CLOSED: Final = "the client was closed meanwhile"

_Call: TypeAlias = "tuple[Composed, asyncio.Future[EnqueueResult | None]]"


class _AsyncQueue:
    """Waiting calls of one event loop for one node."""

    def __init__(self, room: _Room) -> None:
        self.loop = asyncio.get_running_loop()
        self.room = room
        self.calls: list[_Call] = []
        self.outside: deque[tuple[Composed, asyncio.Future[None]]] = deque()
        self.flushers = 0

    def take_batch(self, at_once: int) -> list[_Call]:
        """Remove the oldest calls from the queue, and return them as the next batch.

        A long queue is divided evenly among `at_once` batches, the maximum number in flight.
        """
        count = max(_WORTH_A_BATCH, ceil(self.room.calls / at_once))
        batch, self.calls = self.calls[:count], self.calls[count:]
        return batch

    def let_in(self) -> None:
        """Admit waiting calls in the order of arrival, as far as there is room."""
        while self.outside:
            composed, admission = self.outside[0]
            if not admission.done():
                if not self.room.take_in(len(composed.encoded)):
                    return
                admission.set_result(None)
            self.outside.popleft()


class _NodeQueues(defaultdict[str, _AsyncQueue]):
    """The call queues of one event loop, by the cluster node that the calls go to."""


class EnqueueBatcher(Batcher["AsyncDriver"]):
    """Enqueues for many coroutines at once over one driver.

    A separate batcher takes the `durable` tasks, which replicas must confirm. While it waits for replicas, it
    occupies one connection and does not delay other tasks.
    """

    def __init__(self, driver: AsyncDriver, clock: Clock, **settings: Any) -> None:
        super().__init__(driver, clock, **settings)
        self._registrar = AsyncRegistrar(driver, apart=self._durable and driver.stays_open)
        self._batches_at_once = 1 if self._durable else 2
        room = partial(_Room, self._max_calls, self._max_bytes)
        self._queues = LoopLocal(lambda: _NodeQueues(lambda: _AsyncQueue(room())), lambda _: None)

    def enqueue(self, composed: Composed) -> Awaitable[EnqueueResult | None]:
        """Enqueue one task, batched with concurrent calls.

        Await the return value: it gives the task's result, None if it was enqueued as a new task. If the
        caller is cancelled before the batch leaves, the task is not enqueued; after that it may be.

        Raises:
            RedisUnavailableError: when there was no room for the call within the timeout.
        """
        self._driver.check_open()
        queue = self._queues.here()[self._find_node(composed) if self._is_cluster else ""]
        if queue.outside or not queue.room.take_in(len(composed.encoded)):
            return self._enqueue_when_there_is_room(queue, composed)
        return self._enqueue_next(queue, composed)

    def start_all(self, composed: Sequence[Composed]) -> asyncio.Task[list[EnqueueResult]]:
        """Start to enqueue tasks as a batch of their own; `wait_for` returns a result for each."""
        self._driver.check_open()
        return self._driver.start_task(self._send_all(composed))

    async def wait_for(self, started: asyncio.Task[list[EnqueueResult]]) -> list[EnqueueResult]:
        """Wait for the batch of `start_all`; return its results. A cancelled caller does not cancel it."""
        return await self._driver.wait_for(started)

    async def close(self) -> None:
        """Stop registering queue names; to be called when the driver is closed."""
        await self._registrar.close()

    def abandon(self) -> None:
        """Stop registering queue names. Callable from any thread; for destructors."""
        self._registrar.abandon()

    async def _send_all(self, composed: Sequence[Composed]) -> list[EnqueueResult]:
        if not composed:
            return []
        batch = self._batch(composed)
        return batch.results(await self._registrar.run(batch.plans, batch.queues))

    async def _flush(self, queue: _AsyncQueue) -> None:
        try:
            while queue.calls:
                await self._send(queue, queue.take_batch(self._batches_at_once))
                # Callers that were answered or admitted continue before the next batch leaves, and may join
                # it.
                await asyncio.sleep(0)
        finally:
            queue.flushers -= 1
            # Calls are left only if this task was cancelled.
            _fail(queue.calls, RedisUnavailableError(self._driver.target.address, _CLOSED))

    async def _send(self, queue: _AsyncQueue, calls: list[_Call]) -> None:
        wanted = [waiting for waiting in calls if not waiting[1].done()]
        try:
            batch = self._batch([composed for composed, _ in wanted])
            others = batch.other_results(await self._registrar.run(batch.plans, batch.queues))
        except asyncio.CancelledError:
            _fail(wanted, ReplyLostError(self._driver.target.address, _CLOSED))
            raise
        except Exception as error:  # noqa: BLE001 - each caller of the batch gets it
            _fail(wanted, error)
        else:
            for position, (_, call) in enumerate(wanted):
                if not call.done():
                    call.set_result(others.get(position))
        finally:
            queue.room.let_out([composed for composed, _ in calls])
            queue.let_in()

    async def _enqueue_when_there_is_room(
        self, queue: _AsyncQueue, composed: Composed
    ) -> EnqueueResult | None:
        admission: asyncio.Future[None] = queue.loop.create_future()
        queue.outside.append((composed, admission))
        try:
            async with asyncio.timeout(self._driver.timeout):
                await admission
        except BaseException as error:
            if admission.done() and not admission.cancelled():
                queue.room.let_out([composed])
                queue.let_in()
            if isinstance(error, TimeoutError):
                raise self._no_room(queue.room.calls, queue.room.bytes) from None
            raise
        return await self._enqueue_next(queue, composed)

    def _enqueue_next(self, queue: _AsyncQueue, composed: Composed) -> asyncio.Future[EnqueueResult | None]:
        """Queue an admitted call, start to send batches if needed, and return the future of its result."""
        call: asyncio.Future[EnqueueResult | None] = queue.loop.create_future()
        queue.calls.append((composed, call))
        at_once = self._batches_at_once if len(queue.calls) >= _WORTH_A_BATCH else 1
        if queue.flushers < at_once:
            queue.flushers += 1
            self._driver.start_task(self._flush(queue))
        return call


def _fail(calls: Sequence[_Call], error: Exception) -> None:
    for _, call in calls:
        if not call.done():
            call.set_exception(error)
