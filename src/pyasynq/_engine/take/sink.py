"""Where taken tasks go: the slots of a server's handlers, with tasks that wait for one."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pyasynq._engine.run.attempt import SETTLING
from pyasynq._engine.run.outcome import LetGo, Requeue
from pyasynq._engine.take.prefetch import Prefetch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.run.runner import Runner
    from pyasynq._engine.take.queue_board import ServedQueue
    from pyasynq.config import ServerConfig


ASKS_AT_ONCE: Final = 16
"""For this many pending takes a queue is asked in one round: one task is not worth a call for each."""


class Want:
    """So many tasks are wanted, of these queues, each with a lease of so many seconds.

    Attributes:
        queues: names; None for all queues of the engine.
        unasked: queues that are asked on behalf of this want whatever is known of them.
        renewed: whether the heartbeat is to renew the leases.
        in_flight: how many dequeue calls for it have not been answered.
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
        """Note that a dequeue call is sent for it."""
        self.in_flight += 1
        self.unasked.discard(queue)

    def heard(self, error: Exception | None) -> None:  # noqa: ARG002 - those who wait for an answer care
        """Note that a dequeue call was answered, or failed."""
        self.in_flight -= 1


class Appetite(NamedTuple):
    """How much a sink can take now.

    Attributes:
        room: for how many tasks there is room, besides those that calls under way may bring.
        overlap_from: room from which it is worth sending a call while another one is under way; None for
            one call at a time.
        is_over: whether nothing will be wanted any more.
    """

    room: int
    overlap_from: int | None = None
    is_over: bool = False


class Sink(Protocol):
    """Where taken tasks go: to the slots of a server's handlers, or to those who wait at a consumer.

    The intake asks it and writes to it; all of it belongs to the event loop.
    """

    taking: bool
    """Whether tasks are taken and begun at all; shutdown and TSTP end it. Written by the intake."""

    def appetite(self, reserved: int) -> Appetite:
        """Return how much can be taken now; calls without an answer may bring `reserved` tasks."""

    def wants(self, room: int, suspected: Collection[ServedQueue]) -> Sequence[Want]:
        """Return what is wanted now, most urgent first: together at most `room` tasks.

        Queues in which a suspect waits may be asked for it whatever else is known of them.
        """

    @property
    def held(self) -> Collection[Attempt]:
        """The attempts that have not ended, and those that have not begun."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held."""

    @property
    def give_back_at(self) -> float:
        """Monotonic time from which those that have not begun are to be put back; infinity for never."""

    def accept(self, taken: Sequence[tuple[Want, Sequence[Attempt]]], *, may_wait: bool) -> None:
        """Begin with what a pipeline has brought.

        Args:
            taken: wants, and attempts on the roster from one queue for each.
            may_wait: whether tasks may be taken from now on before they can begin.
        """

    def give_back(self, queue: str | None = None) -> Sequence[Attempt]:
        """Return the attempts, of one queue or of all, that are to be put back without having begun."""

    def serve(self, priorities: Mapping[str, int]) -> None:
        """Take tasks of these queues from now on, by these priorities; none of another one waits."""


_LEAST_OVERLAPPED = 100
_MOST_AT_ONCE = 400
_LEAST_IN_A_TURN = 25


class Slots:
    """The sink of a server: as many tasks, of all its queues, as handlers may run.

    While tasks are short, some more are taken and wait until a slot is free. With enough room no call asks
    for more than half of it: one half is filled while the other works.

    With less room there is one call at a time. So that Redis and the handlers do not wait for each other,
    half of those begin in one turn of the loop, and what they come to leaves before the others begin.
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
        """Called when a handler has ended."""
        runner.on_end = self._ended
        self._resize(may_wait=False)

    def _resize(self, *, may_wait: bool) -> None:
        """Set how many tasks may be here at a time, and how many of them one call may ask for."""
        self._prefetch.learn(self._clock.monotonic())
        ahead = self._prefetch.allowed if may_wait and self._prefetches else 0
        self._capacity = self._most = self._concurrency + ahead
        self._overlap_from: int | None = None
        if self._capacity >= _LEAST_OVERLAPPED:
            self._most = min(self._capacity // 2, _MOST_AT_ONCE)
            self._overlap_from = self._most // 2

    def appetite(self, reserved: int) -> Appetite:
        """Return how much can be taken now."""
        room, left = self._capacity - len(self._running) - self._prefetch.number, self._left
        room = (room if left is None else min(room, left)) - reserved
        return Appetite(room, self._overlap_from, left == 0)

    def wants(self, room: int, suspected: Collection[ServedQueue]) -> Sequence[Want]:  # noqa: ARG002 - it wants all
        """Return one want, for as much room as one call may fill."""
        return (Want(min(room, self._most), self._parts.settings.lease),)

    @property
    def is_idle(self) -> bool:
        """Whether no handler runs, and no task waits for a slot."""
        return not self._running and not self._prefetch.number

    @property
    def give_back_at(self) -> float:
        """When the task that waits for longest has waited too long; at once when none begins any more."""
        if not self._prefetch.number:
            return math.inf
        return self._prefetch.patient_until if self.taking else 0.0

    @property
    def held(self) -> Collection[Attempt]:
        """The attempts whose handlers have not ended, and those that wait for a slot."""
        return [*self._running, *self._prefetch] if self._prefetch.number else self._running

    def accept(self, taken: Sequence[tuple[Want, Sequence[Attempt]]], *, may_wait: bool) -> None:
        """Run handlers in free slots, as many as may begin in one turn of the loop; let the others wait."""
        self._resize(may_wait=may_wait)
        for _, attempts in taken:
            if self._left is not None:
                self._left -= len(attempts)
            if attempts:
                self._prefetch.add(attempts[0].queue, attempts)
        # What has ended had better leave before handlers hold up the loop.
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
                # Nothing has run: if nobody has the task, its lease is renewed and it is put back.
                attempt.phase = SETTLING
                self._parts.settles.put(attempt, LetGo() if attempt.lost else Requeue())
            else:
                self._runner.start(attempt)

    def give_back(self, queue: str | None = None) -> Sequence[Attempt]:
        """Let none wait any longer; what is to be cancelled is so, beyond all slots, and not put back."""
        if queue is not None:
            waiting = self._prefetch.take_all_of(queue)
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
        """Share out slots by these priorities from now on."""
        self._prefetch.weigh(priorities)
        self._prefetches = may_prefetch(self._parts.config, priorities)

    def _ended(self, attempt: Attempt) -> None:
        self._prefetch.ended(self._clock.monotonic() - attempt.started)
        if self._prefetch.number:
            self._begin_later()
        self.on_end()

    def _begin_later(self) -> None:
        """Begin in the next turn, once for all slots that become free in this one.

        With one call at a time it is a turn later: in the next one leaves what has ended, and uvloop writes
        at the end of a turn. In a cluster that takes one turn more, since each node has a task that sends.
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
    """Return whether tasks may wait here: with strict priority they would bar the way of more urgent ones."""
    return config.prefetch > 0 and (len(queues) == 1 or not config.strict_priority)
