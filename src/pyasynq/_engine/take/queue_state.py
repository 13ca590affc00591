"""State machine of one queue: whether to ask it for tasks, to watch it, or to leave it alone.

Each event is a method of `QueueState` that returns the next state. It is a pure function of the state and its
arguments: the time is a monotonic time, and `draw` a random number from 0 to 1.
tests/unit/server/test_queue_state.py has the table of events and states.

A queue is asked until it answers that it is empty. Then Redis is told to report its next change (a watch).
The queue is asked once more, unless the watch has shown that nothing came meanwhile.
After that it rests until a report, or until the look at all queues shows a task that was not reported.
Where Redis cannot report changes, it is asked at intervals (`look_at`).

A limit may hold tasks back. A queue held by its rate rests until the turn that Redis has given this server.
A queue held by its concurrency or its order is watched for changes of what holds it.
It is asked after a report, but not before a gap that doubles with each vain call (exponential back-off).
It is asked at once when a task of this server ends.

A report for an empty queue may be deferred for two reasons. Redis reports one task to many idle servers (see
`Herd`).
Or the queue holds tasks without a handler here: other servers, which may poll, get them first (a head_start).
"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.dequeue import DequeueRules, LimitedBy

if TYPE_CHECKING:
    from pyasynq._broker.dequeue import Dequeued

_SHORTEST_GAP: Final = 0.01
_LONGEST_GAP: Final = 0.25


_AT_ONCE: Final = 4
"""Number of servers that ask at once after a report; the others wait a random delay."""
_FIRST_LOOK: Final = 0.001
"""Shortest delay in seconds of a server that does not ask at once after a report."""
_LAST_LOOK: Final = 0.25
"""Longest delay in seconds of a server that does not ask at once after a report."""
_LAST_LOOK_A_SERVER: Final = 0.01
"""Longest delay in seconds for each server in the estimate; the sum is at most `_LAST_LOOK`."""


class Herd(NamedTuple):
    """Estimate of how many idle servers are woken by the same task (thundering herd).

    Each server draws a random position from 0 to this estimate (`row`). The first few ask at once. The others
    wait, longer at later positions. While they wait they are not watching, so one task wakes only a small
    part of the idle servers.

    The estimate is at most the number of servers, but an unknown number of these are busy. A server whose
    position is behind the first quarter, and that still finds the task, halves its estimate. A server that
    finds no task doubles its estimate. A server in the first quarter that finds a task keeps it. Otherwise
    that server would get ever more tasks.
    """

    row: float = math.inf
    in_front: bool = True
    told: bool = False
    """Whether Redis has reported a change by another client, and no dequeue call has followed yet."""
    own_change: bool = False
    """Whether the next report may be caused by this server's own dequeue."""

    def report(self, servers: int, draw: float) -> tuple[Herd, float]:
        """Return the new estimate after a report, and the seconds for which to leave the task to others.

        Args:
            servers: number of live servers, including busy servers and servers of other queues.
            draw: a random number from 0 to 1.
        """
        row = max(_AT_ONCE, min(self.row, servers))
        place = draw * row
        herd = Herd(row, place <= max(_AT_ONCE, row / 4), not self.own_change)
        if place <= _AT_ONCE:
            return herd, 0.0
        last = min(_LAST_LOOK, row * _LAST_LOOK_A_SERVER)
        exponent = math.log(place / _AT_ONCE, row / _AT_ONCE)
        return herd, _FIRST_LOOK * math.pow(last / _FIRST_LOOK, exponent)

    def answered(self, *, found: bool) -> Herd:
        """Return the new estimate after the queue was asked for the reported task."""
        if not self.told:
            return self
        if not found:
            return Herd(self.row * 2, self.in_front)
        return Herd(self.row if self.in_front else self.row / 2, self.in_front, own_change=True)


class QueuePhase(enum.Enum):
    """Phase of the state machine: knowledge about a queue's tasks."""

    UNKNOWN = "unknown"
    """The queue may have tasks: ask it now."""
    EMPTY = "empty"
    DEFERRED = "deferred"
    """The queue was empty and Redis reported a change; other servers go first until `look_at`."""
    RATE = "rate"
    """The queue's rate limit holds tasks back until `look_at`."""
    CONCURRENCY = "concurrency"
    """The queue's concurrency limit holds tasks back."""
    ORDER = "order"
    """The queue is ordered, and another server holds its first task."""
    HEAD = "head"
    """The queue is ordered, and this server holds its first task."""
    FAILED = "failed"
    """The last call failed: ask again at `look_at`."""


class Watch(enum.Enum):
    """Change of a queue that Redis reports next to this server."""

    NOTHING = "nothing"
    TASKS = "tasks"
    """Redis reports a new task or a pause."""
    HOLDERS = "holders"
    """Redis reports a change of the tasks that hold others back, of a pause, or of stored limits."""


class Key(enum.Enum):
    """A key of a queue whose changes are reported; the value is its name in `QueueKeys`."""

    PENDING = "pending"
    PAUSED = "paused"
    LEASE = "lease"
    LIMITS = "limits"
    ACTIVE = "active"
    RETRY = "retry"


_EMPTY: Final = (QueuePhase.EMPTY, QueuePhase.DEFERRED)
_HELD_BY_TASKS: Final = (QueuePhase.CONCURRENCY, QueuePhase.ORDER, QueuePhase.HEAD)
"""Phases that end when a running task ends."""
_HELD: Final = (QueuePhase.RATE, *_HELD_BY_TASKS)
_TASK_KEYS: Final = (Key.PENDING, Key.PAUSED)
_ORDER_KEYS: Final = (Key.ACTIVE, Key.RETRY)
_WATCHED: Final = {
    QueuePhase.CONCURRENCY: (Key.LEASE, Key.PAUSED, Key.LIMITS),
    QueuePhase.ORDER: (*_ORDER_KEYS, Key.PAUSED, Key.LIMITS),
    QueuePhase.HEAD: (*_ORDER_KEYS, Key.PAUSED, Key.LIMITS),
}


class QueueState(NamedTuple):
    """Knowledge of one engine about one queue, and its changes by events.

    Attributes:
        phase: knowledge about the queue's tasks.
        look_at: monotonic time from which the queue is asked; 0 if and only if the phase is unknown.
        watch: what Redis reports next.
        changes: number of reports; an answer or a watch that is older than the newest report is outdated.
        declared: the rules that this server declares.
        rules: the effective rules: rules stored in Redis override the declared rules.
        gap: current back-off between vain calls, in seconds.
        not_before: monotonic time before which a report does not cause a call, while the queue is held.
        turn: Unix time in microseconds that Redis has given this server to come back; 0 for none.
        head_start: seconds by which a call is delayed after a report, so that other servers take the tasks
            first; applies until `head_start_until` (monotonic time).
    """

    phase: QueuePhase = QueuePhase.UNKNOWN
    look_at: float = 0.0
    watch: Watch = Watch.NOTHING
    changes: int = 0
    declared: DequeueRules = DequeueRules.PLAIN
    rules: DequeueRules = DequeueRules.PLAIN
    gap: float = _SHORTEST_GAP
    not_before: float = 0.0
    turn: int = 0
    head_start: float = 0.0
    head_start_until: float = 0.0
    herd: Herd = Herd()

    @property
    def is_empty(self) -> bool:
        """Whether the queue has answered that it is empty, and has not been asked since."""
        return self.phase in _EMPTY

    @property
    def is_limited(self) -> bool:
        """Whether limits or an order apply, so that no task may be taken before it can run."""
        return self.rules is not DequeueRules.PLAIN

    @property
    def watched_keys(self) -> tuple[Key, ...]:
        """The keys whose changes Redis reports, so that the queue is asked again."""
        return _WATCHED.get(self.phase, _TASK_KEYS)

    def answered(
        self, answer: Dequeued, *, changes: int, now: float, look_at: float, draw: float
    ) -> QueueState:
        """Apply the answer to a dequeue call.

        Args:
            answer: what the call brought.
            changes: the number of reports when it was sent.
            now: the time of the answer.
            look_at: time at which a held queue is asked again at the latest.
            draw: random number from 0 to 1, which spreads the calls of servers that wait for the same slot.
        """
        rules = answer.rules
        if rules is not DequeueRules.UNORDERED and rules < self.declared:
            rules = self.declared
        if answer.limited_by is not LimitedBy.NOTHING:
            held = _hold(self._replace(rules=rules), answer, now, look_at, draw)
            return held if changes == self.changes else _stir(held)
        herd = self.herd
        if herd.told:
            herd = herd.answered(found=bool(answer.tasks))
        if answer.empty:
            return self._replace(phase=QueuePhase.EMPTY, look_at=math.inf, rules=rules, herd=herd)
        if self.phase is QueuePhase.UNKNOWN and rules is self.rules and herd is self.herd:
            return self
        return self._replace(phase=QueuePhase.UNKNOWN, look_at=0.0, rules=rules, herd=herd)

    def key_changed(self, key: Key, *, now: float, servers: int, draw: float) -> QueueState:
        """Apply a report that Redis sent to at most `servers` servers.

        `draw` is a random number from 0 to 1, which decides how early this server asks (thundering herd).
        """
        phase = self.phase
        if phase in _HELD:
            # A new task changes nothing, because it is held back too. Nor does the end of this server's own
            # first task.
            is_news = key is not Key.PENDING and phase is not QueuePhase.HEAD
            return _stir(self) if is_news else _unwatch(self, key)
        if key in _ORDER_KEYS and self.rules is not DequeueRules.ORDERED:
            return _unwatch(self, key)
        pause, herd = 0.0, self.herd
        if phase is not QueuePhase.UNKNOWN:
            if now < self.head_start_until:
                pause = self.head_start
            else:
                herd, pause = herd.report(servers, draw)
        told = self._replace(changes=self.changes + 1, watch=Watch.NOTHING, herd=herd)
        if not pause:
            return _open(told, Watch.NOTHING)
        # After a failure it is unknown whether the queue was empty.
        phase = phase if phase is QueuePhase.FAILED else QueuePhase.DEFERRED
        return told._replace(phase=phase, look_at=min(self.look_at, now + pause))

    def watched(self, *, changes: int, may_rest: bool = False) -> QueueState:
        """Apply the confirmation of a watch of `watched_keys`.

        Args:
            changes: the number of reports when the watch was begun.
            may_rest: whether the watch has shown that there is nothing to take; otherwise the queue is asked
                once more.
        """
        if changes != self.changes:
            return self
        if self.phase in _HELD_BY_TASKS:
            return _open(self, Watch.HOLDERS)
        if self.phase not in _EMPTY:
            return self._replace(watch=Watch.TASKS)
        if not may_rest:
            return _open(self, Watch.TASKS)
        herd = self.herd.answered(found=False)
        return self._replace(phase=QueuePhase.EMPTY, watch=Watch.TASKS, look_at=math.inf, herd=herd)

    def watch_lost(self) -> QueueState:
        """Watch the queue again before it rests: Redis may have dropped the watch, and missed a change."""
        if self.phase in _HELD:
            return _stir(self)
        told = self._replace(changes=self.changes + 1, watch=Watch.NOTHING)
        # The call failed in an outage, which may be over now.
        return _open(told, Watch.NOTHING) if self.phase is QueuePhase.FAILED else told

    def looked(self, *, has_tasks: bool, changes: int) -> QueueState:
        """Apply a look: a reading of the queue's state by the queue look service.

        Args:
            has_tasks: whether the reading showed tasks that may be taken.
            changes: the number of reports when the look was begun.
        """
        if changes != self.changes:
            return self
        if has_tasks and self.phase is QueuePhase.EMPTY:
            # The watch did not report it.
            return _open(self._replace(changes=changes + 1), Watch.NOTHING)
        if not has_tasks and self.phase is QueuePhase.UNKNOWN and self.rules is DequeueRules.PLAIN:
            # A queue with other rules is asked once, because the first call stores the declared rules in
            # Redis.
            return self._replace(phase=QueuePhase.EMPTY, look_at=math.inf)
        return self

    def unwatchable(self, *, look_at: float) -> QueueState:
        """Poll an empty queue at this time, because Redis cannot report changes."""
        if self.phase is not QueuePhase.EMPTY:
            return self
        return self._replace(look_at=min(self.look_at, look_at))

    def failed(self, *, look_at: float) -> QueueState:
        """Leave the queue alone until this time, because a dequeue call has failed."""
        return self._replace(phase=QueuePhase.FAILED, look_at=look_at)

    def slot_freed(self) -> QueueState:
        """Return the state after a task of this server has ended: ask now if running tasks held it back."""
        return _open(self, self.watch) if self.phase in _HELD_BY_TASKS else self

    def asked(self, *, now: float) -> QueueState:
        """Return the state after a dequeue call was sent.

        A poll drops the watch: Redis may have lost it without a report, when an empty cluster slot moved.
        """
        is_poll = self.phase is not QueuePhase.UNKNOWN and self.look_at <= now
        return self._replace(watch=Watch.NOTHING) if is_poll else self

    def doubted(self) -> QueueState:
        """Return the next state: ask the queue at once, because its known state may be outdated."""
        return _open(self, self.watch)

    def head_start_given(self, head_start: float, *, until: float) -> QueueState:
        """Delay the call after each report by `head_start` seconds, until `until` (monotonic time).

        Other servers then take the tasks first.
        """
        return self._replace(head_start=head_start, head_start_until=until)


def _open(state: QueueState, watch: Watch) -> QueueState:
    """Return the state of a queue that is asked now."""
    return state._replace(phase=QueuePhase.UNKNOWN, look_at=0.0, watch=watch)


def _hold(state: QueueState, answer: Dequeued, now: float, look_at: float, draw: float) -> QueueState:
    """Return the state of a queue whose limit or order holds back further tasks."""
    gap = _SHORTEST_GAP if answer.tasks else min(2 * state.gap, _LONGEST_GAP)
    not_before = now + gap * (0.5 + draw / 2)
    if answer.limited_by is LimitedBy.RATE:
        until = min(look_at, now + answer.wait)
        turn = answer.redis_now.plus(answer.wait).to_microseconds()
        return state._replace(phase=QueuePhase.RATE, look_at=until, gap=gap, not_before=until, turn=turn)
    if answer.limited_by is LimitedBy.CONCURRENCY:
        phase, look_at = QueuePhase.CONCURRENCY, min(look_at, now + answer.wait)
    else:
        phase = QueuePhase.HEAD if answer.tasks else QueuePhase.ORDER
    if phase is not QueuePhase.HEAD and state.watch is not Watch.HOLDERS:
        look_at = min(look_at, not_before)
    return state._replace(phase=phase, look_at=look_at, gap=gap, not_before=not_before)


def _stir(state: QueueState) -> QueueState:
    """Return the next state of a held queue, after a change of a key that holds it back."""
    look_at = state.look_at if state.phase is QueuePhase.HEAD else min(state.look_at, state.not_before)
    return state._replace(changes=state.changes + 1, watch=Watch.NOTHING, look_at=look_at)


def _unwatch(state: QueueState, key: Key) -> QueueState:
    """Return the next state after an irrelevant report, which ends the watch of its key."""
    ended = key in _TASK_KEYS if state.watch is Watch.TASKS else key is not Key.PENDING
    return state._replace(watch=Watch.NOTHING) if ended else state
