"""Aggregation sets: members of a group that are being aggregated into one task.

A set belongs to the server that made it until a deadline (a lease), which the server renews while the user's
function runs. A set ends in one call: either its task is stored and the set is deleted with all members, or
nothing has changed. When the deadline of a dead owner passes, the members go back into their group, so none
is stranded. An owner that is late is refused, so nothing is aggregated twice.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import FIRST_SEND, MAX_BYTES, MAX_TASKS, chunks, time_arguments
from pyasynq._broker.enqueueing.enqueue_rules import new_task_arguments
from pyasynq._broker.scripts import (
    GROUP_FINISH,
    GROUP_QUARANTINE,
    GROUP_READ_SET,
    GROUP_RECLAIM,
    GROUP_RELEASE_LOCKS,
    GROUP_RENEW,
)
from pyasynq._broker.settle import trim_rest
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.constants import AGGREGATION_SET_SECONDS
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._clock import Instant

_SETS_AT_ONCE: Final = 100
_RECLAIMED_MEMBERS: Final = 10_000


class AggregationSet(NamedTuple):
    """Members of a group that are being aggregated into one task.

    Attributes:
        queue: the queue of the group and of the aggregate task.
        group: the group's name.
        id: id of the set, and of the aggregate task.
    """

    queue: str
    group: str
    id: str

    @property
    def key(self) -> str:
        """The set's key in Redis."""
        return queue_keys(self.queue).aggregation_set(self.group, self.id)


class SetMember(NamedTuple):
    """A task of an aggregation set; its message is not decoded."""

    id: str
    message: bytes


class Finish(enum.Enum):
    """Outcome of the call that stores the aggregate task and deletes its aggregation set."""

    DONE = 1
    DONE_BEFORE = 2
    """The aggregate task existed already, so only the set was deleted."""
    EXISTING_KEPT = 3
    """Another task takes its place, by `on_duplicate` or `once_for`: the set was deleted, no task created."""
    CONFLICT = 0
    """Another task has the id that the user chose; nothing was written."""
    DUPLICATE = -1
    """Another task holds the lock of the unique aggregate task; nothing was written."""
    LOST = -2
    """The set is gone: its deadline passed, and its members were put back. Nothing was written."""


class Reclaimed(NamedTuple):
    """Number of stale sets that were deleted, and of members that went back into their groups."""

    sets: int
    members: int


def read_set(one: AggregationSet) -> Plan[list[SetMember] | None]:
    """Return the members of a set, oldest first; None if the set does not exist any more.

    Skip ids without a task.
    """
    keys = queue_keys(one.queue)
    members: list[SetMember] = []
    start: int | bytes = 0
    while start != b"":
        reply = yield ScriptCall(
            GROUP_READ_SET,
            (keys.aggregation_sets, one.key),
            (keys.task_prefix, start, MAX_TASKS, MAX_BYTES),
            Replay.SAFE,
        )
        if reply is None:
            return None
        start = reply[0]
        members += [
            SetMember(decode_name(task_id), message)
            for task_id, message in zip(reply[1::2], reply[2::2], strict=True)
        ]
    return members


def renew_sets(
    queue: str,
    sets: Sequence[AggregationSet],
    *,
    timeout: int = AGGREGATION_SET_SECONDS,
    now: Instant | None = None,
) -> Plan[list[AggregationSet]]:
    """Renew the deadlines (leases) of a queue's sets: they end `timeout` seconds from now.

    Return the sets that do not exist any more.
    """
    keys = queue_keys(queue)
    lost: set[bytes] = set()
    for chunk in chunks(sets, width=2):
        tail = [argument for one in chunk for argument in (one.group, one.key)]
        lost.update(
            (
                yield ScriptCall(
                    GROUP_RENEW,
                    (keys.groups, keys.aggregation_sets),
                    (keys.group_prefix, timeout, *time_arguments(now), *tail),
                    Replay.SAFE,
                )
            )
        )
    return [one for one in sets if one.key.encode() in lost]


def finish_set(
    one: AggregationSet,
    aggregate: Composed,
    *,
    locks: Iterable[tuple[str, str]],
    again: bool = False,
    now: Instant | None = None,
) -> Plan[Finish]:
    """Store the aggregate task, and delete the set and all members, in one call; return the outcome.

    Args:
        one: the set; the task's queue must be its queue.
        aggregate: pending, scheduled, or the member of a group; unique or not.
        locks: id and lock key of each unique member. The locks that members own are released. Locks that do
            not fit into the call are released by further calls.
        again: whether an earlier call for this set may have taken effect.
        now: the current time; None uses Redis' clock.
    """
    keys = queue_keys(one.queue)
    first, *rest = list(chunks(list(locks), width=2)) or [()]
    code = yield ScriptCall(
        GROUP_FINISH,
        (*keys.places, one.key),
        (
            "1" if again else FIRST_SEND,
            keys.task_prefix,
            keys.group_prefix,
            *time_arguments(now),
            int(aggregate.id == one.id),
            *new_task_arguments(aggregate),
            *(argument for lock in first for argument in lock),
        ),
        Replay.BY_TOKEN,
    )
    finish = Finish(code)
    if code > 0:
        for some in rest:
            yield from release_locks(one, some)
    return finish


def release_locks(one: AggregationSet, locks: Sequence[tuple[str, str]]) -> Plan[None]:
    """Release the uniqueness locks of members that were deleted with their set.

    `locks` has the id and the lock key of each member, for one script call.
    """
    args = (queue_keys(one.queue).task_prefix, *(argument for lock in locks for argument in lock))
    yield ScriptCall(GROUP_RELEASE_LOCKS, (one.key,), args, Replay.SAFE)


def reclaim_stale_sets(queue: str, *, now: Instant | None = None) -> Plan[Reclaimed]:
    """Put the members of stale sets (deadline passed) back into their groups; return how many."""
    keys = queue_keys(queue)
    sets, members, more = 0, 0, True
    while more:
        some_sets, some_members, more = yield ScriptCall(
            GROUP_RECLAIM,
            (keys.groups, keys.aggregation_sets),
            (keys.group_prefix, _SETS_AT_ONCE, _RECLAIMED_MEMBERS, *time_arguments(now)),
            Replay.SAFE,
        )
        sets += some_sets
        members += some_members
    return Reclaimed(sets, members)


def release_sets(
    queue: str,
    sets: Sequence[AggregationSet],
    *,
    now: Instant | None = None,
) -> Plan[Reclaimed]:
    """Put the members of these sets of one queue back into their groups at once; return how many.

    The same happens to all other stale sets of the queue, which are counted too.
    """
    # Deadlines are rounded up to the next second, so this one has passed already.
    yield from renew_sets(queue, sets, timeout=-1, now=now)
    return (yield from reclaim_stale_sets(queue, now=now))


def quarantine_member(
    one: AggregationSet,
    task_id: str,
    *,
    reason: str,
    max_size: int,
    cutoff: int,
    now: Instant,
) -> Plan[int]:
    """Archive a member whose message cannot be decoded; keep its bytes, and store the reason as traceback.

    Then trim the archive, as `settle_archive` does. Return the number of archived tasks that were deleted.
    """
    keys = queue_keys(one.queue)
    reply = yield ScriptCall(
        GROUP_QUARANTINE,
        (keys.aggregation_sets, one.key, keys.archived),
        (keys.task_prefix, max_size, cutoff, task_id, now.ceiling, reason.encode(errors="replace")),
        Replay.SAFE,
    )
    return (yield from trim_rest(keys, reply, max_size=max_size, cutoff=cutoff))
