"""Demand of a server: its handler slots, and the prefetched tasks that wait for one."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pyasynq._engine.run.attempt import SETTLING
from pyasynq._engine.run.outcome import LET_GO, REQUEUE
from pyasynq._engine.take.prefetch import Prefetch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.run.runner import Runner
    from pyasynq._engine.take.queue_board import ServedQueue
    from pyasynq.config import ServerConfig


ASKS_AT_ONCE: Final = 16
"""Maximum number of dequeue calls for one queue in a round, each for another pending take.

The first call that a take sends to the queue is not limited.
"""


class Want:
    """A request for tasks of some queues, with the length of their leases.

    Attributes:
        queues: names; None for all queues of the engine.
        unasked: queues that are asked for this request regardless of their known state.
        renewed: whether the heartbeat renews the leases.
        in_flight: number of its dequeue calls without an answer.
    """

    __slots__ = ("in_flight", "lease", "limit", "queues", "renewed", "unasked")

    def __init__(
        self, limit: int, lease: int, queues: Iterable[str] | None = None, *, renewed: bool = True
    ) -> None:
        self.limit = limit
        self.lease = lease
        self.renewed = renewed
        self.queues = None if queues is None else frozenset(queues)
        self.unasked = set(self.queues or ())
        self.in_flight = 0

    def accepts(self, queue: str) -> bool:
        """Return whether tasks of a queue are wanted."""
        return self.queues is None or queue in self.queues

    def asked(self, queue: str) -> None:
        """Record that a dequeue call is sent for this request."""
        self.in_flight += 1
        self.unasked.discard(queue)

    def heard(self, error: Exception | None) -> None:  # noqa: ARG002 - subclasses use it
        """Record that a dequeue call was answered or failed."""
        self.in_flight -= 1


class Capacity(NamedTuple):
    """Number of tasks that the engine may take now.

    Attributes:
        room: number of free slots, not counting slots that calls in flight may fill.
        overlap_from: smallest `room` at which a second call is sent while another is in flight; None for one
            call at a time.
        is_over: whether no more tasks will be wanted.
    """

    room: int
    overlap_from: int | None = None
    is_over: bool = False


class Sink(Protocol):
    """Receiver of taken tasks: free handler slots of a server, or pending `take()` calls of a consumer.

    Used by the intake. All of it belongs to the event loop.
    """

    taking: bool
    """Whether tasks are taken and started; shutdown and SIGTSTP end it. Written by the intake."""

    def capacity(self, reserved: int) -> Capacity:
        """Return the number of tasks to take now; calls in flight may bring `reserved` tasks."""

    def wants(self, room: int, suspected: Collection[ServedQueue]) -> Sequence[Want]:
        """Return the requests, most urgent first, for at most `room` tasks together.

        Queues in which a suspect waits may be asked for it regardless of their known state.
        """

    @property
    def held(self) -> Collection[Attempt]:
        """The attempts that have not ended, including those that have not started."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held."""

    @property
    def give_back_at(self) -> float:
        """Monotonic time from which attempts that have not started are put back; infinity for never."""

    def accept(self, taken: Sequence[tuple[Want, Sequence[Attempt]]], *, may_wait: bool) -> None:
        """Accept the tasks of a pipeline's replies, and start them where slots are free.

        Args:
            taken: requests, each with attempts of one queue that are on the roster.
            may_wait: whether tasks may be prefetched from now on.
        """

    def give_back(self, queue: str | None = None) -> Sequence[Attempt]:
        """Remove and return unstarted attempts of one queue, or of all queues, which are then put back."""

    def serve(self, priorities: Mapping[str, int]) -> None:
        """Accept tasks of exactly these queues from now on, with these priorities.

        The caller has put back the unstarted tasks of other queues. Running attempts go on. A waiting `take`
        that names only other queues fails.
        """


_LEAST_OVERLAPPED = 100
_MOST_AT_ONCE = 400
_LEAST_IN_A_TURN = 25


class Slots:
    """Demand of a server: at most as many tasks as handlers may run, plus the prefetch.

    With enough slots no call asks for more than half of them: one half is filled while the other works.
    With fewer slots there is one call at a time. Then half of the tasks start in one turn of the event loop,
    and their outcomes are sent before the other half starts. So Redis and the handlers do not wait for each
    other.
    """

    def __init__(self, parts: Parts, runner: Runner) -> None:
        config = parts.config
        self._parts = parts
        self._clock = parts.clock
        self._concurrency = config.concurrency
        self._runner = runner
        self._running = runner.running
        self._prefetch = Prefetch(config.prefetch, parts.settings, config.priorities)
        self._prefetches = may_prefetch(config, config.queues)
        self._left = config.max_tasks
        self.taking = True
        self._loop = asyncio.get_running_loop()
        self._begins_soon = False
        self._turns_to_send = 3 if parts.driver.target.is_cluster else 2
        self.on_end: Callable[[], None] = lambda: None
        """Called when a handler has ended. Written by the intake."""
        runner.on_end = self._on_end
        self._resize(may_wait=False)

    def _resize(self, *, may_wait: bool) -> None:
        """Compute the limits of tasks held at a time, and of tasks requested by one call."""
        self._prefetch.learn(self._clock.monotonic())
        ahead = self._prefetch.allowed if may_wait and self._prefetches else 0
        self._capacity = self._most = self._concurrency + ahead
        self._overlap_from: int | None = None
        if self._capacity >= _LEAST_OVERLAPPED:
            self._most = min(self._capacity // 2, _MOST_AT_ONCE)
            self._overlap_from = self._most // 2

    def capacity(self, reserved: int) -> Capacity:
        """Return the number of tasks to take now."""
        room, left = self._capacity - len(self._running) - self._prefetch.number, self._left
        room = (room if left is None else min(room, left)) - reserved
        return Capacity(room, self._overlap_from, left == 0)

    def wants(self, room: int, suspected: Collection[ServedQueue]) -> Sequence[Want]:  # noqa: ARG002 - it wants all
        """Return one request, for as many tasks as one call may bring."""
        return (Want(min(room, self._most), self._parts.settings.lease),)

    @property
    def is_idle(self) -> bool:
        """Whether no handler runs, and no task waits for a slot."""
        return not self._running and not self._prefetch.number

    @property
    def give_back_at(self) -> float:
        """Return the monotonic time at which waiting tasks are put back; 0 if no more handlers start."""
        if not self._prefetch.number:
            return math.inf
        return self._prefetch.patient_until if self.taking else 0.0

    @property
    def held(self) -> Collection[Attempt]:
        """The attempts that run, and those that wait for a slot."""
        return [*self._running, *self._prefetch] if self._prefetch.number else self._running

    def accept(self, taken: Sequence[tuple[Want, Sequence[Attempt]]], *, may_wait: bool) -> None:
        """Run handlers in free slots, as many as may start in one turn of the loop; the others wait."""
        self._resize(may_wait=may_wait)
        for _, attempts in taken:
            if self._left is not None:
                self._left -= len(attempts)
            if attempts:
                self._prefetch.add(attempts[0].queue, attempts)
        # Send outcomes first: handlers may hold up the loop.
        self._begin(later=self._parts.settles.fresh > 0)

    def _begin(self, *, later: bool) -> None:
        if self._overlap_from is not None:
            self._run(self._concurrency)
        elif not later:
            self._run(max(_LEAST_IN_A_TURN, (self._capacity + 1) // 2))
        self._begin_later()

    def _run(self, most: int) -> None:
        number = min(most, self._concurrency - len(self._running), self._prefetch.number)
        if number <= 0 or not self.taking:
            return
        now = self._clock.monotonic()
        for attempt in self._prefetch.take(number):
            if attempt.lost or now >= attempt.lease_until:
                # No handler ran. If the task is not another worker's, its lease is renewed and it is put
                # back.
                attempt.phase = SETTLING
                self._parts.settles.put(attempt, LET_GO if attempt.lost else REQUEUE)
            else:
                self._runner.start(attempt)

    def give_back(self, queue: str | None = None) -> Sequence[Attempt]:
        """Return the waiting attempts to put back; start cancelled attempts without a slot, so that they end.

        Without a queue, return all if one has waited too long or taking has ended, otherwise none.
        """
        if queue is not None:
            waiting = self._prefetch.take_queue(queue)
        else:
            # Slots may have become free in this turn of the loop.
            self._run(self._concurrency)
            if self.taking and self._prefetch.patient_until > self._clock.monotonic():
                return ()
            self._prefetch.forget()
            waiting = self._prefetch.take(self._prefetch.number)
        returned = []
        for attempt in waiting:
            if attempt.cause is None or attempt.lost:
                if self._left is not None:
                    self._left += 1
                returned.append(attempt)
            else:
                self._runner.start(attempt)
        return returned

    def serve(self, priorities: Mapping[str, int]) -> None:
        """Distribute slots by these priorities from now on."""
        self._prefetch.weigh(priorities)
        self._prefetches = may_prefetch(self._parts.config, priorities)

    def _on_end(self, attempt: Attempt) -> None:
        self._prefetch.ended(self._clock.monotonic() - attempt.started)
        if self._prefetch.number and not self._begins_soon:
            self._begin_later()
        self.on_end()

    def _begin_later(self) -> None:
        """Start waiting attempts in a later turn of the loop, once for all slots freed in this one.

        If one call is sent at a time, one turn is added: outcomes leave in the next turn, and uvloop writes
        at the end of that turn. A cluster needs one more turn: each node has an asyncio task that sends.
        """
        if not self._begins_soon and self._prefetch.number and len(self._running) < self._concurrency:
            self._begins_soon = True
            self._begin_after(self._turns_to_send if self._overlap_from is None else 1)

    def _begin_after(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._begin_after, turns - 1)
            return
        self._begins_soon = False
        self._begin(later=False)


def may_prefetch(config: ServerConfig, queues: Collection[str]) -> bool:
    """Return whether to prefetch: with strict priority, prefetched tasks would delay more urgent tasks."""
    return config.prefetch > 0 and (len(queues) == 1 or not config.strict_priority)
