"""Names of all queues in the set `asynq:queues`, and names that must still be written there.

In a cluster the set is on one node and most queues are on others. So a task and the name of its queue are
never written in one step. The task is written first. The name is "owed" until Redis has confirmed it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from pyasynq._broker.stored import readable_names
from pyasynq._checks import check_name
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import ALL_QUEUES, queue_keys
from pyasynq.errors import (
    QueueNotFoundError,
    RedisError,
    RedisOutOfMemoryError,
    RedisUnavailableError,
    ReplyLostError,
)
from pyasynq.events import RedisWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyasynq._redis.driver import DriverBase

PAUSE: Final = 0.5
"""Seconds between two calls that register queue names, so that a removed queue reappears within a second."""
LONGEST_PAUSE: Final = 1.0
"""Seconds between two attempts to write names that Redis refuses for now."""
FIRST_WAIT: Final = 0.1
"""Seconds that a queue's first tasks wait until its name is registered, maybe on another node."""
_GAP: Final = 1.0
"""Seconds in which the token bucket gains a token; a registration takes one.

A registration adds 14 % to the time of a lone enqueue.
"""
_BURST: Final = 9.0
"""Seconds in which an empty token bucket is filled, except for its last token (burst)."""
_MOST_NAMES: Final = 1_000
_MOST_KNOWN: Final = 10_000
_TRANSIENT: Final = (RedisUnavailableError, ReplyLostError, RedisOutOfMemoryError)


class QueueRegistry:
    """Queue names that have still to be added to `asynq:queues`: the owed names. Thread-safe.

    The first tasks of a queue register its name in the same pipeline, so that a program may end after them.
    Later tasks do so while a token bucket has tokens: ten, and one more a second. Without a token the name is
    owed, and it is registered within half a second. So a removed queue is soon listed again, and a busy
    client does not register names with each batch.
    https://en.wikipedia.org/wiki/Generic_cell_rate_algorithm
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._owed: dict[str, None] = {}
        self._known: set[str] = set()
        self._spent_until = 0.0
        self.is_answered = True
        """Whether the last names were confirmed in time; if not, tasks do not wait for a confirmation."""

    def try_acquire(self, queues: Iterable[str]) -> bool:
        """Return whether to register these names in the same pipeline as their tasks.

        True if one of the names is new. Otherwise take a token of the bucket; False if there is none.
        """
        if self.is_new(queues):
            return True
        now = self._monotonic()
        if self._spent_until > now:
            return False
        self._spent_until = max(self._spent_until, now - _BURST) + _GAP
        return True

    def owe(self, queues: Iterable[str]) -> None:
        """Record queues that got tasks and whose names must still be registered: they are owed."""
        for queue in queues:
            self._owed[queue] = None

    def has(self, queues: Iterable[str]) -> bool:
        """Return whether these names are owed (to be registered) already, so that `owe` changes nothing."""
        owed = self._owed
        for queue in queues:  # noqa: SIM110 - a client does this twice for each batch; `all` takes twice the time
            if queue not in owed:
                return False
        return True

    def take(self) -> list[str]:
        """Remove and return up to 1,000 owed names, which the caller registers now."""
        names = list(self._owed)[:_MOST_NAMES]
        for name in names:
            self._owed.pop(name, None)
        return names

    @property
    def owes(self) -> bool:
        """Whether any queue names have still to be registered."""
        return bool(self._owed)

    def is_new(self, queues: Iterable[str]) -> bool:
        """Return whether Redis has not yet confirmed the registration of one of these names."""
        return not self._known.issuperset(queues)

    def confirm(self, queues: Iterable[str]) -> None:
        """Record that these names are registered in Redis."""
        if len(self._known) > _MOST_KNOWN:
            # A program may use an unlimited number of queue names, so the set is bounded.
            self._known = set()
        self._known.update(queues)
        self.is_answered = True


class RegistrarBase:
    """The common part of the registrars for asyncio and for threads.

    Args:
        driver: runs the plans.
        apart: whether names are never registered in their tasks' pipeline, as in durable enqueues, which wait
            for replicas.
    """

    def __init__(self, driver: DriverBase, *, apart: bool = False) -> None:
        self.registry = QueueRegistry()
        self._base = driver
        self._is_apart = apart or driver.target.is_cluster
        self._is_closed = False

    def abandon(self) -> None:
        """Stop registering queue names. Callable from any thread."""
        self._is_closed = True

    def _settle(self, queues: Sequence[str], outcomes: Sequence[Any]) -> bool:
        """Mark the names of queues with new tasks as owed (to be registered); return whether any are owed.

        Names that were registered in the pipeline of their tasks (they "travelled") are confirmed instead.

        Args:
            queues: the queue of each plan.
            outcomes: outcome of each plan, then of the names if they travelled; empty after an interruption.
        """
        registry = self.registry
        if len(outcomes) > len(queues):
            # The last outcome is that of the names, which were registered in the same pipeline.
            confirmation = outcomes[-1]
            if not isinstance(confirmation, Exception):
                registry.confirm(queues)
                return registry.owes
            if self._is_refused(confirmation):
                return registry.owes
        if outcomes:
            pairs = zip(queues, outcomes, strict=False)
            queues = [queue for queue, outcome in pairs if _may_be_written(outcome)]
        registry.owe(queues)
        return registry.owes

    def _is_refused(self, error: Exception) -> bool:
        """Return whether Redis refuses the names for good; warn once if so."""
        if not isinstance(error, RedisError) or isinstance(error, _TRANSIENT):
            return False
        text = f"tasks are enqueued, but the names of their queues cannot be written to {ALL_QUEUES}: {error}"
        self._base.warn_once(RedisWarning("queue_names", text))
        return True


def _may_be_written(outcome: object) -> bool:
    return not isinstance(outcome, Exception) or isinstance(outcome, ReplyLostError)


def register_queues(queues: Iterable[str]) -> Plan[None]:
    """Add the names of queues that have tasks to the set of all queues."""
    yield CommandCall(("SADD", ALL_QUEUES, *dict.fromkeys(queues)), ALL_QUEUES, Replay.SAFE)


def queue_exists(queue: str) -> Plan[bool]:
    """Return whether a queue has tasks, groups or counters, registered or not."""
    keys = queue_keys(queue)
    states = (keys.pending, keys.active, keys.scheduled, keys.retry, keys.archived, keys.completed)
    command = ("EXISTS", *states, keys.groups, keys.processed)
    return bool((yield CommandCall(command, keys.pending, Replay.SAFE)))


def queue_names() -> Plan[list[str]]:
    """Return the names of all queues, sorted."""
    names = yield CommandCall(("SMEMBERS", ALL_QUEUES), ALL_QUEUES, Replay.SAFE)
    return sorted(readable_names(names))


def require_queue(queue: str) -> Plan[None]:
    """Raise `QueueNotFoundError` for an unknown queue, and `InvalidOptionError` for an invalid name."""
    check_name("queue", queue)
    if not (yield CommandCall(("SISMEMBER", ALL_QUEUES, queue), ALL_QUEUES, Replay.SAFE)):
        raise QueueNotFoundError(queue)
