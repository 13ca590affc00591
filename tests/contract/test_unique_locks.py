"""H9: a lock holds as long as its task needs it, goes when its rule says so, and is only ever its owner's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.aggregation_sets import quarantine_member
from pyasynq._broker.inspecting.actions import ArchiveLimits, archive_tasks, run_tasks
from pyasynq._broker.inspecting.removal import remove_queue
from pyasynq._broker.inspecting.updates import update_payload
from pyasynq._broker.leases import PoisonTask, RecoverTask, archive_poison, quarantine, recover
from pyasynq._broker.locks import HeldLock, renew_locks
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import decode_task_message
from tests.contract.aggregating import STAGED
from tests.contract.enqueueing import composed, enqueue, statuses
from tests.contract.settling import CUTOFF
from tests.contract.uniqueness import KEY, RETRY_AT, archive, bring_into, complete, done, retry, take, unique
from tests.factories import NOW, TOKEN, Tasks, claim
from tests.fix_broker import BlockingPerformer, Perform
from tests.waiting import set_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.plan import Plan
    from tests.invariants import RedisClient

LOCK = queue_keys("default").unique("email:deliver", b"{}")
EXPIRED = NOW.seconds - 60


@pytest.fixture
def once(redis_client: RedisClient) -> Perform:
    """The simplest driver."""
    return BlockingPerformer(redis_client)


def nearly_over(client: RedisClient, key: str = KEY) -> None:
    """Leave a lock one second."""
    client.expire(key, 1)


# While it runs.


@pytest.mark.parametrize(("seconds", "expected"), [(600, 600), (5, 60)])
def test_h09_a_task_that_is_taken_renews_its_lock(
    perform: Perform, redis_client: RedisClient, seconds: int, expected: int
) -> None:
    """For the time it was asked for, and a minute at least: then comes the first renewal, or a recovery."""
    enqueue(perform, unique("a", unique=seconds), composed("z", b"z", unique=600))
    nearly_over(redis_client)
    take(perform)
    assert (b"a", set_to(expected)) == (redis_client.get(KEY), redis_client.ttl(KEY))


def test_h09_a_lock_that_holds_longer_stays(once: Perform, redis_client: RedisClient) -> None:
    """That of a scheduled task that was run by hand."""
    bring_into(once, "scheduled")
    once(run_tasks("default", ["a"], now=NOW))
    take(once)
    assert set_to(660) == redis_client.ttl(KEY)


@pytest.mark.parametrize("until", ["success", "start"])
def test_h09_a_task_that_lost_its_lock_does_not_touch_it_when_it_is_taken(
    once: Perform, redis_client: RedisClient, until: str
) -> None:
    """The lock belongs to another task by now, or does not exist."""
    enqueue(once, unique("a", until=until))
    redis_client.set(KEY, "somebody", ex=5)
    take(once)
    assert (b"somebody", set_to(5)) == (redis_client.get(KEY), redis_client.ttl(KEY))


def test_h09_a_lock_that_has_lapsed_is_not_taken_again(once: Perform, redis_client: RedisClient) -> None:
    """An equal task may have come and gone meanwhile."""
    item = unique("a")
    enqueue(once, item)
    redis_client.delete(KEY)
    take(once)
    once(renew_locks("default", [HeldLock("a", KEY)]))
    once(retry(item))
    assert 0 == redis_client.exists(KEY)


def test_the_lock_of_a_task_that_starts_goes_for_good(
    once: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """A worker has it, so an equal one may wait; what a retry or a recovery does to locks is not for it."""
    item = bring_into(once, "active", until="start")
    assert 0 == redis_client.exists(KEY)
    assert {"msg", "state", "unique_key", "x:attempt"} == tasks.fields("a").keys()
    assert ["enqueued"] == statuses(enqueue(once, unique("b", until="start")))
    once(retry(item))
    assert (b"b", set_to(600)) == (redis_client.get(KEY), redis_client.ttl(KEY))


@pytest.mark.parametrize(("seconds", "expected"), [(600, 600), (5, 60)])
def test_h09_a_running_task_renews_its_lock(
    perform: Perform, redis_client: RedisClient, seconds: int, expected: int
) -> None:
    """For two leases at least, so that it is there when the task is recovered."""
    bring_into(perform, "active", unique=seconds)
    nearly_over(redis_client)
    assert 1 == perform(renew_locks("default", [HeldLock("x", "no"), HeldLock("a", KEY)], lease_seconds=30))
    assert (b"a", set_to(expected)) == (redis_client.get(KEY), redis_client.ttl(KEY))


def test_h09_a_lock_is_renewed_by_its_owner_only_and_while_it_runs(
    once: Perform, redis_client: RedisClient
) -> None:
    """The owner has a lease."""
    bring_into(once, "archived")
    nearly_over(redis_client)
    assert 0 == once(renew_locks("default", [HeldLock("a", KEY)]))
    redis_client.set(KEY, "somebody", ex=5)
    take_over = unique("b", unique_key="other")
    enqueue(once, take_over)
    take(once)
    assert 1 == once(renew_locks("default", [HeldLock("b", KEY)]))
    assert (b"somebody", set_to(5)) == (redis_client.get(KEY), redis_client.ttl(KEY))


def test_h09_a_task_of_go_does_not_tell_its_time_and_keeps_the_lock_while_it_runs(
    once: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Whatever is left of its own time is left to it otherwise."""
    tasks.pending("a", unique_key=LOCK)
    nearly_over(redis_client, LOCK)
    take(once)
    assert set_to(1) == redis_client.ttl(LOCK)
    once(renew_locks("default", [HeldLock("a", LOCK)]))
    assert set_to(60) == redis_client.ttl(LOCK)


# Retry and recovery.


@pytest.mark.parametrize(("left", "expected"), [(1, 690), (4_000, 4_000)])
def test_h09_a_retry_keeps_the_lock_until_its_next_attempt_and_its_own_time(
    perform: Perform, redis_client: RedisClient, left: int, expected: int
) -> None:
    """90 seconds and 600; a lock that holds longer is not cut short."""
    item = bring_into(perform, "active")
    redis_client.expire(KEY, left)
    perform(retry(item))
    assert (b"a", set_to(expected)) == (redis_client.get(KEY), redis_client.ttl(KEY))


def test_h09_a_retry_that_is_due_keeps_the_lock_for_its_own_time(
    once: Perform, redis_client: RedisClient
) -> None:
    """Time that has passed is not taken off."""
    item = bring_into(once, "active")
    nearly_over(redis_client)
    once(retry(item, retry_at=NOW.seconds - 100))
    assert set_to(600) == redis_client.ttl(KEY)


def test_h09_a_retry_without_a_lock_looks_at_none(once: Perform, redis_client: RedisClient) -> None:
    """The retry leaves the expiry of the lock as it is."""
    item = bring_into(once, "active", until="expiry")
    redis_client.expire(KEY, 5)
    once(retry(item))
    assert set_to(5) == redis_client.ttl(KEY)


def test_h09_a_retry_leaves_a_lock_that_is_not_its_own(once: Perform, redis_client: RedisClient) -> None:
    """Fails if the script no longer checks the owner."""
    item = bring_into(once, "active")
    redis_client.set(KEY, "somebody", ex=5)
    once(retry(item))
    assert (b"somebody", set_to(5)) == (redis_client.get(KEY), redis_client.ttl(KEY))


def test_h09_a_retry_of_a_task_of_go_keeps_the_lock_until_its_next_attempt(
    once: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """How long it was asked for is not known."""
    item = composed("a", unique=600)
    tasks.active("a", unique_key=LOCK)
    nearly_over(redis_client, LOCK)
    once(retry(item, RETRY_AT))
    assert set_to(90) == redis_client.ttl(LOCK)


@pytest.mark.parametrize("owner", ["a", "somebody"])
def test_h09_a_recovery_renews_the_lock_of_its_owner(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, owner: str
) -> None:
    """The task waits again, from now on."""
    tasks.active("plain", lease=EXPIRED)
    bring_into(perform, "active")
    redis_client.zadd(tasks.keys.lease, {"a": EXPIRED})
    redis_client.set(KEY, owner, ex=5)
    seen = [RecoverTask(task_id, TOKEN, EXPIRED) for task_id in ("plain", "a")]
    assert {"plain", "a"} == {task.id for task in perform(recover("default", seen, now=NOW))}
    assert (owner.encode(), set_to(600 if owner == "a" else 5)) == (
        redis_client.get(KEY),
        redis_client.ttl(KEY),
    )


# The end.


def _by_a_worker(perform: Perform, tasks: Tasks, until: str) -> None:
    bring_into(perform, "archived", until=until)


def _by_hand(perform: Perform, tasks: Tasks, until: str) -> None:
    bring_into(perform, "retry", until=until)
    perform(archive_tasks("default", ["a"], limits=ArchiveLimits(9_999, CUTOFF), now=NOW))


def _before_its_start(perform: Perform, tasks: Tasks, until: str) -> None:
    bring_into(perform, "pending", until=until)
    perform(archive_tasks("default", ["a"], limits=ArchiveLimits(9_999, CUTOFF), now=NOW))


def _as_poison(perform: Perform, tasks: Tasks, until: str) -> None:
    bring_into(perform, "active", until=until)
    tasks.client.zadd(tasks.keys.lease, {"a": EXPIRED})
    poison = PoisonTask("a", TOKEN, EXPIRED, b"", NOW.ceiling, b"")
    perform(archive_poison("default", [poison], max_size=9_999, cutoff=CUTOFF, now=NOW))


def _in_quarantine(perform: Perform, tasks: Tasks, until: str) -> None:
    bring_into(perform, "active", until=until)
    perform(quarantine("default", claim("a"), reason="x", max_size=9_999, cutoff=CUTOFF, now=NOW))


def _out_of_a_set(perform: Perform, tasks: Tasks, until: str) -> None:
    bring_into(perform, "aggregating", until=until)
    tasks.client.rename(tasks.keys.group("g"), STAGED.key)
    tasks.client.hset(tasks.keys.task("a"), "group", STAGED.group)
    tasks.client.srem(tasks.keys.groups, "g")
    tasks.client.zadd(tasks.keys.aggregation_sets, {STAGED.key: NOW.seconds + 60})
    plan = quarantine_member(STAGED, "a", reason="x", max_size=9_999, cutoff=CUTOFF, now=NOW)
    perform(plan)
    tasks.client.hset(tasks.keys.task("a"), "group", "g")


WAYS = [_by_a_worker, _by_hand, _before_its_start, _as_poison, _in_quarantine, _out_of_a_set]


@pytest.mark.parametrize(
    ("until", "stays"), [("success", True), ("finish", False), ("start", False), ("expiry", True)]
)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_h09_a_task_that_is_archived_keeps_its_lock_only_by_the_rule_of_asynq(
    once: Perform,
    redis_client: RedisClient,
    tasks: Tasks,
    way: Callable[[Perform, Tasks, str], None],
    until: str,
    stays: bool,
) -> None:
    """However it got there; until its expiry it is kept anyway."""
    way(once, tasks, until)
    assert ["a"] == tasks.ids("archived")
    assert stays == redis_client.exists(KEY)


def test_h09_an_archived_task_leaves_a_lock_that_is_not_its_own(
    once: Perform, redis_client: RedisClient
) -> None:
    """Fails if the script no longer checks the owner."""
    item = bring_into(once, "active", until="finish")
    redis_client.set(KEY, "somebody", ex=5)
    once(archive(item))
    assert b"somebody" == redis_client.get(KEY)


@pytest.mark.parametrize("finish", [done, complete])
def test_h09_only_time_ends_a_lock_until_its_expiry(
    once: Perform, redis_client: RedisClient, finish: Callable[[Any], Plan[Any]]
) -> None:
    """Message and hash do not name it, so no other call can."""
    item = bring_into(once, "active", until="expiry", retention=60)
    redis_client.expire(KEY, 7)
    once(finish(item))
    assert (b"a", set_to(7)) == (redis_client.get(KEY), redis_client.ttl(KEY))


def test_h09_w12_a_removed_queue_leaves_no_lock_of_any_kind(once: Perform, redis_client: RedisClient) -> None:
    """Neither of a type and a payload, nor of a name."""
    bring_into(once, "pending", until="expiry")
    enqueue(once, composed("b", unique=60))
    once(remove_queue("default", force=True, progress=None))
    assert [] == redis_client.keys("*")


def test_w35_a_lock_with_a_name_of_its_own_does_not_follow_the_payload(
    once: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """It has nothing to do with it."""
    bring_into(once, "scheduled")
    once(update_payload("default", "a", b"new", relock=True))
    assert (b"a", KEY) == (redis_client.get(KEY), tasks.fields("a")["unique_key"].decode())
    message = decode_task_message(tasks.fields("a")["msg"])
    assert (b"new", KEY) == (message.payload, message.unique_key)
