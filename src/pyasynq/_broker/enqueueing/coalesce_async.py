"""Coalescing for asyncio: enqueue calls made while one batch is on its way leave together as the next batch.

There is no timer. A lone call leaves at once, as a batch of one; under load batches grow by themselves. Where
many coroutines call, two batches are on their way: while Redis takes one half of the calls, the callers of
the other half go on.
The number of calls and bytes is limited; above that callers wait, and past the time-out they get an error, so
memory stays bounded while Redis is away.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyasynq._broker.enqueueing.batcher import Batcher
from pyasynq._broker.registrar_async import AsyncRegistrar
from pyasynq._redis.loop_homes import LoopHomes
from pyasynq.errors import RedisUnavailableError, ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._clock import Clock
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq.task import EnqueueResult

_WORTH_A_BATCH: Final = 32
"""Calls that must wait before a second batch leaves. With fewer, a second batch costs more than it gains."""


class _Room:
    """How much is taken in and not answered yet."""

    def __init__(self, max_calls: int, max_bytes: int) -> None:
        self._max_calls = max_calls
        self._max_bytes = max_bytes
        self.calls = 0
        self.bytes = 0

    def take_in(self, size: int) -> bool:
        """Take one more call in if it fits; one larger than the whole room fits when it is alone."""
        if self.calls and (self.calls >= self._max_calls or self.bytes + size > self._max_bytes):
            return False
        self.calls += 1
        self.bytes += size
        return True

    def let_out(self, composed: Sequence[Composed]) -> None:
        """Give back what calls took that have been answered, or will not be."""
        self.calls -= len(composed)
        self.bytes -= sum([len(item.encoded) for item in composed])


_CLOSED: Final = "the client was closed meanwhile"

_Call: TypeAlias = "tuple[Composed, asyncio.Future[EnqueueResult | None]]"


class _AsyncQueue:
    """Calls that wait within one event loop of one process."""

    def __init__(self, room: _Room) -> None:
        self.loop = asyncio.get_running_loop()
        self.room = room
        self.calls: list[_Call] = []
        self.outside: deque[tuple[Composed, asyncio.Future[None]]] = deque()
        self.flushers = 0

    def take_batch(self, at_once: int) -> list[_Call]:
        """Take the calls of the next batch, those that came first: of many, each batch has an equal share."""
        count = max(_WORTH_A_BATCH, ceil(self.room.calls / at_once))
        batch, self.calls = self.calls[:count], self.calls[count:]
        return batch

    def let_in(self) -> None:
        """Take in who waits outside, in the order of arrival, as far as there is room."""
        while self.outside:
            composed, admission = self.outside[0]
            if not admission.done():
                if not self.room.take_in(len(composed.encoded)):
                    return
                admission.set_result(None)
            self.outside.popleft()


class _NodeQueues(defaultdict[str, _AsyncQueue]):
    """The queues of calls of one event loop, by the node that gets them."""


class EnqueueBatcher(Batcher["AsyncDriver"]):
    """Enqueues for many coroutines at once over one driver.

    A `durable` one takes the tasks that replicas are to have: while it waits for those, it holds one
    connection, and no tasks of other callers.
    """

    def __init__(self, driver: AsyncDriver, clock: Clock, **settings: Any) -> None:
        super().__init__(driver, clock, **settings)
        self._registrar = AsyncRegistrar(driver, apart=self._durable and driver.stays_open)
        self._batches_at_once = 1 if self._durable else 2
        room = partial(_Room, self._max_calls, self._max_bytes)
        self._queues = LoopHomes(lambda: _NodeQueues(lambda: _AsyncQueue(room())), lambda _: None)

    def enqueue(self, composed: Composed) -> Awaitable[EnqueueResult | None]:
        """Enqueue one task, together with what others ask for at the same time.

        Await the return value: it gives the task's result, None if the task was simply enqueued.
        Cancelled before its batch leaves, the task is not enqueued; after that it may be.

        Raises:
            RedisUnavailableError: when too many calls have been waiting for the whole time-out.
        """
        self._driver.check_open()
        queue = self._queues.here()[self._node_of(composed) if self._is_cluster else ""]
        if queue.outside or not queue.room.take_in(len(composed.encoded)):
            return self._enqueue_when_there_is_room(queue, composed)
        return self._enqueue_next(queue, composed)

    def start_all(self, composed: Sequence[Composed]) -> asyncio.Task[list[EnqueueResult]]:
        """Start to enqueue tasks as a batch of their own, with a result for each; `wait_for` has them."""
        self._driver.check_open()
        return self._driver.start_task(self._send_all(composed))

    async def wait_for(self, started: asyncio.Task[list[EnqueueResult]]) -> list[EnqueueResult]:
        """Wait for what `start_all` has started. Cancelled, it leaves that on its way."""
        return await self._driver.wait_for(started)

    async def close(self) -> None:
        """Register no more queues; call it when the driver is closed."""
        await self._registrar.close()

    def abandon(self) -> None:
        """Register no more queues, from whatever thread. For destructors."""
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
                # Callers that were answered or let in go on before the next batch leaves, and may join it.
                await asyncio.sleep(0)
        finally:
            queue.flushers -= 1
            # There are none unless this task was cancelled.
            _fail(queue.calls, RedisUnavailableError(self._driver.target.address, _CLOSED))

    async def _send(self, queue: _AsyncQueue, calls: list[_Call]) -> None:
        wanted = [waiting for waiting in calls if not waiting[1].done()]
        try:
            batch = self._batch([composed for composed, _ in wanted])
            others = batch.other_results(await self._registrar.run(batch.plans, batch.queues))
        except asyncio.CancelledError:
            _fail(wanted, ReplyLostError(self._driver.target.address, _CLOSED))
            raise
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
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
        """Let a call that has been taken in wait for the next batch, and see to it that there will be one."""
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
