"""The queues of an engine: which to ask now, which to watch, and when to look next.

Queries change nothing. Each command passes one event on to the state machine of one queue.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from pyasynq._broker.dequeue import Rules, Terms
from pyasynq._engine.take.queue_state import Key, QueuePhase, QueueState, Watch
from pyasynq._wire.keys import queue_keys
from pyasynq.limits import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pyasynq._broker.dequeue import Dequeued

    Scope = frozenset[str] | None
    """The queues of one node; None for all queues."""


class ServedQueue:
    """One queue, and what is known of it.

    Attributes:
        name: the queue's name.
        keys: names of the keys whose changes are reported.
        state: its current state; a new object after each event that matters.
    """

    __slots__ = ("_limits", "keys", "name", "state")

    def __init__(self, name: str, settings: Queue) -> None:
        keys = queue_keys(name)
        self.name = name
        self.keys = {key: str(getattr(keys, key.value)) for key in Key}
        self._limits = settings.limits
        rules = _declared_rules(settings)
        self.state = QueueState(declared=rules, rules=rules)

    @property
    def terms(self) -> Terms:
        """How the next question is put."""
        state = self.state
        return Terms(state.rules, self._limits, state.turn)

    @property
    def watched_keys(self) -> list[str]:
        """The keys whose changes may end the rest."""
        return [self.keys[key] for key in self.state.watched_keys]


class QueueBoard:
    """The queues of an engine.

    Args:
        queues: their names.
        settings: returns what is set for one of them.
    """

    def __init__(
        self, queues: Iterable[str], settings: Callable[[str], Queue] = lambda _name: Queue()
    ) -> None:
        self.queues = [ServedQueue(name, settings(name)) for name in queues]
        self._wanted = self.queues
        self._servers = 1
        self.all_plain = not self.limited_queues()
        """Whether no queue has limits or an order, as far as this server knows."""
        self._by_name = {queue.name: queue for queue in self.queues}
        self._by_key = {name: (queue, key) for queue in self.queues for key, name in queue.keys.items()}

    # Queries.

    def queue(self, name: str) -> ServedQueue:
        """Return a queue."""
        return self._by_name[name]

    def is_ordered(self, name: str) -> bool:
        """Return whether a queue is ordered, as far as this server knows."""
        return self._by_name[name].state.rules is Rules.ORDERED

    def limited_queues(self) -> frozenset[str]:
        """Return the queues that have limits or an order, as far as this server knows."""
        return frozenset(queue.name for queue in self.queues if queue.state.is_limited)

    def to_ask(self, now: float) -> list[ServedQueue]:
        """Return the queues that may have tasks, or have rested long enough."""
        return [queue for queue in self._wanted if queue.state.look_at <= now]

    def to_watch_again(self, now: float, scope: Scope = None) -> list[ServedQueue]:
        """Return the queues that are to be watched before they are asked: others may have changed them."""
        return [
            queue
            for queue in self._in(scope)
            if queue.state.look_at <= now
            and queue.state.phase not in (QueuePhase.UNKNOWN, QueuePhase.FAILED, QueuePhase.RATE)
        ]

    def to_watch(self, scope: Scope = None) -> list[ServedQueue]:
        """Return the queues that are empty and not watched."""
        return [
            queue
            for queue in self._in(scope)
            if queue.state.phase is QueuePhase.EMPTY and queue.state.watch is not Watch.TASKS
        ]

    def next_look(self, scope: Scope = None) -> float:
        """Return the monotonic time at which a queue is to be asked; it is past when one may have tasks."""
        return min([queue.state.look_at for queue in self._in(scope)], default=math.inf)

    def _in(self, scope: Scope) -> Sequence[ServedQueue]:
        return self._wanted if scope is None else [queue for queue in self._wanted if queue.name in scope]

    @property
    def all_empty(self) -> bool:
        """Whether every queue has answered that it is empty."""
        return all(queue.state.is_empty for queue in self.queues)

    # Commands.

    def only(self, names: Collection[str]) -> None:
        """Ask and watch these queues alone; what Redis reports of the others is still noted."""
        self._wanted = [queue for queue in self.queues if queue.name in names]

    def note_servers(self, servers: int) -> None:
        """Note how many servers there are, whatever queues they have."""
        self._servers = servers

    def changed(self, name: str, now: float = 0.0) -> bool:
        """Note that Redis reported a change of a key; return whether a queue is to be asked because of it."""
        found = self._by_key.get(name)
        if found is None:
            return False
        queue, key = found
        before = queue.state
        draw = random.uniform(0.0, 1.0)  # noqa: S311 - spreads load, guards nothing
        queue.state = before.key_changed(key, now=now, servers=self._servers, draw=draw)
        return queue.state.changes != before.changes

    def asked(self, queue: ServedQueue, now: float) -> None:
        """Note that a dequeue call is sent."""
        if queue.state.phase is not QueuePhase.UNKNOWN:
            queue.state = queue.state.asked(now=now)

    def answered(
        self, queue: ServedQueue, answer: Dequeued, *, changes: int, now: float, look_at: float
    ) -> None:
        """Note the answer to a dequeue call that was sent after this many changes."""
        before = queue.state
        draw = random.uniform(0.0, 1.0) if answer.limited_by else 0.0  # noqa: S311 - spreads load
        queue.state = before.answered(answer, changes=changes, now=now, look_at=look_at, draw=draw)
        if queue.state.rules is not before.rules:
            self.all_plain = not self.limited_queues()

    def watched(self, queue: ServedQueue, *, changes: int, rest_until: float | None = None) -> None:
        """Note that Redis has confirmed a watch; see `QueueState.watched`."""
        queue.state = queue.state.watched(changes=changes, rest_until=rest_until)

    def unwatchable(self, queue: ServedQueue, *, look_at: float) -> None:
        """Note that Redis cannot report changes: an empty queue is polled."""
        queue.state = queue.state.unwatchable(look_at=look_at)

    def failed(self, queue: ServedQueue, *, look_at: float) -> None:
        """Leave a queue alone for a while after an error, whatever it may have."""
        queue.state = queue.state.failed(look_at=look_at)

    def slot_freed(self, name: str) -> None:
        """Note that an attempt of this server has ended; what it held is free once that is written."""
        queue = self._by_name[name]
        queue.state = queue.state.slot_freed()

    def give_way(self, name: str, courtesy: float, *, until: float) -> None:
        """Let other servers be first at a queue by this many seconds, until a monotonic time."""
        queue = self._by_name[name]
        queue.state = queue.state.gave_way(courtesy, until=until)

    def ask_again(self, queue: ServedQueue) -> None:
        """Forget what is known of a queue."""
        queue.state = queue.state.doubted()

    def ask_all_again(self) -> None:
        """Forget which queues are empty."""
        for queue in self.queues:
            if queue.state.is_empty:
                self.ask_again(queue)


def _declared_rules(settings: Queue) -> Rules:
    if settings.ordered:
        return Rules.ORDERED
    return Rules.LIMITED if settings.limits else Rules.PLAIN
