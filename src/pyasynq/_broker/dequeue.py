"""Taking tasks from a queue, with a lease and a token, and finding again those whose reply was lost."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from pyasynq._broker.arguments import MAX_BYTES, MAX_TASKS, time_arguments
from pyasynq._broker.scripts import (
    LEASE_DEQUEUE,
    LEASE_DEQUEUE_LIMITED,
    LEASE_DEQUEUE_ORDERED,
    LEASE_FIND_DEQUEUED,
)
from pyasynq._broker.stored import decode_name
from pyasynq._clock import Instant
from pyasynq._redis.plan import Argument, Plan, Replay, Reply, ScriptCall
from pyasynq._wire.constants import LEASE_SECONDS
from pyasynq._wire.keys import queue_keys
from pyasynq.limits import UNLIMITED, QueueLimits

_HEAD: Final = 9
_STRIDE: Final = 4


class Rules(enum.IntEnum):
    """By which rules tasks are taken from a queue."""

    PLAIN = 0
    LIMITED = 1
    ORDERED = 2
    UNORDERED = 3
    """As limited: an inspector has said that the queue is not ordered, whatever servers say."""


class LimitedBy(enum.StrEnum):
    """What keeps tasks back that wait in a queue."""

    NOTHING = ""
    CONCURRENCY = "concurrency"
    RATE = "rate"
    ORDER = "order"


class Terms(NamedTuple):
    """How tasks are to be taken from a queue.

    Attributes:
        rules: the queue's, as far as the caller knows.
        limits: the caller's; what is stored for the queue wins over them. Its word that the queue is ordered
            is stored by its call, unless something else is, and holds for all callers from then on.
        held_turn: the Unix time in microseconds at which the caller was told to come; 0 for none.
    """

    rules: Rules = Rules.PLAIN
    limits: QueueLimits = UNLIMITED
    held_turn: int = 0


PLAIN_TERMS: Final = Terms()
_RULES: Final = {int(rules): rules for rules in Rules}
_LIMITED_BY: Final = {by.value.encode(): by for by in LimitedBy}


class DequeuedTask(NamedTuple):
    """A task that is active now and ours.

    Attributes:
        id: the task's id.
        message: the bytes of its message, not decoded.
        crashes: how many workers have died with it so far.
        lease_score: Unix time at which the lease ends.
    """

    id: str
    message: bytes
    crashes: int
    lease_score: int


class Dequeued(NamedTuple):
    """What one dequeue brought.

    Attributes:
        tasks: oldest first.
        ghosts: ids that stood in the queue without a task; they were dropped.
        empty: nothing but suspects was left to take when the call ended (or the queue is paused).
        suspect_waiting: crashes of the first suspect that was seen and not taken; 0 if there was none.
        lease_score: Unix time at which the leases end.
        redis_now: the time at which Redis did it.
        rules: what is stored for the queue asks for these. Nothing was taken by a call of other rules, but
            limits that only the caller has apply as long as the queue is not ordered.
        limited_by: what keeps further tasks back.
        wait: seconds until asking again may bring something, unless a lease ends before its time; 0 where
            an order keeps tasks back: only what becomes of the task in front changes that.
    """

    tasks: list[DequeuedTask]
    ghosts: int
    empty: bool
    suspect_waiting: int
    lease_score: int
    redis_now: Instant
    rules: Rules = Rules.PLAIN
    limited_by: LimitedBy = LimitedBy.NOTHING
    wait: float = 0.0


def dequeue(
    queue: str,
    *,
    limit: int,
    token: str,
    lease_seconds: int = LEASE_SECONDS,
    suspect_from: int = 0,
    suspect_room: bool | None = None,
    terms: Terms = PLAIN_TERMS,
    now: Instant | None = None,
) -> Plan[Dequeued]:
    """Take up to `limit` tasks (at most 1,000, or about 4 MB) from the front of a queue.

    A task that has crashed `suspect_from` times or more is a suspect (0: no task is). It keeps its place, and
    those behind it are taken; up to 1,000 suspects are stepped over. In an ordered queue nothing passes it.
    A paused queue gives nothing, nor does one for which stricter rules are stored than those of the call. The
    call is never sent again: after `ReplyLostError`, `find_dequeued` says what it took.

    Args:
        queue: its name.
        limit: how many tasks.
        token: of the call.
        lease_seconds: how long the leases hold.
        suspect_from: crashes that make a task a suspect.
        suspect_room: True to take one suspect among the first 100 tasks, and nothing else; False if suspects
            are known to wait, so that the call looks before it pops; None if none is known.
        terms: the rules of the queue, as far as they are known.
        now: the time; None for that of Redis.
    """
    keys = queue_keys(queue)
    script_keys: tuple[str, ...] = (keys.pending, keys.paused, keys.active, keys.lease, keys.limits)
    how_many: tuple[Argument, ...] = (min(limit, MAX_TASKS),)
    own_rules: tuple[Argument, ...] = ()
    script = LEASE_DEQUEUE
    if terms.rules in {Rules.LIMITED, Rules.UNORDERED}:
        script, script_keys = LEASE_DEQUEUE_LIMITED, (*script_keys, keys.bucket)
        own_rules = (*_limits(terms.limits), terms.held_turn)
    elif terms.rules is Rules.ORDERED:
        script, script_keys = LEASE_DEQUEUE_ORDERED, (*script_keys, keys.bucket, keys.retry)
        how_many, own_rules = (
            (),
            (*_limits(terms.limits)[1:], terms.held_turn, int(bool(terms.limits.ordered))),
        )
    args = (
        keys.task_prefix,
        token,
        *how_many,
        MAX_BYTES,
        lease_seconds,
        suspect_from,
        "" if suspect_room is None else int(suspect_room),
        *time_arguments(now),
        *own_rules,
    )
    return _read((yield ScriptCall(script, script_keys, args, Replay.NEVER)))


def _read(reply: Reply) -> Dequeued:
    """Return what the reply says; all three scripts answer alike."""
    ghosts, empty, waiting, lease_score, seconds, microseconds, rules, limited_by, wait = reply[:_HEAD]
    tasks = [
        DequeuedTask(task_id.decode("utf-8", "surrogateescape"), message, crashes, lease_score)
        for task_id, message, crashes in zip(
            reply[_HEAD::3], reply[_HEAD + 1 :: 3], reply[_HEAD + 2 :: 3], strict=True
        )
    ]
    return Dequeued(
        tasks,
        ghosts,
        bool(empty),
        waiting,
        lease_score,
        Instant(seconds, microseconds),
        _RULES[rules],
        _LIMITED_BY[limited_by],
        wait / 1_000_000,
    )


def _limits(limits: QueueLimits) -> tuple[Argument, ...]:
    """Return concurrency, rate, period and burst as a script takes them; empty is no limit."""
    concurrency = "" if limits.concurrency is None else limits.concurrency
    rate = "" if limits.rate is None else repr(limits.rate)
    return concurrency, rate, repr(limits.period), limits.burst


def find_dequeued(queue: str, *, token: str) -> Plan[list[DequeuedTask]]:
    """Return the tasks that the dequeue call with this token took, oldest first.

    Only the newest 1,000 active tasks are looked at.
    """
    keys = queue_keys(queue)
    reply = yield ScriptCall(
        LEASE_FIND_DEQUEUED,
        (keys.active, keys.lease),
        (keys.task_prefix, token, MAX_TASKS),
        Replay.SAFE,
    )
    return [
        DequeuedTask(decode_name(reply[at]), reply[at + 1], reply[at + 2], reply[at + 3])
        for at in range(0, len(reply), _STRIDE)
    ]
