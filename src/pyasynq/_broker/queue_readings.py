"""Readings of queues by plain commands: whether a queue has work for a worker, and when it will have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._redis.plan import CommandCall, PackedCommand, Plan, Replay, ask
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Argument, Reply


class QueueReading(NamedTuple):
    """The state of a queue at one moment; times are Unix times in seconds, infinity for none.

    Attributes:
        redis_now: Redis' time at that moment.
        pending: number of pending tasks.
        is_paused: whether the queue is paused, so that no pending task may be taken.
        has_endings: whether its outbox has ended tasks whose callbacks are still to be enqueued.
        active: number of active tasks, which workers have.
        leases: number of leases.
        next_scheduled: when the next scheduled task is due.
        next_retry: when the next retry is due.
        next_lease_end: when the first lease ends.
        next_expiry: when the retention of the first completed task ends.
        next_stale_set: when the first aggregation set becomes stale.
    """

    redis_now: Instant
    pending: int = 0
    is_paused: bool = False
    has_endings: bool = False
    active: int = 0
    leases: int = 0
    next_scheduled: float = math.inf
    next_retry: float = math.inf
    next_lease_end: float = math.inf
    next_expiry: float = math.inf
    next_stale_set: float = math.inf

    @property
    def has_tasks(self) -> bool:
        """Whether the queue has pending tasks and is not paused."""
        return self.pending > 0 and not self.is_paused

    @property
    def next_due(self) -> float:
        """Time at which the next scheduled task or retry is due."""
        return min(self.next_scheduled, self.next_retry)

    @property
    def has_expired(self) -> bool:
        """Whether the retention of a completed task has ended."""
        return self.next_expiry <= self.redis_now.seconds

    @property
    def has_stale_set(self) -> bool:
        """Whether an aggregation set is stale."""
        return self.next_stale_set <= self.redis_now.seconds

    @property
    def may_have_unleased(self) -> bool:
        """Whether an active task may lack a lease: the numbers of leases and active tasks differ."""
        return self.active > 0 and self.active != self.leases

    def has_lapsed_lease(self, slack: int) -> bool:
        """Return whether a lease ended at least this many seconds ago."""
        return self.next_lease_end <= self.redis_now.seconds - slack


class QueueReader:
    """The commands that read one queue, packed once for all calls.

    One command shows whether the queue has any key. The others are needed only in that case.
    """

    __slots__ = ("_exists", "_heads")

    def __init__(self, queue: str) -> None:
        keys = queue_keys(queue)
        sorted_sets = (keys.scheduled, keys.retry, keys.lease, keys.completed, keys.aggregation_sets)
        self._exists = _read(keys.pending, "EXISTS", keys.pending, keys.active, keys.outbox, *sorted_sets)
        self._heads = (
            _read(keys.pending, "LLEN", keys.pending),
            # One command for both keys: EXISTS counts the outbox twice, since it is named twice.
            _read(keys.pending, "EXISTS", keys.paused, keys.outbox, keys.outbox),
            _read(keys.pending, "LLEN", keys.active),
            _read(keys.pending, "ZCARD", keys.lease),
            *(_read(keys.pending, "ZRANGE", key, "0", "0", "WITHSCORES") for key in sorted_sets),
        )

    def exists(self) -> Plan[int]:
        """Return the plan that counts the queue's existing keys; 0 means that it has no work."""
        return ask(self._exists)

    def heads(self) -> list[Plan[Reply]]:
        """Return the plans that read the queue; `decode_reading` makes a reading of their replies."""
        return [ask(call) for call in self._heads]


_OUTBOX_MARK: Final = 2
HEADS = 9
"""Number of plans that `QueueReader.heads` returns."""


def read_time(queue: str) -> Plan[Reply]:
    """Return the time of the server that has this queue, in seconds and microseconds."""
    return ask(CommandCall(("TIME",), queue_keys(queue).pending, Replay.SAFE))


def decode_reading(replies: Sequence[Any], redis_now: Instant) -> QueueReading | Exception:
    """Return the reading in these replies, or the first error among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            return reply
    pending, marks, active, leases, *heads = replies
    is_paused, has_endings = marks % 2 == 1, marks >= _OUTBOX_MARK
    times = map(_first_second, heads)
    return QueueReading(redis_now, pending, is_paused, has_endings, active, leases, *times)


def _first_second(head: Sequence[bytes]) -> float:
    """Return the lowest score of a sorted set, rounded up to a whole second; infinity for an empty set."""
    score = float(head[1]) if head else math.inf
    return math.ceil(score) if math.isfinite(score) else score


def _read(key: str, *command: Argument) -> CommandCall:
    return CommandCall(PackedCommand(command), key, Replay.SAFE)
