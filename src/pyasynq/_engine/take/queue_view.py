"""What a server knows of one queue: whether it is worth asking, and when to ask again anyway."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from pyasynq._broker.dequeue import LimitedBy, Rules, Terms
from pyasynq._engine.take.wake_herd import Rivals
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from pyasynq._broker.dequeue import Dequeued
    from pyasynq.limits import Queue

_SHORTEST_GAP: Final = 0.01
_LONGEST_GAP: Final = 0.25


class QueueView:
    """One queue as this server sees it.

    A queue is asked until it says that it is empty. Then it is watched, asked once more if something has come
    before the watch was in place, and left alone until Redis reports a change or `look_at`.

    A queue that a limit keeps from giving more is held. Held by its rate, it is left alone until the turn
    that Redis has given this server. Held by its concurrency, its leases are watched, and it is asked when
    they have changed: after a gap, which grows while others are quicker, or at once when an attempt of
    this server has ended. So is one that is held by its order; there it is the lists of its active tasks and
    of those to be retried that are watched, unless the task in front is this server's own.

    What comes into an empty queue is left to others for a while in two cases. All idle servers are told of
    one task, and one of them gets it: where they are many, each lets some time pass. And of a queue that has
    tasks for which this server has no handler, the next one is taken after a courtesy: Redis tells us at once
    and those who poll later, so we would always be the first. After that the queue is watched again, which
    shows whether there still is a task to ask for.
    """

    __slots__ = (
        "_courteous_until",
        "_courtesy",
        "_gap",
        "_has_head",
        "_limits",
        "_not_before",
        "_own_rules",
        "_rivals",
        "_turn",
        "active_key",
        "armed",
        "changes",
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
        """Counts what Redis reported; what was seen before a report says nothing of now."""
        self.empty = False
        self._courtesy = 0.0
        self._courteous_until = 0.0
        self.deferred = False
        """It is empty no more, and left to others until `look_at`."""
        self._rivals = Rivals()
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

    def fill(self, now: float, servers: int) -> None:
        """Note that Redis has reported a change of a queue that nothing holds, to so many servers at most."""
        self.changes += 1
        self.armed = self.leases_armed = self.unsure = False
        pause = 0.0
        if self.empty:
            pause = self._courtesy if now < self._courteous_until else self._rivals.told(servers)
        self.deferred = pause > 0
        if self.deferred:
            self.look_at = min(self.look_at, now + pause)
        else:
            self.empty = False

    def rest(self, answer: Dequeued, look_at: float) -> None:
        """Note an answer of a queue that nothing holds."""
        self._rivals.looked(found=bool(answer.tasks))
        self.empty = answer.empty
        self.look_at = look_at

    def rest_watched(self, look_at: float) -> None:
        """Note that a look at an empty queue has shown nothing, and that Redis reports the next task."""
        self._rivals.looked(found=False)
        self.armed = True
        self.deferred = False
        self.look_at = look_at

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
