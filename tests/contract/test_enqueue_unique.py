from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._wire.keys import queue_keys
from pyasynq.errors import DuplicateTaskError
from tests.contract.enqueueing import composed, enqueue, statuses
from tests.factories import NOW, PENDING_SINCE, Tasks
from tests.fix_broker import BlockingPerformer, Perform
from tests.waiting import set_to

if TYPE_CHECKING:
    from typing import Any

    from tests.invariants import RedisClient


LOCK = queue_keys("default").unique("email:deliver", b"{}")
LATER: dict[str, Any] = {"process_in": 60}

kinds = pytest.mark.parametrize("when", [{}, LATER], ids=["pending", "scheduled"])


@kinds
def test_the_lock_belongs_to_the_task_and_expires(
    perform: Perform, redis_client: RedisClient, when: dict[str, Any]
) -> None:
    """Fails if the script no longer calls SET; a scheduled task's lock holds from its process time on."""
    assert ["enqueued"] == statuses(enqueue(perform, composed("a", unique=600, **when)))
    assert b"a" == redis_client.get(LOCK)
    assert set_to(660 if when else 600) == redis_client.ttl(LOCK)


def test_a_pending_task_names_its_lock(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET or LPUSH."""
    task = composed("a", unique=600)
    enqueue(perform, composed("z", b"z", unique=600), task)
    assert {
        "msg": task.encoded,
        "state": b"pending",
        "pending_since": PENDING_SINCE,
        "unique_key": LOCK.encode(),
        "x:unique_ttl": b"600",
    } == tasks.fields("a")
    assert ["z", "a"] == tasks.ids("pending")


def test_a_scheduled_task_names_its_lock(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET or ZADD."""
    task = composed("a", unique=600, **LATER)
    enqueue(perform, task)
    assert {
        "msg": task.encoded,
        "state": b"scheduled",
        "unique_key": LOCK.encode(),
        "x:unique_ttl": b"600",
    } == tasks.fields("a")
    assert {"a": NOW.ceiling + 60} == tasks.scores("scheduled")


@kinds
def test_a_held_lock_makes_a_duplicate(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, when: dict[str, Any]
) -> None:
    """NX keeps the lock with its owner; nothing is written for the duplicate."""
    enqueue(perform, composed("a", unique=600))
    redis_client.expire(LOCK, 100)
    results = enqueue(perform, composed("b", unique=600, **when), composed("c", b"c", unique=600, **when))
    assert ["duplicate", "enqueued"] == statuses(results)
    assert isinstance(results[0].error, DuplicateTaskError)
    assert LOCK == results[0].error.unique_key
    assert "a" == results[0].error.holder
    assert (b"a", set_to(100)) == (redis_client.get(LOCK), redis_client.ttl(LOCK))
    assert {} == tasks.fields("b")


@kinds
def test_a_duplicate_names_the_task_that_holds_the_lock(
    perform: Perform, redis_client: RedisClient, when: dict[str, Any]
) -> None:
    """Task and queue, which people can look at, and not the key of the lock. (D37)"""
    results = enqueue(perform, *(composed(name, unique=600, **when) for name in ("a", "b")))
    assert "task already exists: task 'a' in queue 'default' holds its lock" == str(results[1].error)
    assert LOCK not in str(results[1].error)
    # A key of another program blocks it as well, and must not end a script halfway.
    redis_client.delete(LOCK)
    redis_client.lpush(LOCK, "x")
    results = enqueue(perform, *(composed(name, unique=600, **when) for name in ("c", "d")))
    assert {"task already exists: another task in queue 'default' holds its lock"} == {
        str(result.error) for result in results
    }
    redis_client.delete(LOCK)


@kinds
def test_w02_h02_a_conflict_of_ids_leaves_no_lock(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, when: dict[str, Any]
) -> None:
    """Fails if the script no longer calls EXISTS.

    Or takes the lock before it: Asynq's lock stays for its whole time.
    """
    tasks.pending("b")
    before = tasks.fields("b")
    results = enqueue(perform, composed("c", b"c", unique=600, **when), composed("b", unique=600, **when))
    assert ["enqueued", "conflict"] == statuses(results)
    assert 0 == redis_client.exists(LOCK)
    assert before == tasks.fields("b")


@kinds
def test_w25_a_unique_task_stored_before_the_reply_was_lost_is_enqueued(
    redis_client: RedisClient, tasks: Tasks, when: dict[str, Any]
) -> None:
    """Fails if the script no longer calls HGET: neither the id nor its own lock blocks the second call."""
    tasks.pending("b")
    perform = BlockingPerformer(redis_client, replay=True)
    own, other = composed("a", unique=600, **when), composed("b", b"b", unique=600, **when)
    assert ["enqueued", "conflict"] == statuses(enqueue(perform, own, other))
    assert 1 == tasks.ids("scheduled" if when else "pending").count("a")


@kinds
def test_w25_a_lock_of_the_same_id_counts_only_on_a_replay(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, when: dict[str, Any]
) -> None:
    """Fails if the script no longer calls GET: the lock of a finished task does not block, another's does."""
    own, other = composed("a", unique=600, **when), composed("b", b"b", unique=600, **when)
    redis_client.set(own.lock, "a", ex=600)
    redis_client.set(other.lock, "c", ex=600)
    assert ["duplicate", "duplicate"] == statuses(enqueue(perform, own, other))
    replay = BlockingPerformer(redis_client, replay=True)
    assert ["enqueued", "duplicate"] == statuses(enqueue(replay, own, other))
    assert {} == tasks.fields("a"), "a task that has been run is not run again"


@kinds
def test_when_all_duplicates_are_refused_nothing_is_pushed(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, when: dict[str, Any]
) -> None:
    """A push without ids would be an error."""
    redis_client.set(LOCK, "x", ex=600)
    assert ["duplicate"] == statuses(enqueue(perform, composed("a", unique=600, **when)))
    assert [] == tasks.ids("pending") + tasks.ids("scheduled")
