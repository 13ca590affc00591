from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.aggregation_sets import Finish, finish_set, read_set, release_locks
from pyasynq._broker.enqueueing.compose import compose
from pyasynq._wire.keys import ALL_QUEUES, queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.task import Task, TaskState
from tests.contract.aggregating import STAGED, finish
from tests.factories import NOW, PENDING_SINCE, Tasks, registered
from tests.fix_broker import BlockingPerformer, Perform
from tests.waiting import set_to

if TYPE_CHECKING:
    from tests.invariants import RedisClient

NEW = STAGED.id
LOCK = queue_keys("default").unique("digest", b"all")
MEMBER_LOCK = queue_keys("default").unique("email:deliver", b"{}")


@pytest.fixture(autouse=True)
def staged(redis_client: RedisClient, tasks: Tasks) -> None:
    """Three members are in the set, one is still in the group."""
    tasks.in_set(STAGED.group, STAGED.id, "a", "b", "c")
    tasks.put(TaskState.AGGREGATING, "rest", group=STAGED.group)


def message(**options: Any) -> bytes:
    """Return the bytes of the aggregate."""
    task = Task("digest", b"all", **options)
    return compose(task, {"queue": "default"}, now=NOW, new_id=lambda: NEW).encoded


def is_gone(tasks: Tasks) -> bool:
    """Return whether the set and its members are gone; what is not in the set must be untouched."""
    assert {"rest"} == tasks.members(STAGED.group).keys() - {NEW}
    left = [tasks.fields(task_id) for task_id in "abc"]
    parts = (*left, tasks.sets(), tasks.members(f"{STAGED.group}:{STAGED.id}"))
    assert all(parts) or not any(parts), "all of it or nothing"
    return not any(parts)


def test_the_aggregate_becomes_pending_and_the_set_is_deleted(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer makes one of its writes.

    It joins the end of the queue, with the id of the set.
    """
    tasks.pending("waiting")
    assert Finish.DONE is perform(finish(STAGED))
    assert {"msg": message(), "state": b"pending", "pending_since": PENDING_SINCE} == tasks.fields(NEW)
    assert ["waiting", NEW] == tasks.ids("pending")
    assert is_gone(tasks)
    assert {STAGED.group} == tasks.groups()


def test_the_aggregate_may_be_scheduled(perform: Perform, tasks: Tasks) -> None:
    """At its process time, rounded up."""
    assert Finish.DONE is perform(finish(STAGED, process_in=60))
    assert {"msg": message(process_in=60), "state": b"scheduled"} == tasks.fields(NEW)
    assert {NEW: NOW.ceiling + 60} == tasks.scores("scheduled")
    assert is_gone(tasks)


def test_the_aggregate_may_join_a_group(perform: Perform, tasks: Tasks) -> None:
    """It may even join the group that it was made of."""
    assert Finish.DONE is perform(finish(STAGED, group="days"))
    assert {"msg": message(group="days"), "state": b"aggregating", "group": b"days"} == tasks.fields(NEW)
    assert {NEW: NOW.ceiling} == tasks.members("days")
    assert {STAGED.group, "days"} == tasks.groups()
    assert is_gone(tasks)
    tasks.in_set("days", "other", "d")
    tasks.client.flushall()
    tasks.in_set(STAGED.group, STAGED.id, "a")
    assert Finish.DONE is perform(finish(STAGED, group=STAGED.group))
    assert {NEW} == tasks.members(STAGED.group).keys()


def test_w05_the_aggregate_may_join_a_group_later(perform: Perform, tasks: Tasks) -> None:
    """Scheduled, with the group in our own field."""
    assert Finish.DONE is perform(finish(STAGED, group="days", process_in=60))
    assert {
        "msg": message(group="days", process_in=60),
        "state": b"scheduled",
        "x:group": b"days",
    } == tasks.fields(NEW)
    assert {STAGED.group} == tasks.groups()


def test_w09_the_aggregate_may_be_unique(perform: Perform, redis_client: RedisClient, tasks: Tasks) -> None:
    """Fails if the script no longer calls SET or HSET."""
    assert Finish.DONE is perform(finish(STAGED, unique=600))
    assert (NEW.encode(), set_to(600)) == (redis_client.get(LOCK), redis_client.ttl(LOCK))
    assert LOCK.encode() == tasks.fields(NEW)["unique_key"]
    assert is_gone(tasks)


def test_h09_w09_locks_of_the_members_are_released_if_they_own_them(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """A lock that has gone to somebody else stays."""
    redis_client.set(MEMBER_LOCK, "a", ex=600)
    redis_client.set(LOCK, "somebody", ex=600)
    assert Finish.DONE is perform(
        finish(STAGED, locks=[("a", MEMBER_LOCK), ("b", LOCK), ("c", f"{LOCK}:gone")])
    )
    assert not redis_client.exists(MEMBER_LOCK)
    assert b"somebody" == redis_client.get(LOCK)


def test_a_lock_that_another_task_holds_leaves_the_set_as_it_is(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """An equal aggregate has not been run yet; nothing is lost, nothing is written."""
    redis_client.set(LOCK, "before", ex=600)
    assert Finish.DUPLICATE is perform(finish(STAGED, unique=60))
    assert {} == tasks.fields(NEW)
    assert (b"before", set_to(600)) == (redis_client.get(LOCK), redis_client.ttl(LOCK))
    assert not is_gone(tasks)


def test_the_lock_of_a_member_goes_to_the_aggregate(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """The task has the same type and payload; also when it is unknown that the member owns it."""
    redis_client.set(LOCK, "b", ex=600)
    assert Finish.DONE is perform(finish(STAGED, unique=60))
    assert (NEW.encode(), set_to(60)) == (redis_client.get(LOCK), redis_client.ttl(LOCK))


def test_h11_w31_a_set_that_is_gone_enqueues_nothing(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Fails if the script no longer calls ZSCORE.

    Its members are back in their group, or in a set of another server.
    """
    redis_client.zrem(tasks.keys.aggregation_sets, STAGED.key)
    before = {key: redis_client.dump(key) for key in redis_client.keys("*")}
    assert Finish.LOST is perform(finish(STAGED, unique=60))
    assert before == {key: redis_client.dump(key) for key in redis_client.keys("*")}
    redis_client.zadd(tasks.keys.aggregation_sets, {STAGED.key: 1})


def test_h11_an_aggregate_that_exists_was_made_before_and_only_the_set_is_deleted(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Only this set has made a task of this id. The lock stays with its owner."""
    tasks.pending(NEW)
    before = tasks.fields(NEW)
    redis_client.set(LOCK, "x", ex=600)
    assert Finish.DONE_BEFORE is perform(finish(STAGED, unique=60))
    assert before == tasks.fields(NEW)
    assert ([NEW], b"x") == (tasks.ids("pending"), redis_client.get(LOCK))
    assert is_gone(tasks)


def test_h11_an_id_that_the_user_chose_may_be_another_tasks(perform: Perform, tasks: Tasks) -> None:
    """Then the members have not been aggregated: they stay."""
    tasks.pending("daily")
    before = tasks.fields("daily")
    assert Finish.CONFLICT is perform(finish(STAGED, task_id="daily"))
    assert before == tasks.fields("daily")
    assert not is_gone(tasks)
    tasks.client.delete(tasks.keys.pending, tasks.keys.task("daily"))
    assert Finish.DONE is perform(finish(STAGED, task_id="daily"))
    assert ["daily"] == tasks.ids("pending")


def test_the_aggregate_may_have_the_id_of_a_member(perform: Perform, tasks: Tasks) -> None:
    """Which is deleted in the same call."""
    assert Finish.DONE is perform(finish(STAGED, task_id="a"))
    assert (b"pending", ["a"]) == (tasks.fields("a")["state"], tasks.ids("pending"))
    assert {} == tasks.fields("b")


def test_a_finish_that_is_sent_again_has_been_done(redis_client: RedisClient, tasks: Tasks) -> None:
    """The enqueued task has our bytes; otherwise the set belongs to another server now."""
    replay = BlockingPerformer(redis_client, replay=True)
    assert Finish.DONE is replay(finish(STAGED))
    assert [NEW] == tasks.ids("pending")
    assert Finish.LOST is replay(finish(STAGED, payload=b"other"))
    assert Finish.LOST is BlockingPerformer(redis_client)(finish(STAGED)), "only on a replay"


def test_i18_the_queue_is_registered_again_if_it_was_removed(perform: Perform, tasks: Tasks) -> None:
    """Go's removal of a queue leaves groups behind."""
    tasks.client.delete(ALL_QUEUES)
    perform(registered(finish(STAGED), STAGED.queue))
    assert {b"default"} == tasks.client.smembers(ALL_QUEUES)


def test_h15_without_a_time_redis_tells_when_the_aggregate_came(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME: NOW lies in its future."""
    aggregate = compose(Task("digest"), {}, now=NOW, new_id=lambda: NEW)
    perform(registered(finish_set(STAGED, aggregate, locks=()), STAGED.queue))
    since = int(tasks.fields(NEW)["pending_since"])
    assert 1_700_000_000 * 10**9 < since < NOW.seconds * 10**9


def test_h11_a_large_set_is_deleted_whole(perform: Perform, tasks: Tasks) -> None:
    """More ids and locks than Lua can unpack."""
    ids = [f"{number:04}" for number in range(9_000)]
    tasks.client.flushall()
    tasks.in_set(STAGED.group, STAGED.id, *ids)
    locks = [(task_id, f"asynq:{{default}}:unique:{task_id}") for task_id in ids]
    assert ids == [member.id for member in perform(read_set(STAGED)) or ()]
    assert Finish.DONE is perform(finish(STAGED, locks=locks))
    assert {tasks.keys.task(NEW).encode(), tasks.keys.pending.encode(), ALL_QUEUES.encode()} == set(
        tasks.client.keys("*")
    )


@pytest.mark.parametrize("rule", ["ignore", "return_existing"])
def test_the_holder_of_the_lock_may_stand_for_the_aggregate(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, rule: str
) -> None:
    """The set ends and nothing new begins."""
    tasks.put(TaskState.SCHEDULED, "before", unique_key=LOCK)
    assert Finish.EXISTING_KEPT is perform(finish(STAGED, unique=60, on_duplicate=rule))
    assert {} == tasks.fields(NEW)
    assert b"before" == redis_client.get(LOCK)
    assert is_gone(tasks)


def test_a_task_that_is_gone_stands_for_nothing(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """The tasks in the set would not run; an aggregator that drops them says `ignore`."""
    redis_client.set(LOCK, "gone", ex=600)
    assert Finish.DUPLICATE is perform(finish(STAGED, unique=60, on_duplicate="return_existing"))
    assert not is_gone(tasks)
    assert Finish.EXISTING_KEPT is perform(finish(STAGED, unique=60, on_duplicate="ignore"))
    assert is_gone(tasks)


def test_the_holder_of_the_lock_may_take_the_payload_of_the_aggregate(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """If it waits and is of the same type; otherwise the set stays as it is."""
    lock = queue_keys("default").own_unique("k")
    options: dict[str, Any] = {"unique": 60, "unique_key": "k", "on_duplicate": "replace_payload"}
    redis_client.set(lock, "gone", ex=600)
    assert Finish.DUPLICATE is perform(finish(STAGED, **options))
    assert not is_gone(tasks)
    tasks.put(TaskState.SCHEDULED, "other", unique_key=lock)
    assert Finish.DUPLICATE is perform(finish(STAGED, **options))
    tasks.client.delete(tasks.keys.scheduled, tasks.keys.task("other"))
    tasks.put(TaskState.SCHEDULED, "holder", unique_key=lock, score=NOW.seconds + 9, type="digest")
    assert Finish.EXISTING_KEPT is perform(finish(STAGED, **options))
    assert b"all" == decode_task_message(tasks.fields("holder")["msg"]).payload
    assert {"holder": NOW.seconds + 9} == tasks.scores("scheduled")
    assert {} == tasks.fields(NEW)
    assert is_gone(tasks)


def test_h10_the_aggregate_may_replace_a_finished_task(perform: Perform, tasks: Tasks) -> None:
    """With an id of its own; an unfinished one keeps the set where it is."""
    options: dict[str, Any] = {"task_id": "daily", "on_conflict": "replace_finished"}
    tasks.put(TaskState.RETRY, "daily")
    assert Finish.CONFLICT is perform(finish(STAGED, **options))
    assert not is_gone(tasks)
    tasks.client.delete(tasks.keys.retry, tasks.keys.task("daily"))
    tasks.put(TaskState.ARCHIVED, "daily")
    assert Finish.DONE is perform(finish(STAGED, **options))
    assert (["daily"], []) == (tasks.ids("pending"), tasks.ids("archived"))
    assert is_gone(tasks)


def test_h09_the_aggregate_tells_for_how_long_it_asked(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer applies the rule; one until its expiry is not named."""
    assert Finish.DONE is perform(finish(STAGED, unique=600, until="finish"))
    assert b"600 finish" == tasks.fields(NEW)["x:unique_ttl"]


def test_the_lock_of_an_aggregate_may_last_until_its_expiry(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Only Redis knows of it."""
    assert Finish.DONE is perform(finish(STAGED, unique=600, until="expiry"))
    assert {"msg", "state", "pending_since"} == tasks.fields(NEW).keys()
    assert (NEW.encode(), set_to(600)) == (redis_client.get(LOCK), redis_client.ttl(LOCK))


MANY = [(f"gone-{number}", "") for number in range(2_000)]
"""More than one call takes; they own no lock."""


def test_locks_that_one_call_cannot_take_are_released_after_the_set(
    perform: Perform, redis_client: RedisClient
) -> None:
    """Fails if the script no longer calls DEL.

    The last members of the list are in a call of their own. (D47)
    """
    redis_client.set(MEMBER_LOCK, "a", ex=600)
    assert Finish.DONE is perform(finish(STAGED, locks=[*MANY, ("a", MEMBER_LOCK)]))
    assert not redis_client.exists(MEMBER_LOCK)


def test_locks_stay_that_have_gone_to_somebody_else(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """To another task, or to one that has come back under its id. (D47)"""
    tasks.pending("back")
    redis_client.set(LOCK, "somebody", ex=600)
    redis_client.set(MEMBER_LOCK, "back", ex=600)
    assert Finish.DONE is perform(finish(STAGED, locks=[*MANY, ("a", LOCK), ("back", MEMBER_LOCK)]))
    assert (b"somebody", b"back") == (redis_client.get(LOCK), redis_client.get(MEMBER_LOCK))


def test_no_lock_is_released_while_the_set_is_there(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Nothing else has happened then, either. (D47)"""
    redis_client.set(MEMBER_LOCK, "a", ex=600)
    tasks.pending("taken")
    assert Finish.CONFLICT is perform(finish(STAGED, task_id="taken", locks=[*MANY, ("a", MEMBER_LOCK)]))
    redis_client.set(LOCK, "gone", ex=600)
    perform(release_locks(STAGED, [("gone", LOCK)]))
    assert b"gone" == redis_client.get(LOCK)
    assert b"a" == redis_client.get(MEMBER_LOCK)
