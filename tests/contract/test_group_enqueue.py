from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.enqueueing.compose import new_task_info
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import DuplicateTaskError, TaskIDConflictError
from tests.contract.enqueueing import composed, enqueue, statuses
from tests.factories import NOW, Tasks, registered
from tests.fix_broker import BlockingPerformer, Perform
from tests.waiting import set_to

if TYPE_CHECKING:
    from tests.invariants import RedisClient

LOCK = queue_keys("default").unique("email:deliver", b"{}")
LATER: dict[str, Any] = {"process_in": 60}

kinds = pytest.mark.parametrize("when", [{}, LATER], ids=["now", "scheduled"])


def test_a_task_with_a_group_joins_it(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET.

    ZADD or SADD; a score that is rounded up cuts no grace short.
    """
    one, two = composed("a", group="g:1"), composed("b", group="h")
    assert ["enqueued", "enqueued"] == statuses(enqueue(perform, one, two))
    assert {"msg": one.encoded, "state": b"aggregating", "group": b"g:1"} == tasks.fields("a")
    assert ({"a": NOW.ceiling}, {"b": NOW.ceiling}) == (tasks.members("g:1"), tasks.members("h"))
    assert {"g:1", "h"} == tasks.groups()
    assert [] == tasks.ids("pending")


def test_w05_h11_a_task_with_a_group_and_a_process_time_is_scheduled_for_its_group(
    perform: Perform, tasks: Tasks
) -> None:
    """Fails if the script no longer calls HSET or ZADD.

    `group` itself would make a forwarder of Go strand the task.
    """
    task = composed("a", group="g", **LATER)
    assert ["enqueued"] == statuses(enqueue(perform, task))
    assert {"msg": task.encoded, "state": b"scheduled", "x:group": b"g"} == tasks.fields("a")
    assert {"a": NOW.ceiling + 60} == tasks.scores("scheduled")
    assert (set(), {}) == (tasks.groups(), tasks.members("g"))


@kinds
def test_w09_h09_a_unique_task_of_a_group_names_its_lock(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, when: dict[str, Any]
) -> None:
    """Fails if the script no longer calls SET and of the second HSET.

    A script that deletes the task releases the lock then.
    """
    assert ["enqueued"] == statuses(enqueue(perform, composed("a", group="g", unique=600, **when)))
    assert LOCK.encode() == tasks.fields("a")["unique_key"]
    assert (b"a", set_to(660 if when else 600)) == (redis_client.get(LOCK), redis_client.ttl(LOCK))


@kinds
def test_a_task_of_a_group_without_a_lock_has_none(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, when: dict[str, Any]
) -> None:
    """Sees a SET or HSET with an empty key."""
    enqueue(perform, composed("a", group="g", **when))
    assert "unique_key" not in tasks.fields("a")
    assert 0 == redis_client.exists("")


@kinds
def test_w02_h02_a_conflict_of_ids_leaves_group_and_lock_alone(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, when: dict[str, Any]
) -> None:
    """Fails if the script no longer calls EXISTS.

    The other task of the call is enqueued, and the position is right.
    """
    tasks.pending("b")
    before = tasks.fields("b")
    results = enqueue(
        perform, composed("a", b"a", group="g", **when), composed("b", group="g", unique=600, **when)
    )
    assert ["enqueued", "conflict"] == statuses(results)
    assert isinstance(results[1].error, TaskIDConflictError)
    assert 0 == redis_client.exists(LOCK)
    assert before == tasks.fields("b")
    assert ["a"] == [*tasks.members("g"), *tasks.ids("scheduled")]


@kinds
def test_a_held_lock_makes_a_duplicate_in_a_group(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, when: dict[str, Any]
) -> None:
    """NX keeps the lock with its owner; nothing is written for the duplicate."""
    enqueue(perform, composed("a", unique=600))
    redis_client.expire(LOCK, 100)
    results = enqueue(
        perform,
        composed("b", group="g", unique=600, **when),
        composed("c", b"c", group="g", unique=600, **when),
        composed("d", group="g", unique=600, **when),
    )
    assert ["duplicate", "enqueued", "duplicate"] == statuses(results)
    assert isinstance(results[0].error, DuplicateTaskError)
    assert "a" == results[0].error.holder
    assert (b"a", set_to(100)) == (redis_client.get(LOCK), redis_client.ttl(LOCK))
    assert {} == tasks.fields("b") == tasks.fields("d")


@kinds
@pytest.mark.parametrize("unique", [{}, {"unique": 600}], ids=["plain", "unique"])
def test_w25_a_task_of_a_group_stored_before_the_reply_was_lost_is_enqueued(
    redis_client: RedisClient, tasks: Tasks, when: dict[str, Any], unique: dict[str, Any]
) -> None:
    """Fails if the script no longer calls HGET: neither the id nor its own lock blocks the second call."""
    tasks.pending("b")
    perform = BlockingPerformer(redis_client, replay=True)
    own, other = composed("a", group="g", **unique, **when), composed("b", b"b", group="g", **when)
    assert ["enqueued", "conflict"] == statuses(enqueue(perform, own, other))
    assert ["a"] == [*tasks.members("g"), *tasks.ids("scheduled")]


@kinds
def test_w25_a_lock_of_the_same_id_counts_for_a_group_only_on_a_replay(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, when: dict[str, Any]
) -> None:
    """Fails if the script no longer calls GET: the lock of a finished task does not block, another's does."""
    own = composed("a", group="g", unique=600, **when)
    other = composed("b", b"b", group="g", unique=600, **when)
    redis_client.set(own.lock, "a", ex=600)
    redis_client.set(other.lock, "c", ex=600)
    assert ["duplicate", "duplicate"] == statuses(enqueue(perform, own, other))
    replay = BlockingPerformer(redis_client, replay=True)
    assert ["enqueued", "duplicate"] == statuses(enqueue(replay, own, other))
    assert {} == tasks.fields("a"), "a task that has been run is not run again"


def test_h15_without_a_time_redis_tells_when_a_member_joined(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME: NOW lies in its future."""
    [run] = split_runs([composed("a", group="g")])
    perform(registered(enqueue_run(run, now=None), run.queue))
    assert 1_700_000_000 < tasks.members("g")["a"] < NOW.seconds


def test_a_member_of_a_group_has_no_process_time_yet() -> None:
    """The caller of the enqueue gets the time; for a scheduled task it is the time at which it joins."""
    info = new_task_info(composed("a", group="g"), NOW)
    assert ("aggregating", "g", None) == (info.state.value, info.group, info.next_process_at)
    later = new_task_info(composed("a", group="g", **LATER), NOW)
    assert later.next_process_at is not None
    assert ("scheduled", "g", NOW.ceiling + 60) == (
        later.state.value,
        later.group,
        later.next_process_at.timestamp(),
    )
