"""Groups: search for due groups, and moves of their oldest members into aggregation sets."""

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
"""Maximum number of members of a set, if the group's configuration sets none."""

MAX_SET_BYTES: Final = 16_000_000
"""Maximum bytes of messages in a set; a larger message gets its own set."""


class GroupLimits(NamedTuple):
    """Conditions under which a group is due, in whole seconds; the first one that is met counts.

    Attributes:
        grace: seconds after its newest member joined.
        max_delay: seconds after its oldest member joined; 0 for no limit.
        max_size: number of members at which it is due; 0 for no limit. Also the largest size of a set.
    """

    grace: int
    max_delay: int = 0
    max_size: int = 0


class GroupCheck(NamedTuple):
    """The result of checking groups.

    Attributes:
        sets: the sets that were made; they belong to the caller until their deadline.
        next_due: Unix time at which the next group is due; it is past if a group is due already. None if
            all groups are empty.
        redis_now: Redis' time at the last call.
    """

    sets: list[AggregationSet]
    next_due: int | None
    redis_now: Instant


def new_set_id() -> str:
    """Return a random set id in Asynq's format."""
    return str(uuid.uuid4())


def list_groups(queue: str) -> Plan[list[str]]:
    """Return the sorted names of groups; an empty group is listed until the next check."""
    return sorted(readable_names((yield from scan_names(queue_keys(queue).groups))))


def check_groups(
    queue: str,
    groups: Sequence[tuple[str, GroupLimits]],
    *,
    most_sets: int,
    now: Instant | None = None,
    timeout: int = AGGREGATION_SET_SECONDS,
    new_id: Callable[[], str] = new_set_id,
) -> Plan[GroupCheck]:
    """Make sets, at most `most_sets`, of the oldest members of the due groups.

    A set has at most `max_size` members of its group, or 1,000, and 16 MB of messages. Ids without a task
    are dropped, as are names of empty groups. Once `most_sets` sets are made, the groups of further script
    calls are not checked.
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
    return GroupCheck(made, min(due, default=None), redis_now)
