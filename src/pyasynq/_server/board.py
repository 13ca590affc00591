"""What the processor knows of each queue: whether it is worth asking, and when to ask again anyway."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from pyasynq._broker.dequeue import LimitedBy, Rules, Terms
from pyasynq._wire.keys import queue_keys
from pyasynq.limits import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyasynq._broker.dequeue import Dequeued

_SHORTEST_GAP: Final = 0.01
_LONGEST_GAP: Final = 0.25
_VAIN_WAKES: Final = 8
"""So often in a row others are quicker by chance where few are idle."""


class QueueView:
    """One queue as this server sees it.

    A queue is asked until it says that it is empty. Then it is watched, asked once more if something has come
    before the watch was in place, and left alone until Redis reports a change or `look_at`.

    A queue that a limit keeps from giving more is held. Held by its rate, it is left alone until the turn
    that Redis has given this server. Held by its concurrency, its leases are watched, and it is asked when
    they have changed: after a gap, which grows while others are quicker, or at once when an attempt of
    this server has ended. So is one that is held by its order; there it is the lists of its active tasks and
    of those to be retried that are watched, unless the task in front is this server's own.

    All idle servers are told of one task, and one of them gets it. A server that was told in vain many times
    is one of many: it lets some time pass, ever more up to a quarter of a second, before it watches again.

    A queue that has tasks for which this server has no handler is left to others first: while it was empty,
    what comes into it is asked for after a courtesy. Redis tells us at once and those who poll later, so we
    would always be the first.
    """

    __slots__ = (
        "_courteous_until",
        "_courtesy",
        "_gap",
        "_has_head",
        "_limits",
        "_not_before",
        "_own_rules",
        "_turn",
        "_vain",
        "_woken",
        "active_key",
        "armed",
        "changes",
        "damped",
        "deferred",
        "empty",
        "held",
        "lease_key",
        "leases_armed",
        "limits_key",
        "look_at",
        "name",
        "paused_key",
        "pending_key",
        "retry_key",
        "rules",
        "unsure",
    )

    def __init__(self, name: str, settings: Queue) -> None:
        keys = queue_keys(name)
        self.name = name
        self.pending_key = keys.pending
        self.paused_key = keys.paused
        self.lease_key = keys.lease
        self.active_key = keys.active
        self.retry_key = keys.retry
        self.limits_key = keys.limits
        self._limits = settings.limits
        self._own_rules = _rules_of(settings)
        self.rules = self._own_rules
        """Those of this server, or what is stored for all."""
        self.held = LimitedBy.NOTHING
        self._gap = _SHORTEST_GAP
        self._not_before = 0.0
        self._turn = 0
        self._has_head = False
        self.changes = 0
        """Counts what Redis reported; an answer that is older than a report says nothing."""
        self.empty = False
        self._courtesy = 0.0
        self._courteous_until = 0.0
        self.deferred = False
        """It is empty no more, and left to others until `look_at`."""
        self._woken = False
        self._vain = 0
        self.damped = False
        """It is empty, and not watched until `look_at`."""
        self.unsure = False
        """The last question failed, so that nobody knows whether the queue is empty."""
        self.armed = False
        """Redis reports the next task, and the next pause."""
        self.leases_armed = False
        """Redis reports the next change of what holds the queue, of a pause or of the stored settings."""
        self.look_at = 0.0
        """Monotonic time at which a queue that rests is asked anyway."""

    @property
    def resting(self) -> bool:
        """Whether the queue is left alone for now."""
        return self.empty or self.unsure or self.held is not LimitedBy.NOTHING

    @property
    def limited(self) -> bool:
        """Whether limits or an order apply, so that no task may be taken before it can run."""
        return self.rules is not Rules.PLAIN

    @property
    def terms(self) -> Terms:
        """How the next question is put."""
        return Terms(self.rules, self._limits, self._turn)

    @property
    def watched_keys(self) -> tuple[str, ...]:
        """The keys whose changes may end the rest."""
        if self.held is LimitedBy.CONCURRENCY:
            return self.lease_key, self.paused_key, self.limits_key
        if self.held is LimitedBy.ORDER:
            return self.active_key, self.retry_key, self.paused_key, self.limits_key
        return self.pending_key, self.paused_key

    @property
    def waits_for_others(self) -> bool:
        """Whether what becomes of other tasks of the queue ends the rest."""
        return self.held in _ENDED_BY_OTHERS

    def ignores(self, key: str) -> bool:
        """Return whether a change of this key says nothing now."""
        if self.held is LimitedBy.NOTHING:
            return self.rules is not Rules.ORDERED and key in (self.active_key, self.retry_key)
        # What else comes into the queue is kept back, too; and the end of our own task is not news.
        return key == self.pending_key or self._has_head

    def give_way(self, courtesy: float, *, until: float) -> None:
        """Let others be first by so many seconds, until a monotonic time."""
        self._courtesy = courtesy
        self._courteous_until = until

    def fill(self, now: float) -> None:
        """Note that Redis has reported a change of a queue that nothing holds."""
        self.changes += 1
        self.armed = self.leases_armed = self.unsure = False
        self._woken = True
        self.deferred = self.empty and now < self._courteous_until
        if self.deferred:
            self.look_at = min(self.look_at, now + self._courtesy)
        else:
            self.empty = False

    def rest(self, answer: Dequeued, now: float, look_at: float) -> None:
        """Note an answer that nothing was reported after, of a queue that nothing holds."""
        self.empty = answer.empty
        self.look_at = look_at
        if answer.tasks:
            self._vain = 0
        elif self._woken:
            self._vain += 1
        self.damped = self._woken and self.empty and self._vain > _VAIN_WAKES
        self._woken = False
        if self.damped:
            gap = min(_LONGEST_GAP, _SHORTEST_GAP * 2.0 ** min(self._vain - _VAIN_WAKES, 32))
            self.look_at = min(look_at, now + gap * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load

    def hold(self, answer: Dequeued, now: float, look_at: float) -> None:
        """Note that a limit keeps tasks back."""
        self.empty = False
        self.held = answer.limited_by
        self._gap = _SHORTEST_GAP if answer.tasks else min(2 * self._gap, _LONGEST_GAP)
        if self.held is LimitedBy.ORDER:
            self.look_at = look_at
            self._has_head = bool(answer.tasks)
        else:
            self.look_at = min(look_at, now + answer.wait)
        if self.held is LimitedBy.RATE:
            self._turn = answer.redis_now.plus(answer.wait).to_microseconds()
            self._not_before = self.look_at
            return
        # Servers that wait for the same slot shall not ask in step.
        self._not_before = now + self._gap * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load
        if not self.leases_armed and not self._has_head:
            self.look_at = min(self.look_at, self._not_before)

    def adopt(self, answer: Dequeued) -> None:
        """Note by which rules Redis wants the queue to be asked; nothing holds it until it is."""
        if answer.rules is Rules.UNORDERED:
            self.rules = Rules.UNORDERED
        else:
            self.rules = max(self._own_rules, answer.rules)
        self.release()

    def release(self) -> None:
        """Note that a slot may be free, or that the task in front may have ended."""
        self.held = LimitedBy.NOTHING
        self._has_head = False

    def disarm(self, key: str) -> None:
        """Note that Redis has reported a change of a key, and will not report the next one."""
        if key in (self.pending_key, self.paused_key):
            self.armed = False
        if key != self.pending_key:
            self.leases_armed = False

    def stir(self) -> None:
        """Note that what holds the queue, pause or settings have changed."""
        self.changes += 1
        self.armed = self.leases_armed = False
        if not self._has_head:
            self.look_at = min(self.look_at, self._not_before)


_ENDED_BY_OTHERS: Final = frozenset({LimitedBy.CONCURRENCY, LimitedBy.ORDER})


def _rules_of(settings: Queue) -> Rules:
    if settings.ordered:
        return Rules.ORDERED
    return Rules.LIMITED if settings.limits else Rules.PLAIN


class QueueBoard:
    """The queues of a server.

    Args:
        queues: their names.
        settings: gives what is set for one of them.
    """

    def __init__(
        self, queues: Iterable[str], settings: Callable[[str], Queue] = lambda _name: Queue()
    ) -> None:
        self.views = [QueueView(name, settings(name)) for name in queues]
        self._wanted = self.views
        self._by_name = {view.name: view for view in self.views}
        self._by_key = {
            key: view
            for view in self.views
            for key in (
                view.pending_key,
                view.paused_key,
                view.lease_key,
                view.limits_key,
                view.active_key,
                view.retry_key,
            )
        }

    def view(self, queue: str) -> QueueView:
        """Return the view of a queue."""
        return self._by_name[queue]

    def only(self, queues: Collection[str]) -> None:
        """Ask and watch these queues alone; what Redis reports of the others is still noted."""
        self._wanted = [view for view in self.views if view.name in queues]

    def is_ordered(self, queue: str) -> bool:
        """Return whether a queue is ordered, as far as this server knows."""
        return self._by_name[queue].rules is Rules.ORDERED

    @property
    def all_plain(self) -> bool:
        """Whether no queue has limits or an order, as far as this server knows."""
        return not any(view.limited for view in self.views)

    def limited_queues(self) -> frozenset[str]:
        """Return the queues that have limits or an order, as far as this server knows."""
        return frozenset(view.name for view in self.views if view.limited)

    def worth_asking(self, now: float) -> list[QueueView]:
        """Return the queues that may have tasks, or have rested long enough."""
        views = [view for view in self._wanted if not view.resting or view.look_at <= now]
        for view in views:
            if view.resting:
                # A watch can go deaf unnoticed (a slot that moves while it is empty), so it is renewed.
                view.armed = view.leases_armed = False
        return views

    def due(self, now: float) -> list[QueueView]:
        """Return the queues that are to be watched again and asked: those that others may have changed."""
        return [
            view
            for view in self._wanted
            if (view.empty or view.waits_for_others) and not view.unsure and view.look_at <= now
        ]

    def to_watch(self) -> list[QueueView]:
        """Return the queues that are empty and not watched."""
        return [
            view for view in self._wanted if view.empty and not (view.armed or view.deferred or view.damped)
        ]

    def changed(self, key: str, now: float = 0.0) -> bool:
        """Note that Redis reported a change of a key; return whether a queue is to be asked because of it."""
        view = self._by_key.get(key)
        if view is None:
            return False
        if view.ignores(key):
            view.disarm(key)
            return False
        if view.held is LimitedBy.NOTHING:
            view.fill(now)
        else:
            view.stir()
        return True

    def answered(
        self, view: QueueView, answer: Dequeued, *, changes: int, now: float, look_at: float
    ) -> None:
        """Note a queue's answer to a question that was asked when it had seen so many changes."""
        view.unsure = view.deferred = False
        view.adopt(answer)
        if answer.limited_by is not LimitedBy.NOTHING:
            view.hold(answer, now, look_at)
            if view.changes != changes:
                view.stir()
        elif view.changes == changes:
            view.rest(answer, now, look_at)

    def slot_freed(self, queue: str) -> None:
        """Note that an attempt of this server has ended; what it held is free once that is written."""
        view = self._by_name[queue]
        if view.waits_for_others:
            view.release()

    def watched(self, view: QueueView, *, changes: int) -> None:
        """Note that Redis will report the next change; the queue is asked once more."""
        if view.changes != changes:
            return
        if view.held is LimitedBy.NOTHING:
            view.armed = True
            view.empty = view.deferred = False
        else:
            view.leases_armed = True
            view.release()

    def watched_empty(self, view: QueueView, *, changes: int, look_at: float) -> None:
        """Note that Redis will report the next change, and has said that there is nothing to take by now."""
        if view.held is not LimitedBy.NOTHING:
            self.watched(view, changes=changes)
        elif view.changes == changes:
            view.armed = True
            view.damped = view.deferred = False
            view.look_at = look_at

    def unwatchable(self, view: QueueView, *, look_at: float) -> None:
        """Note that Redis cannot report changes: an empty queue is asked again later."""
        view.look_at = min(view.look_at, look_at)

    def failed(self, view: QueueView, *, look_at: float) -> None:
        """Leave a queue alone for a while after an error, whatever it may have."""
        view.unsure = True
        view.look_at = look_at

    def ask_all_again(self) -> None:
        """Forget which queues are empty."""
        for view in self.views:
            view.empty = view.deferred = False

    @property
    def all_empty(self) -> bool:
        """Whether every queue has said that it is empty."""
        return all(view.empty and not view.unsure for view in self.views)

    def next_look(self) -> float:
        """Return the monotonic time at which a queue is to be asked; it is past when one may have tasks."""
        return min(view.look_at if view.resting else 0.0 for view in self._wanted)
