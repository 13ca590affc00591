"""Groups: which of them are due, and moving their oldest members into aggregation sets."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.aggregation_sets import AggregationSet
from pyasynq._broker.arguments import FIRST_SEND, chunks, time_arguments
from pyasynq._broker.scripts import GROUP_CHECK
from pyasynq._broker.stored import readable_names, scan_names
from pyasynq._clock import Instant
from pyasynq._redis.plan import Argument, Plan, Replay, ScriptCall
from pyasynq._wire.constants import AGGREGATION_SET_SECONDS
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEFAULT_MAX_MEMBERS: Final = 1_000
"""Members of a set whose group has no maximum of its own."""

MAX_SET_BYTES: Final = 16_000_000
"""Bytes of messages in a set; one larger message is a set of its own."""


class GroupLimits(NamedTuple):
    """When a group is due, in whole seconds: whichever comes first.

    Attributes:
        grace: so long after its newest member joined.
        max_delay: so long after its oldest member joined; 0 for no limit.
        max_size: when it has so many members; 0 for no limit. A set has no more members than that.
    """

    grace: int
    max_delay: int = 0
    max_size: int = 0


class Checked(NamedTuple):
    """What a check of groups found.

    Attributes:
        sets: the sets that were made; they are the caller's until their deadline.
        next_due: Unix time at which the next group is due, not after now for one that is due already;
            None when all groups are empty.
        redis_now: the time at which Redis looked last.
    """

    sets: list[AggregationSet]
    next_due: int | None
    redis_now: Instant


def new_set_id() -> str:
    """Return a random id; Asynq's are of the same form."""
    return str(uuid.uuid4())


def list_groups(queue: str) -> Plan[list[str]]:
    """Return the names of the groups that have members, or had at the last check; sorted."""
    return sorted(readable_names((yield from scan_names(queue_keys(queue).groups))))


def check_groups(
    queue: str,
    groups: Sequence[tuple[str, GroupLimits]],
    *,
    most_sets: int,
    now: Instant | None = None,
    timeout: int = AGGREGATION_SET_SECONDS,
    new_id: Callable[[], str] = new_set_id,
) -> Plan[Checked]:
    """Make sets, `most_sets` at most, of the oldest members of those groups that are due.

    A set has at most `max_size` members of its group, or 1,000, and 16 MB of messages. Ids without a task
    are dropped, names of empty groups too. Once all sets are made, the groups of the next call of Redis are
    not looked at.
    """
    keys = queue_keys(queue)
    made: list[AggregationSet] = []
    due: list[int] = []
    redis_now = Instant(0)
    for chunk in chunks(groups, width=5):
        if made and len(made) == most_sets:
            break
        sets = [AggregationSet(queue, group, new_id()) for group, _ in chunk]
        tail: list[Argument] = []
        for (group, limits), one in zip(chunk, sets, strict=True):
            tail += (group, one.key, limits.max_size, limits.max_delay, limits.grace)
        seconds, microseconds, *reply = yield ScriptCall(
            GROUP_CHECK,
            (keys.groups, keys.aggregation_sets),
            (
                FIRST_SEND,
                keys.task_prefix,
                keys.group_prefix,
                most_sets - len(made),
                DEFAULT_MAX_MEMBERS,
                MAX_SET_BYTES,
                timeout,
                *time_arguments(now),
                *tail,
            ),
            Replay.BY_TOKEN,
        )
        redis_now = Instant(seconds, microseconds)
        made += [one for one, moved in zip(sets, reply[::2], strict=True) if moved]
        due += [int(next_due) for next_due in reply[1::2] if next_due != b""]
    return Checked(made, min(due, default=None), redis_now)
