"""The doctor's plans for groups: reading and repairing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.arguments import MAX_TASKS, chunks
from pyasynq._broker.scripts import DOCTOR_LOOK_AT_GROUPS, DOCTOR_MEND_GROUPS
from pyasynq._broker.stored import scan_names
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_AT_ONCE = 100


class GroupFacts(NamedTuple):
    """A group or an aggregation set.

    Attributes:
        key: key of the sorted set.
        members: number of members.
        listed: whether it is listed as a group, by its name in `groups`.
        is_set: whether it is listed as an aggregation set.
        named: the group that one of its first ten members names; empty if none does.
    """

    key: bytes
    members: int
    listed: bool
    is_set: bool
    named: bytes


def list_known_groups(queue: str) -> Plan[tuple[list[bytes], list[bytes]]]:
    """Return the keys of the listed groups, and the keys of the listed aggregation sets."""
    keys = queue_keys(queue)
    names = yield from scan_names(keys.groups)
    sets = yield CommandCall(("ZRANGE", keys.aggregation_sets, 0, -1), keys.aggregation_sets, Replay.SAFE)
    return [keys.group_prefix.encode() + name for name in names], sets


def look_at_groups(queue: str, groups: Sequence[bytes]) -> Plan[list[GroupFacts]]:
    """Read the facts of groups and aggregation sets, by their keys."""
    keys = queue_keys(queue)
    facts = []
    for chunk in chunks(groups, most=_AT_ONCE):
        reply = yield ScriptCall(
            DOCTOR_LOOK_AT_GROUPS,
            (keys.groups, keys.aggregation_sets),
            (keys.task_prefix, keys.group_prefix, *chunk),
            Replay.SAFE,
        )
        for at, key in enumerate(chunk):
            members, listed, is_set, named = reply[at * 4 : at * 4 + 4]
            facts.append(GroupFacts(key, members, bool(listed), bool(is_set), named))
    return facts


def mend_groups(queue: str, groups: Mapping[bytes, bytes]) -> Plan[None]:
    """Repair groups and aggregation sets; `groups` maps each key to the group that its members belong to.

    A group or set that is listed and has members is left alone. The members of an unlisted set go back into
    their group, 1,000 at a time.
    """
    keys = queue_keys(queue)
    waiting = list(groups.items())
    while waiting:
        some, rest = waiting[:1], waiting[1:]
        unfinished = yield ScriptCall(
            DOCTOR_MEND_GROUPS,
            (keys.groups, keys.aggregation_sets),
            (keys.group_prefix, MAX_TASKS, *(part for pair in some for part in pair)),
            Replay.SAFE,
        )
        waiting = [*((key, groups[key]) for key in unfinished), *rest]
