"""Dequeue: taking tasks from a queue, with a lease and a token, and finding them after a lost reply."""

from __future__ import annotations

import enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

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

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD: Final = 9
_STRIDE: Final = 4


class DequeueRules(enum.IntEnum):
    """Kind of rules for taking tasks from a queue, which selects the script."""

    PLAIN = 0
    LIMITED = 1
    ORDERED = 2
    UNORDERED = 3
    """Like `LIMITED`; the stored limits say that the queue is not ordered, which overrides the servers."""


class LimitedBy(enum.StrEnum):
    """The reason why waiting tasks of a queue are held back."""

    NOTHING = ""
    CONCURRENCY = "concurrency"
    RATE = "rate"
    ORDER = "order"


class DequeueTerms(NamedTuple):
    """Rules and limits that the caller of a dequeue assumes for the queue.

    Attributes:
        rules: rules of the queue, as far as the caller knows.
        limits: limits that the caller declares; stored limits override them. `ordered` is stored in Redis by
            the call, unless a value is stored already. From then on it applies to all callers.
        held_turn: Unix time in microseconds at which the token bucket promised the caller a token; 0 for
            none.
    """

    rules: DequeueRules = DequeueRules.PLAIN
    limits: QueueLimits = UNLIMITED
    held_turn: int = 0


PLAIN_TERMS: Final = DequeueTerms()
_RULES: Final = {int(rules): rules for rules in DequeueRules}
_LIMITED_BY: Final = {by.value.encode(): by for by in LimitedBy}


class DequeuedTask(NamedTuple):
    """A task that is active now, under our lease.

    Attributes:
        id: the task's id.
        message: the bytes of its message, not decoded.
        crashes: number of workers that have died with it so far.
        lease_score: Unix time at which the lease ends.
        pending_since: Unix time in nanoseconds, as text, at which it became pending. None if unknown, as
            after a lost reply.
    """

    id: str
    message: bytes
    crashes: int
    lease_score: int
    pending_since: bytes | None = None


# `DequeuedTask(...)` would call a Python function for each task; this calls none.
_make_task: Final[Callable[[tuple[str, bytes, int, int, bytes | None]], DequeuedTask]] = partial(
    tuple.__new__, DequeuedTask
)


class Dequeued(NamedTuple):
    """The result of one dequeue call.

    Attributes:
        tasks: oldest first.
        ghosts: number of ids in the queue without a task; they were dropped.
        empty: whether nothing is left to take, except suspects; also true if the queue is paused.
        suspect_waiting: number of crashes of the first suspect that was not taken; 0 if there was none.
        lease_score: Unix time at which the leases end.
        redis_now: Redis' time of the dequeue.
        rules: the rules that the stored limits require; a call with other rules took nothing. Exception: a
            call with `LIMITED` or `UNORDERED` takes tasks from any queue that is not ordered.
        limited_by: the reason that holds further tasks back.
        wait: seconds until a call may take a task again, if a limit holds tasks back. A lease that ends
            early makes it shorter. 0 for `ORDER`: the queue waits for the outcome of its first task.
    """

    tasks: list[DequeuedTask]
    ghosts: int
    empty: bool
    suspect_waiting: int
    lease_score: int
    redis_now: Instant
    rules: DequeueRules = DequeueRules.PLAIN
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
    terms: DequeueTerms = PLAIN_TERMS,
    now: Instant | None = None,
) -> Plan[Dequeued]:
    """Take up to `limit` tasks (at most 1,000, or about 4 MB) from the front of a queue.

    A task is a suspect if its workers have crashed `suspect_from` times or more (0: no task is). It keeps its
    place, and the tasks behind it are taken; up to 1,000 suspects are skipped. In an ordered queue, no task
    passes a suspect. No task is taken if the queue is paused, or if its stored rules are not those of `terms`
    (see `Dequeued.rules`). The call is never resent: after `ReplyLostError`, `find_dequeued` returns the
    tasks that it took.

    Args:
        queue: its name.
        limit: number of tasks.
        token: token of the call; it identifies the attempts (fencing token).
        lease_seconds: duration of the leases.
        suspect_from: number of worker crashes that make a task a suspect.
        suspect_room: True to take one suspect among the first 100 tasks, and nothing else; False if suspects
            are known to wait, so that the call checks before it pops; None if none is known.
        terms: the rules of the queue, as far as they are known.
        now: the current time; None uses Redis' clock.
    """
    keys = queue_keys(queue)
    script_keys: tuple[str, ...] = (keys.pending, keys.paused, keys.active, keys.lease, keys.limits)
    how_many: tuple[Argument, ...] = (min(limit, MAX_TASKS),)
    own_rules: tuple[Argument, ...] = ()
    script = LEASE_DEQUEUE
    if terms.rules in {DequeueRules.LIMITED, DequeueRules.UNORDERED}:
        script, script_keys = LEASE_DEQUEUE_LIMITED, (*script_keys, keys.bucket)
        own_rules = (*_limits(terms.limits), terms.held_turn)
    elif terms.rules is DequeueRules.ORDERED:
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
    """Decode the reply; all three scripts have the same format."""
    ghosts, empty, waiting, lease_score, seconds, microseconds, rules, limited_by, wait = reply[:_HEAD]
    tasks = [
        _make_task((task_id.decode("utf-8", "surrogateescape"), message, crashes, lease_score, since))
        for task_id, message, crashes, since in zip(
            reply[_HEAD::4], reply[_HEAD + 1 :: 4], reply[_HEAD + 2 :: 4], reply[_HEAD + 3 :: 4], strict=True
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
    """Return concurrency, rate, period and burst as script arguments; empty means unlimited."""
    concurrency = "" if limits.max_run is None else limits.max_run
    rate = "" if limits.rate is None else repr(limits.rate)
    return concurrency, rate, repr(limits.period), limits.burst


def find_dequeued(queue: str, *, token: str) -> Plan[list[DequeuedTask]]:
    """Return the tasks that the dequeue call with this token took, oldest first.

    Only the newest 1,000 active tasks are searched.
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
