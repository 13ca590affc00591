"""Each kind of damage is found, and named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq.task import TaskState
from tests.factories import LEASE_SCORE, NOW, Tasks, message_bytes
from tests.invariants import RedisClient, check_invariants, violations

if TYPE_CHECKING:
    from collections.abc import Callable


LOCK = "asynq:{default}:unique:email:deliver:99914b932bd37a50b983c5e7c90ae93b"
DAMAGE: dict[str, Callable[[RedisClient, Tasks], object]] = {}


def damage(expected: str) -> Callable[[Callable[[RedisClient, Tasks], object]], object]:
    """Register a function that damages a sound database, and what is to be said of it."""

    def register(make: Callable[[RedisClient, Tasks], object]) -> object:
        DAMAGE[expected] = make
        return make

    return register


def sound(client: RedisClient, tasks: Tasks) -> None:
    """One task in each state, with every key that may exist together with it."""
    tasks.pending("pending", unique_key=LOCK)
    tasks.active("active", crashes=1)
    tasks.put(TaskState.SCHEDULED, "scheduled", extra={"x:group": "g"}, group_key="g")
    tasks.put(TaskState.RETRY, "retry", retried=1)
    tasks.put(TaskState.ARCHIVED, "archived", last_failed_at=NOW.seconds, extra={"x:trace": "t"})
    tasks.put(TaskState.COMPLETED, "completed", completed_at=NOW.seconds - 60, retention=60)
    tasks.put(TaskState.AGGREGATING, "aggregating", group="g")
    tasks.in_set("h", "1", "in_set")
    client.mset({tasks.keys.processed: 2, tasks.keys.failed: 1})
    client.set(f"{tasks.keys.processed}:2033-05-18", 2, ex=60)
    client.set(f"{tasks.keys.failed}:2033-05-18", 1, ex=60)
    client.hset(tasks.keys.limits, mapping={"concurrency": 1, "rate": 0.5, "period": 1.0, "burst": 1})
    client.hset(tasks.keys.bucket, mapping={"full_at": 1, "turn": 2})
    client.expire(tasks.keys.bucket, 60)


def test_a_sound_database_has_no_violations(redis_client: RedisClient, tasks: Tasks) -> None:
    """A task in each state, locks, groups, an aggregation set and counters."""
    sound(redis_client, tasks)
    check_invariants(redis_client)


def test_violations_are_all_named_at_once(redis_client: RedisClient, tasks: Tasks) -> None:
    """One run of a test then shows all of them."""
    tasks.pending("a")
    redis_client.delete("asynq:queues", tasks.keys.task("a"))
    redis_client.lpush(tasks.keys.active, "a")
    with pytest.raises(AssertionError, match=r"not sound:\n(?s:.*)I1 a(?s:.*)I5 a"):
        check_invariants(redis_client)
    redis_client.flushall()


damage("default: I1 pending is in pending and has no hash")(
    lambda client, tasks: client.delete(tasks.keys.task("pending"), LOCK)
)
damage("default: I1 pending has no field msg")(
    lambda client, tasks: client.hdel(tasks.keys.task("pending"), "msg")
)
damage("default: I2 retry is in retry, scheduled")(
    lambda client, tasks: client.zadd(tasks.keys.scheduled, {"retry": 1})
)
damage("default: I2 pending is in pending, pending")(
    lambda client, tasks: client.lpush(tasks.keys.pending, "pending")
)
damage("default: I3 retry is in retry and its hash says 'archived'")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "state", "archived")
)
damage("default: I3 aggregating is in g:g and its hash says 'retry'")(
    lambda client, tasks: client.hset(tasks.keys.task("aggregating"), "state", "retry")
)
damage("default: I4 retry has a hash in state 'retry' and is in no collection")(
    lambda client, tasks: client.zrem(tasks.keys.retry, "retry")
)
damage("default: I5 active is active without a lease")(
    lambda client, tasks: client.zrem(tasks.keys.lease, "active")
)
damage("default: I5 gone has a lease and is not active")(
    lambda client, tasks: client.zadd(tasks.keys.lease, {"gone": LEASE_SCORE})
)
damage("default: I6 the message of retry says other in queue default")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "msg", message_bytes("other", retried=1))
)
damage("default: I6 the message of retry says retry in queue low")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "msg", message_bytes("retry", "low"))
)
damage("default: I6 the message of retry cannot be decoded")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "msg", b"\xff\xff")
)
damage("default: I7 group g has tasks and is not in groups")(
    lambda client, tasks: client.srem(tasks.keys.groups, "g")
)
damage("default: I7 aggregating is in group g and its hash says otherwise")(
    lambda client, tasks: client.hdel(tasks.keys.task("aggregating"), "group")
)
damage("default: I7 aggregation set x:1 is empty")(
    lambda client, tasks: client.zadd(tasks.keys.aggregation_sets, {tasks.keys.aggregation_set("x", "1"): 1})
)
damage("default: I7 aggregating is aggregating and has no group")(
    lambda client, tasks: client.hdel(tasks.keys.task("aggregating"), "group")
)
damage("default: I7 group h:1 has tasks and is not in groups")(
    lambda client, tasks: client.zrem(tasks.keys.aggregation_sets, tasks.keys.aggregation_set("h", "1"))
)
damage("default: I7 in_set is in group h and its hash says otherwise")(
    lambda client, tasks: client.hset(tasks.keys.task("in_set"), "group", "g")
)
damage("default: I7 'asynq:{low}:g:h:1' in aggregation_sets is not the key of a set")(
    lambda client, tasks: client.zadd(tasks.keys.aggregation_sets, {"asynq:{low}:g:h:1": 1})
)
damage("default: I7 'h' in aggregation_sets is not the key of a set")(
    lambda client, tasks: client.zadd(tasks.keys.aggregation_sets, {tasks.keys.group("h"): 1})
)
damage("default: scheduled has group b'', its message 'g'")(
    lambda client, tasks: client.hdel(tasks.keys.task("scheduled"), "x:group")
)
damage("default: the score of aggregating in g:g is 1.5, not a whole second")(
    lambda client, tasks: client.zadd(tasks.keys.group("g"), {"aggregating": 1.5})
)
damage("default: I8 pending is pending and pending_since is None")(
    lambda client, tasks: client.hdel(tasks.keys.task("pending"), "pending_since")
)
damage("default: I8 retry is retry and pending_since is b'1'")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "pending_since", 1)
)
damage("default: retry has the attempts b'[]'")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "x:attempts", "[]")
)
damage("default: retry has the progress b'half'")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "x:progress", "half")
)
damage("default: I9 lock unique:email:deliver:99914b932bd37a50b983c5e7c90ae93b never expires")(
    lambda client, tasks: client.persist(LOCK)
)
damage("default: I9 lock unique:x belongs to pending, whose message names '" + LOCK + "'")(
    lambda client, tasks: client.set("asynq:{default}:unique:x", "pending", ex=60)
)
damage("default: I9 lock x:unique:k never expires")(
    lambda client, tasks: client.set("asynq:{default}:x:unique:k", "pending")
)
damage("default: pending has the x:unique_ttl b'5 until' and the unique_key " + repr(LOCK.encode()))(
    lambda client, tasks: client.hset(tasks.keys.task("pending"), "x:unique_ttl", "5 until")
)
damage("default: retry has the x:unique_ttl b'5' and the unique_key None")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "x:unique_ttl", "5")
)
damage("default: I10 retry was retried 26 times of 25")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "msg", message_bytes("retry", retried=26))
)
damage("default: I11 3 failed of 2 processed")(lambda client, tasks: client.set(tasks.keys.failed, 3))
damage("default: I11 counter processed:2033-05-18 never expires")(
    lambda client, tasks: client.persist(f"{tasks.keys.processed}:2033-05-18")
)
damage("default: I12 failed:2033-05-18 is 3, more than processed")(
    lambda client, tasks: client.set(f"{tasks.keys.failed}:2033-05-18", 3, keepttl=True)
)
damage("default: I13 completed is deleted at 1, not when its retention ends")(
    lambda client, tasks: client.zadd(tasks.keys.completed, {"completed": 1})
)
damage("default: I13 completed is completed without retention")(
    lambda client, tasks: client.hset(
        tasks.keys.task("completed"), "msg", message_bytes("completed", completed_at=NOW.seconds)
    )
)
damage("default: I13 archived was archived before it failed")(
    lambda client, tasks: client.zadd(tasks.keys.archived, {"archived": NOW.seconds - 1})
)
damage("default: I14 keeps more than 0 archived tasks")(lambda client, tasks: None)
damage("default: I18 has tasks and is not in asynq:queues")(
    lambda client, tasks: client.delete("asynq:queues")
)
damage("default: the score of retry in retry is 1.5, not a whole second")(
    lambda client, tasks: client.zadd(tasks.keys.retry, {"retry": 1.5})
)
damage("default: retry is retry and has an x:attempt")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "x:attempt", "server/1")
)
damage("default: retry is retry and has an x:crashes")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "x:crashes", "1")
)
damage("default: retry is retry and has an x:group")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "x:group", "g")
)
damage("default: retry has the unknown field colour")(
    lambda client, tasks: client.hset(tasks.keys.task("retry"), "colour", "red")
)
damage(f"default: retry has unique_key None, its message '{LOCK}'")(
    lambda client, tasks: client.hset(
        tasks.keys.task("retry"), "msg", message_bytes("retry", unique_key=LOCK)
    )
)
damage("default: x:limits has the unknown field weight")(
    lambda client, tasks: client.hset(tasks.keys.limits, "weight", 1)
)
damage("default: x:limits has concurrency b'0'")(
    lambda client, tasks: client.hset(tasks.keys.limits, "concurrency", 0)
)
damage("default: x:limits has a part of a rate: ['period', 'rate']")(
    lambda client, tasks: client.hdel(tasks.keys.limits, "burst")
)
damage("default: x:bucket has the unknown field weight")(
    lambda client, tasks: client.hset(tasks.keys.bucket, "weight", 1)
)
damage("default: x:bucket never expires")(lambda client, tasks: client.persist(tasks.keys.bucket))
damage("asynq:x:audit says b'{}'")(
    lambda client, tasks: client.xadd("asynq:x:audit", {"nonce": "n", "entry": "{}"})
)
damage("asynq:x:refused has the fields [b'entry'] at 1-1")(
    lambda client, tasks: client.xadd("asynq:x:refused", {"entry": "{}"}, id="1-1")
)
damage("asynq:x:types never expires")(lambda client, tasks: client.hset("asynq:x:types", "t", "5 {}"))
damage("asynq:x:types says b'{}' of b't'")(lambda client, tasks: client.hset("asynq:x:types", "t", "{}"))
damage("default: key 'penting' is none of Asynq's or ours")(
    lambda client, tasks: client.lpush("asynq:{default}:penting", "a")
)


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize("expected", DAMAGE)
def test_damage_is_found_and_named(redis_client: RedisClient, tasks: Tasks, expected: str) -> None:
    """The message says where, what, and which invariant."""
    sound(redis_client, tasks)
    DAMAGE[expected](redis_client, tasks)
    assert expected in violations(redis_client, max_archived=0 if "I14" in expected else 9_999)
