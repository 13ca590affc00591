"""Enqueueing by rules: existing tasks that block a task, and the reports about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.errors import DuplicateTaskError, TaskIDConflictError
from pyasynq.task import TaskState
from tests.contract.enqueueing import composed, enqueue, statuses
from tests.contract.test_unique_replace import Replaying
from tests.contract.uniqueness import KEY, RETRY_AT, bring_into, unique
from tests.factories import LEASE_SCORE, NOW, PENDING_SINCE, Tasks
from tests.fix_broker import BlockingPerformer, Perform
from tests.waiting import set_to

if TYPE_CHECKING:
    from tests.invariants import RedisClient

RULES = ["ignore", "return_existing", "replace_payload"]


@pytest.fixture
def once(redis_client: RedisClient) -> Perform:
    """The simplest driver."""
    return BlockingPerformer(redis_client)


@pytest.mark.parametrize(
    "options", [{}, {"process_in": 60}, {"group": "g"}, {"group": "g", "process_in": 60}]
)
@pytest.mark.parametrize("until", ["success", "start", "expiry"])
def test_with_rules_a_task_is_written_as_without(
    redis_client: RedisClient, once: Perform, tasks: Tasks, options: dict[str, Any], until: str
) -> None:
    """All keys and fields in Redis are the same as without `on_duplicate`."""
    enqueue(once, unique("a", until=until, **options))
    expected = tasks.fields("a"), others(redis_client)
    redis_client.flushall()
    enqueue(once, unique("a", until=until, on_duplicate="ignore", **options))
    assert expected == (tasks.fields("a"), others(redis_client))


def others(client: RedisClient) -> dict[bytes, Any]:
    """Return value and time of every key but that of the task."""
    return {key: (client.dump(key), client.ttl(key)) for key in client.keys("*") if not key.endswith(b":t:a")}


def test_each_of_many_gets_its_own_answer(perform: Perform, tasks: Tasks) -> None:
    """In their order; what is refused hinders no other."""
    bring_into(perform, "pending")
    tasks.pending("x")
    results = enqueue(
        perform,
        unique("b", unique_key="b", on_duplicate="ignore"),
        unique("c", on_duplicate="ignore"),
        unique("x", unique_key="x", on_duplicate="ignore"),
        unique("d", on_duplicate="return_existing"),
        unique("e", b"new", on_duplicate="replace_payload"),
        unique("f", unique_key="f", on_duplicate="replace_payload"),
    )
    assert ["enqueued", "ignored", "conflict", "existing", "replaced", "enqueued"] == statuses(results)
    assert ["b", "c", "x", "a", "a", "f"] == [result.task_id for result in results]
    assert [True, False, False, False, True, True] == list(map(bool, results))
    assert ["a", "x", "b", "f"] == tasks.ids("pending")


@pytest.mark.parametrize(
    ("state", "field", "second"),
    [
        ("scheduled", "next_process_at", NOW.ceiling + 60),
        ("retry", "next_process_at", RETRY_AT),
        ("active", "lease_expires_at", LEASE_SCORE),
        ("archived", "in_state_since", NOW.ceiling),
        ("pending", "in_state_since", NOW.seconds + 0.25),
    ],
)
def test_the_holder_is_described_as_the_inspector_does(
    perform: Perform, state: str, field: str, second: float
) -> None:
    """The description has the state, the payload and the times of the holder."""
    bring_into(perform, state)
    [result] = enqueue(perform, unique("b", b"new", on_duplicate="return_existing"))
    holder = result.holder
    assert holder is not None
    assert (state, b"{}", "a", "existing") == (
        holder.state.value,
        holder.payload,
        holder.id,
        holder.enqueue_status,
    )
    assert second == getattr(holder, field).timestamp()


@pytest.mark.parametrize("damage", [{"msg": b"\xff"}, {"state": b"on the moon"}])
def test_a_holder_that_cannot_be_read_cannot_be_returned(
    damage_allowed: None, once: Perform, tasks: Tasks, damage: dict[str, bytes]
) -> None:
    """An error tells, and names it."""
    bring_into(once, "pending")
    tasks.client.hset(tasks.keys.task("a"), mapping=damage)
    [result] = enqueue(once, unique("b", on_duplicate="return_existing"))
    assert isinstance(result.error, DuplicateTaskError)
    assert "task 'a' in queue 'default' holds its lock; it cannot be returned, since it is damaged" in str(
        result.error
    )


@pytest.mark.parametrize("rule", RULES)
def test_a_holder_with_the_same_id_is_a_duplicate_and_no_conflict(once: Perform, rule: str) -> None:
    """The rule about locks is asked first, since it was given."""
    bring_into(once, "pending", "a")
    expected = {"ignore": "ignored", "return_existing": "existing", "replace_payload": "replaced"}
    assert [expected[rule]] == statuses(enqueue(once, unique("a", b"new", on_duplicate=rule)))
    assert ["conflict"] == statuses(enqueue(once, unique("a", b"new", on_conflict="replace_finished")))


@pytest.mark.parametrize("rule", RULES)
def test_an_id_of_another_task_is_a_conflict(once: Perform, tasks: Tasks, rule: str) -> None:
    """Whether the lock is free or held by a third one."""
    tasks.pending("b")
    assert ["conflict"] == statuses(enqueue(once, unique("b", on_duplicate=rule)))
    bring_into(once, "pending", "a")
    assert ["conflict"] == statuses(enqueue(once, unique("b", on_duplicate=rule)))
    assert tasks.client.get(KEY) == b"a"


@pytest.mark.parametrize("rule", RULES)
def test_w25_what_was_enqueued_is_enqueued_when_it_is_sent_again(
    redis_client: RedisClient, once: Perform, tasks: Tasks, rule: str
) -> None:
    """Waiting, or long gone with its lock left; another task's lock still blocks."""
    again = Replaying(redis_client)
    tasks.pending("z")
    item = unique("a", on_duplicate=rule)
    enqueue(once, item)
    other = unique("z", on_duplicate=rule)
    assert ["enqueued", "conflict"] == statuses(enqueue(again, item, other))
    assert ["z", "a"] == tasks.ids("pending")
    tasks.client.lrem(tasks.keys.pending, 1, "a")
    tasks.client.delete(tasks.keys.task("a"))
    assert ["enqueued"] == statuses(enqueue(again, item))
    assert ["z"] == tasks.ids("pending")
    assert "enqueued" not in statuses(enqueue(once, item))


# An id that is free again.


@pytest.mark.parametrize("state", [TaskState.ARCHIVED, TaskState.COMPLETED])
@pytest.mark.parametrize(
    ("options", "place"), [({}, "pending"), ({"process_in": 60}, "scheduled"), ({"unique": 60}, "pending")]
)
def test_h10_a_finished_task_makes_room_for_one_with_its_id(
    perform: Perform, tasks: Tasks, state: TaskState, options: dict[str, Any], place: str
) -> None:
    """Nothing of it is left: a new task in its place, with the fields of a new one."""
    tasks.put(state, "a", extra={"result": b"old", "x:trace": b"old"}, completed_at=1, retention=9)
    item = composed("a", b"new", on_conflict="replace_finished", **options)
    assert ["enqueued"] == statuses(enqueue(perform, item))
    assert ["a"] == tasks.ids(place)
    assert [] == tasks.ids(state.value)
    fields = tasks.fields("a")
    assert (item.encoded, place.encode()) == (fields["msg"], fields["state"])
    assert not {"result", "x:trace"} & fields.keys()
    if place == "pending":
        assert PENDING_SINCE == fields["pending_since"]


@pytest.mark.parametrize("state", sorted(set(TaskState) - {TaskState.ARCHIVED, TaskState.COMPLETED}))
@pytest.mark.parametrize("replay", [False, True])
def test_h10_an_unfinished_task_does_not(
    redis_client: RedisClient, tasks: Tasks, state: TaskState, replay: bool
) -> None:
    """It is a conflict, and nothing is written."""
    if state is TaskState.ACTIVE:
        tasks.active("a")
    else:
        tasks.put(state, "a", group="g" if state is TaskState.AGGREGATING else "")
    before = {key: redis_client.dump(key) for key in redis_client.keys("*")}
    perform = Replaying(redis_client) if replay else BlockingPerformer(redis_client)
    [result] = enqueue(perform, composed("a", b"new", on_conflict="replace_finished"))
    assert isinstance(result.error, TaskIDConflictError)
    assert before == {key: redis_client.dump(key) for key in redis_client.keys("*")}


@pytest.mark.parametrize("options", [{"unique": 60, "unique_key": "k"}, {}])
def test_h10_the_lock_of_the_finished_task_goes_with_it(
    once: Perform, redis_client: RedisClient, options: dict[str, Any]
) -> None:
    """Whether the new task takes the same one, another one or none."""
    bring_into(once, "archived")
    item = composed("a", b"new", on_conflict="replace_finished", **options)
    assert ["enqueued"] == statuses(enqueue(once, item))
    assert set_to(60 if options else -2) == redis_client.ttl(KEY)


@pytest.mark.parametrize("state", ["archived", "completed"])
def test_h10_a_lock_until_its_expiry_does_not_go_with_the_finished_task(
    once: Perform, redis_client: RedisClient, tasks: Tasks, state: str
) -> None:
    """Only time ends it, so it refuses a task of the same id as it refuses one of another."""
    bring_into(once, state, until="expiry")
    before = tasks.fields("a")
    item = unique("a", b"new", until="expiry", on_conflict="replace_finished")
    assert ["duplicate"] == statuses(enqueue(once, item))
    assert before == tasks.fields("a")
    redis_client.delete(KEY)
    assert ["enqueued"] == statuses(enqueue(once, item))


def test_h10_a_lock_that_another_task_holds_leaves_the_finished_one(once: Perform, tasks: Tasks) -> None:
    """Nothing is lost for a task that cannot be enqueued."""
    tasks.put(TaskState.ARCHIVED, "b")
    before = tasks.fields("b")
    bring_into(once, "pending", "a")
    [result] = enqueue(once, unique("b", on_conflict="replace_finished"))
    assert isinstance(result.error, DuplicateTaskError)
    assert ("a", "") == (result.error.holder, result.error.reason)
    assert before == tasks.fields("b")
    assert ["b"] == tasks.ids("archived")


def test_h10_a_lock_that_has_gone_to_another_task_stays_with_it(
    once: Perform, redis_client: RedisClient
) -> None:
    """Fails if the script no longer checks the owner."""
    bring_into(once, "archived", "a")
    redis_client.set(KEY, "somebody", ex=60)
    assert ["enqueued"] == statuses(enqueue(once, composed("a", b"new", on_conflict="replace_finished")))
    assert b"somebody" == redis_client.get(KEY)


def test_w25_h10_a_replacement_of_a_finished_task_is_done_once(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """The second call finds the new task, and not the old one."""
    tasks.put(TaskState.ARCHIVED, "a")
    perform = BlockingPerformer(redis_client, replay=True)
    assert ["enqueued"] == statuses(enqueue(perform, composed("a", b"new", on_conflict="replace_finished")))
    assert (["a"], []) == (tasks.ids("pending"), tasks.ids("archived"))


def test_h10_a_call_that_never_arrived_replaces_when_it_is_sent_again(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """Although the finished task has the very same message."""
    item = composed("a", on_conflict="replace_finished")
    enqueue(BlockingPerformer(redis_client), item)
    tasks.client.lrem(tasks.keys.pending, 1, "a")
    tasks.client.hset(tasks.keys.task("a"), "state", "archived")
    tasks.client.zadd(tasks.keys.archived, {"a": 1})
    assert ["enqueued"] == statuses(enqueue(Replaying(redis_client), item))
    assert (["a"], []) == (tasks.ids("pending"), tasks.ids("archived"))
