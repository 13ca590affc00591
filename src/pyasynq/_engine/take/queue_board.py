"""Queues that an engine serves: their settings, which to ask now, which to watch, and when to ask next.

Queries change nothing. Each command passes one event on to the state machine of one queue.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from pyasynq._broker.dequeue import DequeueRules, DequeueTerms
from pyasynq._engine.take.queue_state import Key, QueuePhase, QueueState, Watch
from pyasynq._wire.keys import queue_keys
from pyasynq.limits import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyasynq._broker.dequeue import Dequeued
    from pyasynq._broker.queue_readings import QueueReading


class ServedQueue:
    """One served queue and its known state. Changed by the event loop only.

    Attributes:
        name: the queue's name.
        is_served: False once the queue was removed; its tasks are then put back instead of started.
        keys: names of the keys whose changes are reported.
        state: its current state; a new object after each relevant event.
        reading: its state at the last look, or the error of that look; None before the first look.
        is_reachable: whether it could be read at the last look.
        read_at: monotonic time at which the last successful look began; -inf before the first one.
        outages: number of outages in which live workers may have lost their leases; see `looked_at`.
    """

    __slots__ = (
        "_limits",
        "is_reachable",
        "is_served",
        "keys",
        "name",
        "outages",
        "read_at",
        "reading",
        "state",
    )

    def __init__(self, name: str, settings: Queue, before: QueueState | None = None) -> None:
        keys = queue_keys(name)
        self.name = name
        self.keys = {key: str(getattr(keys, key.value)) for key in Key}
        self.is_served = True
        self.reading: QueueReading | Exception | None = None
        self.is_reachable = True
        self.read_at = -math.inf
        self.outages = 0
        self.declare(settings, before)

    def declare(self, settings: Queue, before: QueueState | None) -> None:
        """Apply these settings to later dequeue calls.

        Stricter rules that were known before stay effective until a reply of Redis shows other rules.
        `before` is the state of the queue so far; None for a new queue.
        """
        self._limits = settings.limits
        rules = _declared_rules(settings)
        if before is None:
            self.state = QueueState(declared=rules, rules=rules)
        else:
            known, changes = max(rules, before.rules), before.changes + 1
            self.state = QueueState(declared=rules, rules=known, changes=changes, herd=before.herd)

    def looked_at(self, began: float, ended: float, *, is_reachable: bool, tolerated: float) -> None:
        """Record a look at the queue.

        Args:
            began: monotonic time at which the look began.
            ended: monotonic time at which it ended.
            is_reachable: whether it could read the queue.
            tolerated: number of seconds that an outage may last until it counts.
        """
        if is_reachable:
            self.outages += not self.is_reachable and ended - self.read_at > tolerated
            self.read_at = began
        self.is_reachable = is_reachable

    @property
    def terms(self) -> DequeueTerms:
        """The rules and limits that the next dequeue call sends, and the turn that Redis has promised."""
        state = self.state
        return DequeueTerms(state.rules, self._limits, state.turn)

    @property
    def watched_keys(self) -> list[str]:
        """The keys whose changes Redis reports, so that the queue is asked again."""
        return [self.keys[key] for key in self.state.watched_keys]


class QueueBoard:
    """The queues that an engine serves, and their settings.

    Only the event loop changes it. Each change replaces `settings` and `names`, which any thread may read.

    Args:
        queues: names of the queues at the start.
        settings: returns the settings of one of these queues.

    Attributes:
        settings: settings of the served queues, by name. Never changed in place.
        names: their names, in the order of `settings`.
        known: the served queues, and removed ones whose attempts have not all ended.
        queues: the served queues.
        all_plain: whether no queue has limits or an order, as far as this server knows.
        withheld: queues whose node is slow or silent, so that nothing is sent to them.
    """

    def __init__(
        self, queues: Iterable[str], settings: Callable[[str], Queue] = lambda _name: Queue()
    ) -> None:
        self.settings: Mapping[str, Queue] = {name: settings(name) for name in queues}
        self.known = {name: ServedQueue(name, queue) for name, queue in self.settings.items()}
        self._by_key = {
            name: (queue, key) for queue in self.known.values() for key, name in queue.keys.items()
        }
        self.withheld: Collection[str] = frozenset()
        self._only: Collection[str] | None = None
        self._servers = 1
        self._rebuild_lists()

    # Queries.

    def queue(self, name: str) -> ServedQueue:
        """Return a served queue by its name."""
        return self.known[name]

    @property
    def priorities(self) -> dict[str, int]:
        """Names of the served queues, and their priorities."""
        return {name: queue.priority for name, queue in self.settings.items()}

    def is_ordered(self, name: str) -> bool:
        """Return whether a queue is ordered (FIFO, one task at a time), as far as this server knows."""
        queue = self.known.get(name)
        return queue is not None and queue.state.rules is DequeueRules.ORDERED

    def limited_queues(self) -> frozenset[str]:
        """Return the queues that have limits or an order, as far as this server knows."""
        return frozenset(queue.name for queue in self.queues if queue.state.is_limited)

    def find_paused_queue(self, key: str) -> str | None:
        """Return the queue that this key pauses; None for other keys."""
        queue, kind = self._by_key.get(key, (None, None))
        return queue.name if queue is not None and kind is Key.PAUSED else None

    def ready_at(self, name: str) -> float:
        """Return the monotonic time from which calls may be sent to a queue, after one of them has failed.

        The time lies in the past for a working queue, and is infinity for a withheld one.
        """
        if name in self.withheld:
            return math.inf
        queue = self.known.get(name)
        return queue.state.look_at if queue is not None and queue.state.phase is QueuePhase.FAILED else 0.0

    def pause_keys(self) -> list[str]:
        """Return the keys that exist while queues are paused."""
        return [queue.keys[Key.PAUSED] for queue in self._wanted]

    def with_work(self, names: Iterable[str], shows_work: Callable[[QueueReading], bool]) -> list[str]:
        """Return the given queues whose last reading shows work, or that could not be read."""
        read = [(name, one) for name in names if (one := self.known[name].reading) is not None]
        return [name for name, one in read if isinstance(one, Exception) or shows_work(one)]

    def unreachable(self) -> tuple[str, ...]:
        """Return the names of the queues that could not be read at the last look."""
        return tuple(queue.name for queue in self.queues if not queue.is_reachable)

    def to_ask(self, now: float) -> list[ServedQueue]:
        """Return the queues that may have tasks, or have rested long enough."""
        return [queue for queue in self._wanted if queue.state.look_at <= now]

    def to_watch_again(self, now: float) -> list[ServedQueue]:
        """Return the queues whose waiting time is over; they are watched again before they are polled."""
        return [
            queue
            for queue in self._wanted
            if queue.state.look_at <= now
            and queue.state.phase not in (QueuePhase.UNKNOWN, QueuePhase.FAILED, QueuePhase.RATE)
        ]

    def to_watch(self) -> list[ServedQueue]:
        """Return the queues that are empty and not watched."""
        return [queue for queue in self._wanted if _is_unwatched(queue)]

    def next_look(self) -> float:
        """Return the monotonic time at which to ask the next queue; in the past if a queue may have tasks."""
        return min([queue.state.look_at for queue in self._wanted], default=math.inf)

    @property
    def all_empty(self) -> bool:
        """Whether every queue has answered that it is empty."""
        return all(queue.state.is_empty for queue in self.queues)

    # Commands.

    def add(self, name: str, settings: Queue) -> None:
        """Serve one more queue."""
        removed = self.known.pop(name, None)
        queue = ServedQueue(name, settings, None if removed is None else removed.state)
        self.known[name] = queue
        self._by_key.update({key_name: (queue, key) for key, key_name in queue.keys.items()})
        self.settings = {**self.settings, name: settings}
        self._rebuild_lists()

    def change(self, name: str, settings: Queue) -> None:
        """Replace the settings of a served queue."""
        queue = self.known[name]
        queue.declare(settings, queue.state)
        self.settings = {**self.settings, name: settings}
        self._rebuild_lists()

    def remove(self, name: str) -> None:
        """Stop serving a queue; it stays known until `forget_removed`."""
        queue = self.known[name]
        queue.is_served = False
        for key_name in queue.keys.values():
            del self._by_key[key_name]
        self.settings = {other: settings for other, settings in self.settings.items() if other != name}
        self._rebuild_lists()

    def forget_removed(self, in_use: Iterable[str]) -> list[ServedQueue]:
        """Forget the removed queues that are not in use; return them."""
        if len(self.known) == len(self.queues):
            return []
        used = set(in_use)
        ended = [one for one in self.known.values() if not one.is_served and one.name not in used]
        for queue in ended:
            del self.known[queue.name]
        return ended

    def only(self, names: Collection[str] | None) -> None:
        """Ask and watch only these queues (None: all); reports about other queues are still recorded."""
        self._only = names
        self._choose()

    def withhold(self, names: Collection[str]) -> None:
        """Stop asking and watching exactly these queues; resume all others."""
        self.withheld = names
        self._choose()

    def _choose(self) -> None:
        wanted = self.queues
        if self._only is not None:
            wanted = [queue for queue in wanted if queue.name in self._only]
        if self.withheld:
            wanted = [queue for queue in wanted if queue.name not in self.withheld]
        self._wanted = wanted

    def _rebuild_lists(self) -> None:
        self.names = tuple(self.settings)
        self.queues = [self.known[name] for name in self.names]
        self.all_plain = not self.limited_queues()
        self._choose()

    def note_servers(self, servers: int) -> None:
        """Record the number of live servers, also of other queues: the most that one task wakes (herd)."""
        self._servers = servers

    def changed(self, name: str, now: float = 0.0) -> bool:
        """Record that Redis reported a change of a key; return whether a queue must be asked now."""
        found = self._by_key.get(name)
        if found is None:
            return False
        queue, key = found
        before = queue.state
        draw = random.uniform(0.0, 1.0)  # noqa: S311 - spreads load, guards nothing
        queue.state = before.key_changed(key, now=now, servers=self._servers, draw=draw)
        return queue.state.changes != before.changes

    def asked(self, queue: ServedQueue, now: float) -> None:
        """Record that a dequeue call is sent."""
        if queue.state.phase is not QueuePhase.UNKNOWN:
            queue.state = queue.state.asked(now=now)

    def answered(
        self, queue: ServedQueue, answer: Dequeued, *, changes: int, now: float, look_at: float
    ) -> None:
        """Record the answer to a dequeue call; `changes` is the number of reports when it was sent."""
        before = queue.state
        draw = random.uniform(0.0, 1.0) if answer.limited_by else 0.0  # noqa: S311 - spreads load
        queue.state = before.answered(answer, changes=changes, now=now, look_at=look_at, draw=draw)
        if queue.state.rules is not before.rules:
            self.all_plain = not self.limited_queues()

    def watched(self, queue: ServedQueue, *, changes: int, may_rest: bool = False) -> None:
        """Record that Redis has confirmed a watch; see `QueueState.watched`."""
        queue.state = queue.state.watched(changes=changes, may_rest=may_rest)

    def watch_lost(self, name: str) -> None:
        """Record that Redis may not report the next change of a key."""
        found = self._by_key.get(name)
        if found is not None:
            queue, _ = found
            queue.state = queue.state.watch_lost()

    def looked(self, queue: ServedQueue, *, has_tasks: bool, changes: int) -> bool:
        """Record the result of a look; return whether the queue must be asked or watched because of it."""
        before = queue.state
        queue.state = before.looked(has_tasks=has_tasks, changes=changes)
        return queue.state is not before

    def unwatchable(self, queue: ServedQueue, *, look_at: float) -> None:
        """Record that Redis cannot report changes: an empty queue is polled."""
        queue.state = queue.state.unwatchable(look_at=look_at)

    def failed(self, queue: ServedQueue, *, look_at: float) -> None:
        """Leave a queue alone for a while after an error."""
        queue.state = queue.state.failed(look_at=look_at)

    def slot_freed(self, name: str) -> None:
        """Record that an attempt of this server has ended; its slot is free once Redis has the outcome."""
        queue = self.known.get(name)
        if queue is not None:
            queue.state = queue.state.slot_freed()

    def give_head_start(self, name: str, head_start: float, *, until: float) -> None:
        """Delay calls to a queue by `head_start` seconds after each report, until `until` (monotonic time).

        Other servers then take its tasks first.
        """
        queue = self.known.get(name)
        if queue is not None:
            queue.state = queue.state.head_start_given(head_start, until=until)

    def ask_again(self, queue: ServedQueue) -> None:
        """Forget the known state of a queue, so that it is asked again."""
        queue.state = queue.state.doubted()

    def put_back(self, name: str) -> None:
        """Record that tasks were put back to a queue; Redis reports it only if the queue is watched."""
        queue = self.known.get(name)
        if queue is not None and _is_unwatched(queue):
            self.ask_again(queue)

    def ask_all_again(self) -> None:
        """Forget which queues are empty, so that each of them is asked again."""
        for queue in self.queues:
            if queue.state.is_empty:
                self.ask_again(queue)


def _is_unwatched(queue: ServedQueue) -> bool:
    return queue.state.phase is QueuePhase.EMPTY and queue.state.watch is not Watch.TASKS


def _declared_rules(settings: Queue) -> DequeueRules:
    if settings.ordered:
        return DequeueRules.ORDERED
    return DequeueRules.LIMITED if settings.limits else DequeueRules.PLAIN
