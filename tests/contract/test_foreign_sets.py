"""H9: a set's name outside the groups of the queue is ignored, no matter which client wrote it.

A cluster breaks off a script that touches a key of another slot, and every Redis one that takes a string
for a sorted set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.inspecting.actions import delete_tasks, run_tasks
from pyasynq._broker.inspecting.queues import count_tasks
from pyasynq._broker.inspecting.removal import remove_queue
from pyasynq._wire.keys import queue_keys
from tests.contract.aggregating import STAGED
from tests.contract.test_full_redis import settle_by_doctor
from tests.factories import NOW
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.plan import Plan
    from tests.factories import Tasks
    from tests.fix_broker import Perform

KEYS = queue_keys("default")
DEEDS: dict[str, Callable[[], Plan[Any]]] = {
    "run": lambda: run_tasks("default", ["a"], now=NOW),
    "deleted": lambda: delete_tasks("default", ["a"]),
    "settled by the doctor": lambda: settle_by_doctor(b"a", "pending", "pending"),
    "counted": lambda: count_tasks("default", NOW),
    "removed": lambda: remove_queue("default", force=True, progress=None),
}


def outcome(perform: Perform, tasks: Tasks, deed: Callable[[], Plan[Any]], name: str) -> tuple[Any, Any]:
    """Return the results of the change to a member of a set, except the list of sets."""
    tasks.client.flushall()
    tasks.client.sadd("asynq:queues", "default")
    tasks.in_set(STAGED.group, STAGED.id, "a")
    if name:
        tasks.client.zadd(KEYS.aggregation_sets, {name: 1})
        tasks.client.set(name, "not ours")
    result = perform(deed())
    if name:
        assert b"not ours" == tasks.client.get(name)
        tasks.client.delete(name)
        tasks.client.zrem(KEYS.aggregation_sets, name)
    return result, snapshot(tasks.client)


@pytest.mark.parametrize("name", ["foo", "asynq:{other}:g:x:y", "asynq:default"])
@pytest.mark.parametrize("deed", DEEDS.values(), ids=list(DEEDS))
def test_h09_a_listed_name_that_is_not_a_set_of_the_queue_blocks_nothing(
    perform: Perform, tasks: Tasks, deed: Callable[[], Plan[Any]], name: str
) -> None:
    """All is as it would be without it, on a cluster too."""
    assert outcome(perform, tasks, deed, "") == outcome(perform, tasks, deed, name)
    tasks.client.flushall()  # the doctor's half of a repair leaves the message as it was
