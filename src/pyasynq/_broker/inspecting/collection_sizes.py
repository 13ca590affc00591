"""Sizes of the collections of a queue, before they are walked through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import chunks
from pyasynq._broker.inspecting.group_counts import GroupCounts
from pyasynq._broker.inspecting.tasks import collection_key
from pyasynq._broker.scripts import INSPECT_SIZES
from pyasynq._checks import check_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys
from pyasynq.info import CollectionCount, ScanFilter
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Argument

_MOST_GROUPS: Final = 500
"""Largest number of groups that are counted in one call: about a millisecond of Redis' time."""
_COLLECTIONS_AT_ONCE: Final = 250


class CountedPlace(NamedTuple):
    """A collection of a queue to count.

    Attributes:
        state: the tasks' state.
        group: the group of aggregating tasks; empty for all groups.
        scan_filter: filter whose scores bound the tasks to count.
    """

    state: TaskState
    group: str = ""
    scan_filter: ScanFilter = ScanFilter()


def count_collections(
    queue: str, places: Sequence[CountedPlace], *, now: Instant
) -> Plan[list[CollectionCount]]:
    """Count the tasks of several collections in one call, each as `count_collection` does."""
    if len(places) == 1:
        return [(yield from count_collection(queue, *places[0], now=now))]
    keys = queue_keys(check_name("queue", queue))
    places_of_tasks = (keys.pending, keys.active, keys.scheduled, keys.retry, keys.archived, keys.completed)
    found: list[CollectionCount] = []
    for chunk in chunks(places, most=_COLLECTIONS_AT_ONCE):
        args: list[Argument] = [keys.group_prefix, _MOST_GROUPS]
        for state, group, (low, high, _) in chunk:
            args += (
                state.value,
                group,
                "-inf" if low is None else low,
                "+inf" if high is None else high,
            )
        reply = yield ScriptCall(INSPECT_SIZES, (*places_of_tasks, keys.groups), tuple(args), Replay.SAFE)
        for size, positions in zip(reply[::2], reply[1::2], strict=True):
            if size < 0:
                counted = yield from GroupCounts().count(queue, positions, now)
                found.append(CollectionCount(counted.tasks, counted.tasks))
            else:
                found.append(CollectionCount(size, positions))
    return found


def count_collection(
    queue: str, state: TaskState, group: str, scan_filter: ScanFilter, *, now: Instant
) -> Plan[CollectionCount]:
    """Count the tasks of a state, and the tasks within the scores of a filter; 0 for a missing queue.

    Pending and active tasks have no scores: all of them are counted. All groups of a queue are counted
    together, whatever the scores; with more than 5,000 groups it is an estimate.
    """
    keys = queue_keys(check_name("queue", queue))
    if state is TaskState.AGGREGATING and not group:
        groups = yield CommandCall(("SCARD", keys.groups), keys.groups, Replay.SAFE)
        counted = (yield from GroupCounts().count(queue, groups, now)) if groups else None
        size = counted.tasks if counted else 0
        return CollectionCount(size, size)
    key = collection_key(keys, state, group)
    if state in {TaskState.PENDING, TaskState.ACTIVE}:
        size = yield CommandCall(("LLEN", key), key, Replay.SAFE)
        return CollectionCount(size, size)
    size = yield CommandCall(("ZCARD", key), key, Replay.SAFE)
    low, high, _ = scan_filter
    if not size or (low is None and high is None):
        return CollectionCount(size, size)
    bounds = ("-inf" if low is None else low, "+inf" if high is None else high)
    return CollectionCount(size, (yield CommandCall(("ZCOUNT", key, *bounds), key, Replay.SAFE)))
