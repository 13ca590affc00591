"""Taking tasks from a queue, with a lease and a token, and finding again those whose reply was lost."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyasynq._broker.arguments import MAX_BYTES, MAX_TASKS, time_arguments
from pyasynq._broker.plan import Plan, Replay, ScriptCall
from pyasynq._broker.scripts import LEASE_DEQUEUE, LEASE_FIND_DEQUEUED
from pyasynq._clock import Instant
from pyasynq._wire.constants import LEASE_SECONDS
from pyasynq._wire.keys import queue_keys

_HEAD: Final = 6
_STRIDE: Final = 4


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
        empty: nothing was left to take when the call ended (the queue is empty or paused).
        suspect_waiting: the next task is one that may kill its worker, and was not taken.
        lease_score: Unix time at which the leases end.
        redis_now: the time at which Redis did it.
    """

    tasks: list[DequeuedTask]
    ghosts: int
    empty: bool
    suspect_waiting: bool
    lease_score: int
    redis_now: Instant


def dequeue(
    queue: str,
    *,
    limit: int,
    token: str,
    lease_seconds: int = LEASE_SECONDS,
    suspect_from: int = 0,
    suspect_room: bool = False,
    now: Instant | None = None,
) -> Plan[Dequeued]:
    """Take up to `limit` tasks (at most 1,000, or about 4 MB) from the front of a queue.

    A task that has crashed `suspect_from` times or more (0: no task) is taken only alone, and only
    with `suspect_room`; the walk ends in front of it otherwise. A paused queue gives nothing. The
    call is never sent again: after `ReplyLostError`, `find_dequeued` says what it took.
    """
    keys = queue_keys(queue)
    reply = yield ScriptCall(
        LEASE_DEQUEUE,
        (keys.pending, keys.paused, keys.active, keys.lease),
        (
            keys.task_prefix,
            token,
            min(limit, MAX_TASKS),
            MAX_BYTES,
            lease_seconds,
            suspect_from,
            int(suspect_room),
            *time_arguments(now),
        ),
        Replay.NEVER,
    )
    ghosts, empty, waiting, lease_score, seconds, microseconds = reply[:_HEAD]
    tasks = [
        DequeuedTask(task_id.decode(), message, crashes, lease_score)
        for task_id, message, crashes in zip(
            reply[_HEAD::3], reply[_HEAD + 1 :: 3], reply[_HEAD + 2 :: 3], strict=True
        )
    ]
    return Dequeued(tasks, ghosts, bool(empty), bool(waiting), lease_score, Instant(seconds, microseconds))


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
        DequeuedTask(reply[at].decode(), reply[at + 1], reply[at + 2], reply[at + 3])
        for at in range(0, len(reply), _STRIDE)
    ]
