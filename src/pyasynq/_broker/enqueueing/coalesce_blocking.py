"""Coalescing for threads (group commit): calls made while a batch is being sent form the next batch.

A signal handler may raise an exception between any two steps, and may enqueue as well. So nothing here
holds a lock. Each shared step is one operation of a dict or an attribute, which is atomic; each
thread removes its own entry in a `finally`; and each wait ends after a while to check again.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from pyasynq._broker.enqueueing.batcher import Batcher
from pyasynq._broker.registrar_blocking import BlockingRegistrar
from pyasynq._redis.thread_waiter import ThreadWaiter
from pyasynq.errors import PyasynqError, ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._clock import Clock
    from pyasynq._redis.driver import BlockingDriver
    from pyasynq.task import EnqueueResult

_LOOK_AGAIN: Final = 0.5
"""Seconds after which a waiting thread checks for itself, in case its wake-up was lost."""
_ROUNDS: Final = 5
"""Number of timeouts after which a batch is given up: it may need one for each of its rounds.

The rounds are: connecting, registering queue names, tasks, waiting for replicas, and events.
"""


class _Sending:
    """State of a batch that one thread sends; the calls of the batch refer to it."""

    __slots__ = ("is_over", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.is_over = False


class _Ticket:
    """An enqueue call of one thread, waiting for its batch."""

    __slots__ = ("_claims", "composed", "is_answered", "is_over", "outcome", "waiter")

    def __init__(self, composed: Composed) -> None:
        self.composed = composed
        self.is_over = False
        """Whether its thread has left; written by that thread, read by the leaders."""
        self.is_answered = False
        self.outcome: EnqueueResult | Exception | None = None
        self.waiter: ThreadWaiter | None = None
        self._claims: dict[str, _Sending] = {}

    def claim(self, sending: _Sending) -> bool:
        """Claim the call for a batch; return False if another batch has claimed it (compare-and-set)."""
        return self._claims.setdefault("batch", sending) is sending

    @property
    def sending(self) -> _Sending | None:
        """The batch that has claimed the call."""
        return self._claims.get("batch")

    def answer(self, outcome: EnqueueResult | Exception | None) -> None:
        self.outcome = outcome
        self.is_answered = True

    def wake(self) -> None:
        """End the wait of its thread."""
        if self.waiter is not None:
            self.waiter.wake()


class _ThreadQueue:
    """Enqueue calls of one process: those waiting for a batch and those in flight."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.tickets: dict[_Ticket, None] = {}
        """Calls in order of arrival. Each thread inserts and removes its own."""
        self.outside: dict[ThreadWaiter, None] = {}
        """Threads whose calls are not admitted yet (back-pressure)."""
        self.newest: _Sending | None = None
        """The newest batch. It may be one of several: two threads sending at once do no harm."""

    def may_send(self) -> bool:
        """Return whether the calling thread may send: no batch is in flight, or this thread is sending it.

        A thread enqueues while it sends (reentrant) if a signal handler, destructor or log handler does.
        """
        newest = self.newest
        return newest is None or newest.is_over or newest.thread == threading.get_ident()

    def take_batch(self, sending: _Sending) -> list[_Ticket]:
        """Claim all unclaimed calls for a batch, and return them."""
        self.newest = sending
        return [ticket for ticket in list(self.tickets) if not ticket.is_over and ticket.claim(sending)]

    def hand_over(self, tickets: Sequence[_Ticket]) -> None:
        """Wake the threads of a batch, and the one that leads the next batch."""
        for ticket in tickets:
            ticket.wake()
        for ticket in list(self.tickets):
            if ticket.sending is None:
                ticket.wake()
                break

    def wake_outside(self) -> None:
        """Wake the threads whose calls are not admitted yet, so that they check again."""
        for waiter in list(self.outside):
            waiter.wake()


class BlockingEnqueueBatcher(Batcher["BlockingDriver"]):
    """Enqueues for many threads at once over one driver, without a thread of its own (leader/follower).

    The first caller leads: it sends the batch. Threads that call meanwhile follow: they wait, and the first
    of them leads the next batch, which has all their calls. `durable` is as for `EnqueueBatcher`.
    """

    def __init__(self, driver: BlockingDriver, clock: Clock, **settings: Any) -> None:
        super().__init__(driver, clock, **settings)
        self._registrar = BlockingRegistrar(driver, apart=self._durable)
        self._queues: dict[str, _ThreadQueue] = {}
        """Queue of calls for each cluster node; a single server has the empty name."""
        self._largest = 0
        """Bytes of the largest call so far.

        While there is room for many of this size, sizes are not added up.
        """

    def enqueue(self, composed: Composed) -> EnqueueResult | None:
        """Enqueue one task, batched with calls of other threads.

        A signal handler may call this during a call of its own thread (reentrant). It then sends a batch at
        once, with all waiting calls, because the outer call cannot go on.

        Returns:
            the task's result, None if it was enqueued as a new task.

        Raises:
            RedisUnavailableError: when there was no room for the call within the timeout.
            ReplyLostError: the thread that sends the batch was interrupted, or takes too long.
        """
        self._driver.check_open()
        node = self._find_node(composed) if self._is_cluster else ""
        queue = self._queues.get(node) or self._queues.setdefault(node, _ThreadQueue())
        if queue.pid != os.getpid():
            queue = self._queues[node] = _ThreadQueue()
        ticket = _Ticket(composed)
        try:
            if queue.tickets:
                self._wait_for_room(queue, len(composed.encoded))
            queue.tickets[ticket] = None
            if queue.may_send():
                self._lead(queue)
            if not ticket.is_answered:
                self._follow(queue, ticket)
        finally:
            ticket.is_over = True
            queue.tickets.pop(ticket, None)
            if queue.outside:
                queue.wake_outside()
        if isinstance(ticket.outcome, Exception):
            raise ticket.outcome
        return ticket.outcome

    def enqueue_all(self, composed: Sequence[Composed]) -> list[EnqueueResult]:
        """Enqueue tasks as a batch of their own; return a result for each."""
        if not composed:
            return []
        batch = self._batch(composed)
        return batch.results(self._registrar.run(batch.plans, batch.queues))

    def close(self) -> None:
        """Stop registering queue names; to be called when the driver is closed."""
        self._registrar.close()

    def abandon(self) -> None:
        """Stop registering queue names. Callable from any thread; for destructors."""
        self._registrar.abandon()

    def _wait_for_room(self, queue: _ThreadQueue, size: int) -> None:
        if self._has_room(queue, size):
            return
        waiter = ThreadWaiter()
        deadline = time.monotonic() + self._driver.timeout
        try:
            queue.outside[waiter] = None
            while not self._has_room(queue, size):
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise self._no_room(len(queue.tickets), _sum_bytes(queue.tickets))
                waiter.wait(min(remaining, _LOOK_AGAIN))
        finally:
            queue.outside.pop(waiter, None)

    def _has_room(self, queue: _ThreadQueue, size: int) -> bool:
        """Return whether to admit a call: it fits, or is the only call. Record the largest size so far."""
        calls = len(queue.tickets)
        self._largest = max(self._largest, size)
        if calls == 0 or (calls < self._max_calls and (calls + 1) * self._largest <= self._max_bytes):
            return True
        return calls < self._max_calls and _sum_bytes(queue.tickets) + size <= self._max_bytes

    def _lead(self, queue: _ThreadQueue) -> None:
        """Lead a batch: send all unclaimed calls, then wake the threads that wait for them."""
        sending = _Sending()
        tickets: list[_Ticket] = []
        try:
            tickets = queue.take_batch(sending)
            if tickets:
                self._send(tickets)
        except (
            BaseException
        ) as error:  # usually raised by a signal handler: other threads must not get its error
            cause = f"the thread that sent the batch was interrupted by {type(error).__name__}"
            _answer_lost(tickets, self._lost(cause))
            raise
        finally:
            sending.is_over = True
            if len(queue.tickets) > 1:
                queue.hand_over(tickets)

    def _follow(self, queue: _ThreadQueue, ticket: _Ticket) -> None:
        """Wait until the call is answered; lead a batch if it is this thread's turn."""
        waiter = ticket.waiter = ThreadWaiter()
        patience = self._driver.timeout
        began = time.monotonic()
        while not ticket.is_answered:
            sending = ticket.sending
            waited = time.monotonic() - began
            if sending is None and (waited > patience or queue.may_send()):
                self._lead(queue)
            elif sending is None:
                waiter.wait(min(patience, _LOOK_AGAIN))
            elif sending.is_over:
                # The sending thread has answered all calls by now, unless it was interrupted.
                _answer_lost([ticket], self._lost("the thread that sent the batch was interrupted"))
            elif waited > _ROUNDS * patience:
                _answer_lost(
                    [ticket], self._lost(f"the thread that sends the batch took over {waited:.3g} s")
                )
            else:
                waiter.wait(_LOOK_AGAIN)

    def _send(self, tickets: list[_Ticket]) -> None:
        try:
            batch = self._batch([ticket.composed for ticket in tickets])
            others: Mapping[int, EnqueueResult | Exception] = batch.other_results(
                self._registrar.run(batch.plans, batch.queues)
            )
        except PyasynqError as error:
            others = dict.fromkeys(range(len(tickets)), error)
        for position, ticket in enumerate(tickets):
            ticket.answer(others.get(position))

    def _lost(self, cause: str) -> ReplyLostError:
        return ReplyLostError(self._driver.target.address, cause)


def _answer_lost(tickets: Sequence[_Ticket], error: ReplyLostError) -> None:
    for ticket in tickets:
        if not ticket.is_answered:
            ticket.answer(error)


def _sum_bytes(tickets: Mapping[_Ticket, None]) -> int:
    return sum([len(ticket.composed.encoded) for ticket in list(tickets)])
