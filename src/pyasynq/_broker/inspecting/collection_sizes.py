"""Sizes of the collections of a queue, before they are walked through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.inspecting.group_counts import GroupCounts
from pyasynq._broker.inspecting.tasks import collection_key
from pyasynq._checks import check_name
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import queue_keys
from pyasynq.info import CollectionCount
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from pyasynq._clock import Instant
    from pyasynq.info import ScanFilter


def count_collection(
    queue: str, state: TaskState, group: str, scan_filter: ScanFilter, *, now: Instant
) -> Plan[CollectionCount]:
    """Count the tasks of a state, and the tasks within the scores of a filter; 0 for a missing queue.

    All groups of a queue are counted together, whatever the scores; with more than 5,000 groups it is an
    estimate.
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
