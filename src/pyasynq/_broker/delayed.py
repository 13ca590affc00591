"""Tasks at their due time: scheduled and retry tasks become pending, expired completed tasks are deleted."""

from __future__ import annotations

from typing import NamedTuple

from pyasynq._broker.arguments import MAX_TASKS, time_arguments
from pyasynq._broker.scripts import TASK_DELETE_EXPIRED, TASK_FORWARD
from pyasynq._broker.stored import whole_second
from pyasynq._clock import Instant
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys
from pyasynq.task import TaskState

_FORWARD_AT_ONCE = 100


class Forwarded(NamedTuple):
    """The result of forwarding due tasks to pending.

    Attributes:
        moved: number of tasks that left `scheduled` and `retry`.
        next_due: Unix time at which the next scheduled or retry task is due; None if there is none.
        redis_now: Redis' time at the last call.
    """

    moved: int
    next_due: int | None
    redis_now: Instant


def forward(queue: str, *, now: Instant | None = None, limit: int = _FORWARD_AT_ONCE) -> Plan[Forwarded]:
    """Move every due task of `scheduled` and `retry` to pending or into its group, `limit` in one call.

    In an ordered queue, tasks of `retry` go to the front, the earliest due first. Return the number of moved
    tasks, and when the next one is due.
    """
    scheduled = yield from _forward(queue, TaskState.SCHEDULED, now, limit)
    tried = yield from forward_tried(queue, now=now, limit=limit)
    due = [one.next_due for one in (scheduled, tried) if one.next_due is not None]
    return Forwarded(scheduled.moved + tried.moved, min(due, default=None), tried.redis_now)


def forward_tried(
    queue: str, *, now: Instant | None = None, limit: int = _FORWARD_AT_ONCE
) -> Plan[Forwarded]:
    """Move every due task of `retry`, as `forward` does."""
    return (yield from _forward(queue, TaskState.RETRY, now, limit))


def _forward(queue: str, state: TaskState, now: Instant | None, limit: int) -> Plan[Forwarded]:
    keys = queue_keys(queue)
    tried = state is TaskState.RETRY
    moved = 0
    more = True
    while more:
        just_moved, more, next_due, seconds, microseconds = yield ScriptCall(
            TASK_FORWARD,
            (keys.retry if tried else keys.scheduled, keys.pending, keys.groups, keys.limits),
            (
                keys.task_prefix,
                keys.group_prefix,
                int(tried),
                min(limit, MAX_TASKS),
                *time_arguments(now),
            ),
            Replay.SAFE,
        )
        moved += just_moved
    next_second = whole_second(next_due) if next_due else None
    return Forwarded(moved, next_second, Instant(seconds, microseconds))


def delete_expired_completed(queue: str, *, batch: int, now: Instant | None = None) -> Plan[int]:
    """Delete the completed tasks whose retention has ended, `batch` in one call; return their number.

    Their locks were released when they were completed.
    """
    keys = queue_keys(queue)
    batch = min(batch, MAX_TASKS)
    total = 0
    deleted = batch
    while deleted == batch:
        deleted = yield ScriptCall(
            TASK_DELETE_EXPIRED,
            (keys.completed,),
            (keys.task_prefix, batch, *time_arguments(now)),
            Replay.SAFE,
        )
        total += deleted
    return total
