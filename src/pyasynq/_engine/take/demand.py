"""Who wants tasks and gets them: the slots of a server's handlers, or those who wait at a consumer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

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


class Demand(Protocol):
    """What the intake takes tasks for. All of it belongs to the event loop.

    Attributes:
        taking: whether tasks are taken and started at all; shutdown and TSTP end it.
        reserved: for how many tasks there are dequeue calls without an answer; the intake counts them.
        may_prefetch: whether tasks may be taken before they can be started; the intake says so.
        may_overlap: whether more may be asked for while there are calls without an answer.
        least_aside: for how much room it is worth doing that.
    """

    taking: bool
    reserved: int
    may_prefetch: bool
    may_overlap: bool
    least_aside: int

    @property
    def is_over(self) -> bool:
        """Whether nothing will be wanted any more."""

    @property
    def running(self) -> Collection[Attempt]:
        """The attempts that hold a slot, oldest first."""

    @property
    def taken(self) -> Collection[Attempt]:
        """Those, and the ones that wait for a slot or for the turn in which they begin."""

    @property
    def room(self) -> int:
        """How many tasks may be taken now."""

    def resize(self) -> None:
        """Learn from the attempts that have ended how much room there is."""

    def wants(self, suspected: Iterable[ServedQueue] = ()) -> Sequence[Want]:
        """Return what is wanted now, most urgent first; together no more than there is room for.

        Queues in which a suspect waits may be asked for it whatever else is known of them.
        """

    def start(self, attempts: Sequence[Attempt], want: Want) -> None:
        """Take over attempts of one queue that are on the roster; they may be wanted no longer."""

    def begin(self, *, later: bool) -> None:
        """Begin with what was taken over, now or soon; called when all answers of a pipeline are in.

        Args:
            later: something has ended that had better leave before handlers hold up the loop.
        """

    def fill(self) -> None:
        """Begin now with all of it that there is room for."""

    @property
    def waiting(self) -> int:
        """How many attempts were taken over and have not been started."""

    @property
    def patient_until(self) -> float:
        """Monotonic time from which on those are to be put back; infinity for never."""

    def withdraw(self, queue: str | None = None) -> Sequence[Attempt]:
        """Give up those that have not been started, of one queue or of all; return those to be put back."""

    def serve(self, priorities: Mapping[str, int]) -> None:
        """Take tasks of these queues from now on, by these priorities; what waits of others was withdrawn."""


_LEAST_OVERLAPPED = 100
_MOST_AT_ONCE = 400
_LEAST_IN_A_TURN = 25


class Slots:
    """A server's demand: as many tasks, of all its queues, as handlers may run beside those that do.

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
        self.reserved = 0
        self.may_prefetch = False
        self._loop = asyncio.get_running_loop()
        self._begins_soon = False
        self._turns_to_send = 3 if parts.driver.target.is_cluster else 2
        self.on_end: Callable[[], None] = lambda: None
        """Called when a handler has ended."""
        runner.on_end = self._ended
        self.resize()

    @property
    def running(self) -> Collection[Attempt]:
        """The attempts whose handlers have not ended."""
        return self._running

    @property
    def taken(self) -> Collection[Attempt]:
        """Those, and the ones whose handlers have not begun."""
        return [*self._running, *self._prefetch]

    @property
    def waiting(self) -> int:
        """How many tasks wait for a slot."""
        return self._prefetch.number

    @property
    def patient_until(self) -> float:
        """When they have waited too long."""
        return self._prefetch.patient_until

    @property
    def is_over(self) -> bool:
        """Whether `max_tasks` have been taken."""
        return self._left == 0

    @property
    def room(self) -> int:
        """How many tasks may be taken now, beside those that calls under way may bring."""
        free = self._capacity - len(self._running) - self._prefetch.number
        return max(0, (free if self._left is None else min(free, self._left)) - self.reserved)

    def wants(self, suspected: Iterable[ServedQueue] = ()) -> Sequence[Want]:  # noqa: ARG002 - it wants all
        """Return one want, for as much room as one call may fill."""
        room = min(self.room, self._most)
        return (Want(room, self._parts.settings.lease),) if room else ()

    def start(self, attempts: Sequence[Attempt], want: Want) -> None:  # noqa: ARG002 - there is only one
        """Let the attempts wait for their turn at a slot."""
        if self._left is not None:
            self._left -= len(attempts)
        if attempts:
            self._prefetch.add(attempts[0].queue, attempts)

    def begin(self, *, later: bool) -> None:
        """Run handlers in free slots, as many as may begin in one turn of the loop."""
        if self.may_overlap:
            self._run(self._concurrency)
        elif not later:
            self._run(max(_LEAST_IN_A_TURN, (self._capacity + 1) // 2))
        self._begin_later()

    def fill(self) -> None:
        """Run handlers in all free slots."""
        self._run(self._concurrency)

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

    def withdraw(self, queue: str | None = None) -> Sequence[Attempt]:
        """Let none wait any longer; what is to be cancelled is so, beyond all slots, and not put back."""
        if queue is not None:
            waiting = self._prefetch.take_all_of(queue)
        else:
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
        self.resize()

    def resize(self) -> None:
        """Set how many tasks may be here at a time, and how many of them one call may ask for."""
        if self._prefetch.unlearnt:
            self._prefetch.learn(self._clock.monotonic())
        ahead = self._prefetch.allowed if self.may_prefetch and self._prefetches else 0
        self._capacity = self._most = self._concurrency + ahead
        self.may_overlap = self._capacity >= _LEAST_OVERLAPPED
        if self.may_overlap:
            self._most = min(self._capacity // 2, _MOST_AT_ONCE)
        self.least_aside = self._most // 2

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
            self._begin_after(1 if self.may_overlap else self._turns_to_send)

    def _begin_after(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._begin_after, turns - 1)
            return
        self._begins_soon = False
        self.begin(later=False)


def may_prefetch(config: ServerConfig, queues: Collection[str]) -> bool:
    """Return whether tasks may wait here: with strict priority they would bar the way of more urgent ones."""
    return config.prefetch > 0 and (len(queues) == 1 or not config.strict_priority)
