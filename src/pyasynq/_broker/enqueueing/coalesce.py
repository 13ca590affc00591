"""Coalescing: enqueue calls made while one batch is on its way leave together as the next batch.

There is no timer. A lone call leaves at once, as a batch of one; under load batches grow by themselves. Where
many coroutines call, two batches are on their way: while Redis takes one half of the calls, the callers of
the other half go on.
Only so many calls and bytes are taken in; then callers wait, and past the time-out they get an error, so
memory stays bounded while Redis is away.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from pyasynq._broker.enqueueing.chunks import RunBatch
from pyasynq._broker.queue_registry import QueueRegistry
from pyasynq.errors import RedisUnavailableError, ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from pyasynq._broker.drivers.driver import AsyncDriver, BlockingDriver
    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._clock import Clock
    from pyasynq.task import EnqueueResult

D = TypeVar("D", bound="AsyncDriver | BlockingDriver")

MAX_CALLS: Final = 10_000
MAX_BYTES: Final = 16_000_000
_WORTH_A_BATCH: Final = 32
"""So many calls wait for a second batch; fewer cost more as two batches than Redis is kept waiting by one."""


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

    def full(self, address: str, seconds: float) -> RedisUnavailableError:
        """Return the error for a call that waited in vain."""
        cause = f"{self.calls:,} calls with {self.bytes:,} bytes were waiting for it during {seconds:g} s"
        return RedisUnavailableError(address, cause)


class _Batcher(Generic[D]):
    """What both batchers have: a driver, bounds of what they take in, and what makes a batch of that."""

    def __init__(
        self,
        driver: D,
        clock: Clock,
        *,
        max_calls: int = MAX_CALLS,
        max_bytes: int = MAX_BYTES,
        events_kept: int = 0,
        durable: bool = False,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._limits = (max_calls, max_bytes)
        self._events_kept = events_kept
        self._durable = durable
        self._registry = QueueRegistry()

    def _new_room(self) -> _Room:
        return _Room(*self._limits)

    def _batch(self, composed: Sequence[Composed]) -> RunBatch:
        return RunBatch(
            composed,
            now=self._clock.now(),
            registry=self._registry,
            events_kept=self._events_kept,
            durable=self._durable,
        )


_CLOSED: Final = "the client was closed meanwhile"

_Call: TypeAlias = "tuple[Composed, asyncio.Future[EnqueueResult | None]]"


class _AsyncQueue:
    """Calls that wait within one event loop of one process."""

    def __init__(self, room: _Room) -> None:
        self.pid = os.getpid()
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


class EnqueueBatcher(_Batcher["AsyncDriver"]):
    """Enqueues for many coroutines at once over one driver.

    A `durable` one takes the tasks that replicas are to have: while it waits for those, it holds one
    connection, and nobody else's tasks.
    """

    def __init__(self, driver: AsyncDriver, clock: Clock, **settings: Any) -> None:
        super().__init__(driver, clock, **settings)
        self._batches_at_once = 1 if self._durable else 2
        self._queue: _AsyncQueue | None = None

    def enqueue(self, composed: Composed) -> Awaitable[EnqueueResult | None]:
        """Enqueue one task, together with what others ask for at the same time.

        Await what this returns: it comes to the task's result, None if the task was simply enqueued.
        Cancelled before its batch leaves, the task is not enqueued; after that it may be.

        Raises:
            RedisUnavailableError: when too many calls have been waiting for the whole time-out.
        """
        self._driver.check_open()
        queue = self._at_home()
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

    async def _send_all(self, composed: Sequence[Composed]) -> list[EnqueueResult]:
        if not composed:
            return []
        batch = self._batch(composed)
        return batch.results(await self._driver.run_unshielded(batch.plans))

    async def _flush(self, queue: _AsyncQueue) -> None:
        try:
            while queue.calls:
                await self._send(queue, queue.take_batch(self._batches_at_once))
                # Who was answered or let in goes on before the next batch leaves, and may join it.
                await asyncio.sleep(0)
        finally:
            queue.flushers -= 1
            # There are none unless this task was cancelled.
            _fail(queue.calls, RedisUnavailableError(self._driver.target.address, _CLOSED))

    async def _send(self, queue: _AsyncQueue, calls: list[_Call]) -> None:
        wanted = [waiting for waiting in calls if not waiting[1].done()]
        try:
            batch = self._batch([composed for composed, _ in wanted])
            others = batch.other_results(await self._driver.run_unshielded(batch.plans))
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
                raise queue.room.full(self._driver.target.address, self._driver.timeout) from None
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

    def _at_home(self) -> _AsyncQueue:
        queue = self._queue
        if queue is None or queue.loop is not asyncio.get_running_loop() or queue.pid != os.getpid():
            queue = self._queue = _AsyncQueue(self._new_room())
        return queue


def _fail(calls: Sequence[_Call], error: Exception) -> None:
    for _, call in calls:
        if not call.done():
            call.set_exception(error)


class _Ticket:
    """One thread's call. `ready` is there if it has to wait: for a result, or for its turn to lead."""

    __slots__ = ("composed", "is_answered", "outcome", "ready")

    def __init__(self, composed: Composed) -> None:
        self.composed = composed
        self.is_answered = False
        self.outcome: EnqueueResult | Exception | None = None
        self.ready: threading.Event | None = None

    def answer(self, outcome: EnqueueResult | Exception | None) -> None:
        self.outcome = outcome
        self.is_answered = True


class _ThreadQueue:
    """Calls that wait within one process."""

    def __init__(self, room: _Room) -> None:
        self.pid = os.getpid()
        self.room = room
        self.changed = threading.Condition()
        self.tickets: list[_Ticket] = []
        self.is_led = False

    def name_leader(self) -> None:
        """Wake the first of those who wait; it sends for all of them."""
        self.is_led = bool(self.tickets)
        if self.tickets and self.tickets[0].ready is not None:
            self.tickets[0].ready.set()

    def leave(self, ticket: _Ticket) -> None:
        """Take a ticket back whose thread will neither lead nor wait; the caller holds the lock."""
        if ticket in self.tickets:
            was_leader = ticket.ready is None or ticket.ready.is_set()
            self.tickets.remove(ticket)
            self.room.let_out([ticket.composed])
            if was_leader:
                self.name_leader()


class BlockingEnqueueBatcher(_Batcher["BlockingDriver"]):
    """Enqueues for many threads at once over one driver, without a thread of its own.

    The first caller leads: it sends the batch. Who calls meanwhile follows: they wait, and the first of them
    leads the next batch, which is all of theirs. `durable` is as for `EnqueueBatcher`.
    """

    def __init__(self, driver: BlockingDriver, clock: Clock, **settings: Any) -> None:
        super().__init__(driver, clock, **settings)
        self._queue = _ThreadQueue(self._new_room())

    def enqueue(self, composed: Composed) -> EnqueueResult | None:
        """Enqueue one task, together with what other threads ask for at the same time.

        Returns:
            the task's result, None if the task was simply enqueued.

        Raises:
            RedisUnavailableError: when too many calls have been waiting for the whole time-out.
        """
        self._driver.check_open()
        if self._queue.pid != os.getpid():
            self._queue = _ThreadQueue(self._new_room())
        queue = self._queue
        ticket = _Ticket(composed)
        try:
            with queue.changed:
                self._take_room(queue, len(composed.encoded))
                queue.tickets.append(ticket)
                if queue.is_led:
                    ticket.ready = threading.Event()
                queue.is_led = True
            if ticket.ready is not None:
                ticket.ready.wait()
            if not ticket.is_answered:
                self._lead(queue)
        except BaseException:  # a signal handler raised: nobody may wait for this thread
            with queue.changed:
                queue.leave(ticket)
            raise
        if isinstance(ticket.outcome, Exception):
            raise ticket.outcome
        return ticket.outcome

    def enqueue_all(self, composed: Sequence[Composed]) -> list[EnqueueResult]:
        """Enqueue tasks as a batch of their own; return a result for each."""
        if not composed:
            return []
        batch = self._batch(composed)
        return batch.results(self._driver.run_batch(batch.plans))

    def _take_room(self, queue: _ThreadQueue, size: int) -> None:
        room = queue.room
        seconds = self._driver.timeout
        if not room.take_in(size) and not queue.changed.wait_for(lambda: room.take_in(size), seconds):
            raise room.full(self._driver.target.address, seconds)

    def _lead(self, queue: _ThreadQueue) -> None:
        tickets: list[_Ticket] = []
        try:
            with queue.changed:
                tickets, queue.tickets = queue.tickets, []
            self._send(tickets)
        except BaseException:  # a signal handler raised
            cause = "the thread that sent the batch was interrupted"
            lost = ReplyLostError(self._driver.target.address, cause)
            for ticket in tickets:
                if not ticket.is_answered:
                    ticket.answer(lost)
            raise
        finally:
            with queue.changed:
                queue.room.let_out([ticket.composed for ticket in tickets])
                queue.changed.notify_all()
                queue.name_leader()
            for ticket in tickets:
                if ticket.ready is not None:
                    ticket.ready.set()

    def _send(self, tickets: list[_Ticket]) -> None:
        try:
            batch = self._batch([ticket.composed for ticket in tickets])
            others: Mapping[int, EnqueueResult | Exception] = batch.other_results(
                self._driver.run_batch(batch.plans)
            )
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
            others = dict.fromkeys(range(len(tickets)), error)
        for position, ticket in enumerate(tickets):
            ticket.answer(others.get(position))
