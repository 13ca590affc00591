"""Running, archiving and deleting tasks by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.inspecting.actions import (
    ArchiveLimits,
    Moved,
    act_on_one,
    archive_tasks,
    delete_tasks,
    run_tasks,
)
from pyasynq.errors import TaskNotFoundError, TaskStateError
from pyasynq.task import TaskState
from tests.factories import NOW, PENDING_SINCE, Tasks
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

LIMITS = ArchiveLimits(9_999, NOW.seconds - 3_600)
LATER = NOW.plus(5)
WAITING = (TaskState.SCHEDULED, TaskState.RETRY, TaskState.AGGREGATING)
LOCK = "asynq:{default}:unique:email:deliver:x"


def run(*ids: str, from_state: str = "") -> Plan[Moved]:
    """Run tasks, five seconds later."""
    return run_tasks("default", ids, from_state, now=LATER)


def archive(*ids: str, from_state: str = "", limits: ArchiveLimits = LIMITS) -> Plan[Moved]:
    """Archive tasks, five seconds later."""
    return archive_tasks("default", ids, from_state, limits=limits, now=LATER)


def delete(*ids: str, from_state: str = "", with_sets: bool = False) -> Plan[Moved]:
    """Delete tasks."""
    return delete_tasks("default", ids, from_state, with_sets=with_sets)


def put(tasks: Tasks, state: TaskState, *ids: str, **fields: Any) -> None:
    """Put tasks into any state."""
    if state is TaskState.ACTIVE:
        tasks.active(*ids, **fields)
    elif state is TaskState.COMPLETED:
        tasks.put(state, *ids, completed_at=NOW.seconds - 60, retention=60, **fields)
    elif state is TaskState.AGGREGATING:
        tasks.put(state, *ids, group="g", **fields)
    else:
        tasks.put(state, *ids, **fields)


def aggregate(tasks: Tasks, *ids: str) -> str:
    """Put tasks into an aggregation set; return its key."""
    key = tasks.keys.aggregation_set("g", "s")
    tasks.put(TaskState.AGGREGATING, *ids, group="g")
    tasks.client.rename(tasks.keys.group("g"), key)
    tasks.client.srem(tasks.keys.groups, "g")
    tasks.client.zadd(tasks.keys.aggregation_sets, {key: NOW.seconds + 120})
    return key


@pytest.mark.parametrize("state", [*WAITING, TaskState.ARCHIVED, TaskState.COMPLETED])
def test_a_task_that_is_run_is_pending(perform: Perform, tasks: Tasks, state: TaskState) -> None:
    """At the end of the queue; it has left where it was, and a group that is empty now."""
    tasks.pending("first")
    put(tasks, state, "a")
    assert Moved(1, {}) == perform(run("a"))
    assert ["first", "a"] == tasks.ids("pending")
    assert [] == tasks.client.keys("*groups")


def test_a_group_that_still_has_tasks_stays(perform: Perform, tasks: Tasks) -> None:
    """Its name leads the aggregator to them."""
    tasks.put(TaskState.AGGREGATING, "a", "b", group="g")
    perform(run("a"))
    assert {b"g"} == tasks.client.smembers(tasks.keys.groups)


@pytest.mark.parametrize("state", [TaskState.SCHEDULED, TaskState.ARCHIVED])
def test_w13_h23_a_task_that_is_run_waits_from_then_on(
    perform: Perform, tasks: Tasks, state: TaskState
) -> None:
    """Asynq leaves the field out, or leaves a stale one in."""
    put(tasks, state, "a")
    perform(run("a"))
    assert b"2000000005250000000" == tasks.fields("a")["pending_since"]


def test_w13_an_archived_task_does_not_wait(perform: Perform, tasks: Tasks) -> None:
    """Asynq leaves the time, and the latency of a later run by hand is overstated."""
    tasks.pending("a")
    perform(archive("a"))
    assert "pending_since" not in tasks.fields("a")


@pytest.mark.parametrize("act", [run, archive])
def test_w04_the_group_is_known_wherever_a_task_goes(perform: Perform, tasks: Tasks, act: Any) -> None:
    """After a failure it joins its group, as in Asynq, whose forwarder then forgets to name the group."""
    tasks.put(TaskState.AGGREGATING, "a", group="g")
    tasks.put(TaskState.SCHEDULED, "b", group_key="g", extra={"x:group": "g"})
    tasks.put(TaskState.SCHEDULED, "c")
    perform(act("a", "b", "c"))
    assert {"group"} == tasks.fields("a").keys() - tasks.fields("c").keys()
    assert b"g" == tasks.fields("a")["group"] == tasks.fields("b")["group"]
    assert tasks.fields("a").keys() == tasks.fields("b").keys()


@pytest.mark.parametrize("act", [run, archive])
def test_what_a_recoverer_of_go_leaves_is_cleared(perform: Perform, tasks: Tasks, act: Any) -> None:
    """The token of an attempt of ours, its crashes and lapses."""
    tasks.put(TaskState.RETRY, "a", extra={"x:attempt": "server/1", "x:crashes": 1, "x:lapses": 1})
    perform(act("a"))
    assert not {"x:attempt", "x:crashes", "x:lapses"} & tasks.fields("a").keys()


@pytest.mark.parametrize("state", [TaskState.PENDING, *WAITING, TaskState.COMPLETED])
def test_a_task_that_is_archived_is_kept(perform: Perform, tasks: Tasks, state: TaskState) -> None:
    """Scored with the second, not counted; its message is untouched."""
    put(tasks, state, "a", extra={"x:crashes": 2} if state is TaskState.PENDING else {})
    before = tasks.fields("a")["msg"]
    assert Moved(1, {}) == perform(archive("a"))
    assert {"a": LATER.seconds} == tasks.scores("archived")
    assert (b"archived", before) == (tasks.fields("a")["state"], tasks.fields("a")["msg"])
    assert "x:crashes" not in tasks.fields("a")
    assert {} == tasks.counts()


@pytest.mark.parametrize("state", [TaskState.PENDING, *WAITING, TaskState.ARCHIVED, TaskState.COMPLETED])
def test_a_task_that_is_deleted_is_gone(perform: Perform, tasks: Tasks, state: TaskState) -> None:
    """Its hash and its place are deleted; the tasks next to it stay."""
    put(tasks, state, "a", "b")
    assert Moved(1, {}) == perform(delete("a"))
    assert {} == tasks.fields("a")
    assert b"b" in b"".join(tasks.client.keys("*:t:*"))


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.RETRY, TaskState.AGGREGATING])
def test_h09_w09_a_deleted_task_releases_its_lock(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, state: TaskState
) -> None:
    """The hash names it; a lock that another task has taken meanwhile stays."""
    put(tasks, state, "a", "b", unique_key=LOCK)
    assert Moved(1, {}) == perform(delete("a"))
    assert b"b" == redis_client.get(LOCK)
    perform(delete("b"))
    assert redis_client.get(LOCK) is None


@pytest.mark.parametrize("named", ["", None])
def test_h09_a_grouped_task_of_go_releases_its_lock(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, named: str | None
) -> None:
    """Go names the lock of such a task in the message only."""
    tasks.put(TaskState.AGGREGATING, "a", "b", group="g", unique_key=LOCK)
    tasks.put(TaskState.AGGREGATING, "c", group="g")
    for task_id in "ab":
        redis_client.hdel(tasks.keys.task(task_id), "unique_key")
        if named is not None:
            redis_client.hset(tasks.keys.task(task_id), "unique_key", named)
    perform(delete("a", "c"))
    assert b"b" == redis_client.get(LOCK)
    perform(delete("b"))
    assert redis_client.get(LOCK) is None


def test_h09_a_lock_is_not_released_while_its_task_exists(redis_client: RedisClient, tasks: Tasks) -> None:
    """A task of the same id may have been enqueued between the two calls."""

    class Enqueues(BlockingPerformer):
        def _send(self, call: Any) -> Any:
            if call.script.name == "inspect/release_lock":
                tasks.pending("a", unique_key=LOCK)
            return super()._send(call)

    tasks.put(TaskState.AGGREGATING, "a", group="g", unique_key=LOCK)
    redis_client.hdel(tasks.keys.task("a"), "unique_key")
    Enqueues(redis_client)(delete("a"))
    assert b"a" == redis_client.get(LOCK)


@pytest.mark.usefixtures("damage_allowed")
def test_h09_a_grouped_task_that_cannot_be_decoded_is_deleted(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Its lock is unknown, and expires by itself."""
    tasks.put(TaskState.AGGREGATING, "a", group="g")
    redis_client.hset(tasks.keys.task("a"), "msg", b"\xff")
    assert Moved(1, {}) == perform(delete("a"))


@pytest.mark.parametrize(
    ("act", "action", "states"),
    [
        (run, "run", (TaskState.ACTIVE, TaskState.PENDING)),
        (archive, "archive", (TaskState.ACTIVE, TaskState.ARCHIVED)),
        (delete, "delete", (TaskState.ACTIVE,)),
    ],
)
def test_what_a_state_does_not_allow_is_an_error(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, act: Any, action: str, states: Any
) -> None:
    """It names the state, and nothing is changed."""
    for state in states:
        task_id = f"the-{state}"
        put(tasks, state, task_id)
        before = {key: redis_client.dump(key) for key in redis_client.keys("*")}
        with pytest.raises(
            TaskStateError, match=f"cannot {action} task '{task_id}'.*: it is {state}"
        ) as caught:
            perform(act_on_one(action, "default", task_id, lambda ids, from_state: act(*ids)))
        assert (state.value, action) == (caught.value.state, caught.value.action)
        assert before == {key: redis_client.dump(key) for key in redis_client.keys("*")}


@pytest.mark.parametrize("act", [run, archive, delete])
def test_a_task_that_is_not_there_is_an_error(perform: Perform, act: Any) -> None:
    """The error is the one that Asynq returns."""
    with pytest.raises(TaskNotFoundError):
        perform(act_on_one("run", "default", "a", lambda ids, from_state: act(*ids)))


@pytest.mark.parametrize("remains", [{"result": "r"}, {"msg": "m"}])
@pytest.mark.usefixtures("damage_allowed")
def test_the_rest_of_a_hash_is_not_a_task(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, remains: dict[str, str]
) -> None:
    """Message and state make one."""
    redis_client.hset(tasks.keys.task("a"), mapping=remains)
    assert {"a": "missing"} == perform(run("a")).refused


@pytest.mark.usefixtures("damage_allowed")
def test_an_unknown_state_is_left_alone(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """A newer peer may have written it; the names of other keys are not states either."""
    redis_client.hset(tasks.keys.task("a"), mapping={"msg": "m", "state": "frozen"})
    assert {"a": "frozen"} == perform(run("a")).refused


@pytest.mark.parametrize("act", [run, archive, delete])
def test_w32_a_task_on_its_way_into_an_aggregate_is_left_alone(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, act: Any
) -> None:
    """Asynq fails with an internal error; if the task were taken out it would be done twice."""
    key = aggregate(tasks, "a", "b")
    with pytest.raises(TaskStateError, match="on its way into an aggregate"):
        perform(act_on_one("run", "default", "a", lambda ids, from_state: act(*ids)))
    assert 2 == redis_client.zcard(key)


def test_members_of_aggregation_sets_are_deleted_when_that_is_asked_for(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """A set that is empty then is forgotten."""
    key = aggregate(tasks, "a", "b")
    assert Moved(1, {}) == perform(delete("a", with_sets=True))
    assert [b"b"] == redis_client.zrange(key, 0, -1)
    assert 1 == redis_client.zcard(tasks.keys.aggregation_sets)
    perform(delete("b", with_sets=True))
    assert [b"asynq:queues"] == redis_client.keys("*")


@pytest.mark.parametrize("act", [run, delete])
@pytest.mark.usefixtures("damage_allowed")
def test_a_task_that_is_in_no_collection_can_be_mended(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, act: Any
) -> None:
    """Asynq answers with an internal error, for ever."""
    tasks.put(TaskState.AGGREGATING, "a", group="g")
    tasks.put(TaskState.SCHEDULED, "b")
    redis_client.delete(tasks.keys.group("g"), tasks.keys.scheduled, tasks.keys.groups)
    assert Moved(2, {}) == perform(act("a", "b"))


@pytest.mark.parametrize("act", [run, archive, delete])
def test_only_tasks_of_the_state_that_is_asked_for_are_touched(
    perform: Perform, tasks: Tasks, act: Any
) -> None:
    """Somebody else may have moved one of many."""
    tasks.put(TaskState.SCHEDULED, "a")
    tasks.put(TaskState.RETRY, "b")
    assert Moved(1, {"b": "retry"}) == perform(act("a", "b", from_state="scheduled"))
    assert ["b"] == tasks.ids("retry")


@pytest.mark.parametrize("act", [run, archive, delete])
def test_a_call_that_is_sent_again_tells_what_the_first_one_did(
    redis_client: RedisClient, tasks: Tasks, act: Any
) -> None:
    """Tasks already in the requested state count as done; blocked ones are still refused."""
    tasks.put(TaskState.SCHEDULED, "a")
    tasks.active("b")
    assert Moved(1, {"b": "active"}) == BlockingPerformer(redis_client, replay=True)(act("a", "b"))


def test_what_was_so_before_is_not_done(perform: Perform, tasks: Tasks) -> None:
    """Only after a lost reply is the state taken for the call's own work."""
    tasks.pending("p")
    tasks.put(TaskState.ARCHIVED, "x")
    assert Moved(0, {"p": "pending"}) == perform(run("p"))
    assert Moved(0, {"x": "archived"}) == perform(archive("x"))
    assert Moved(0, {"none": "missing"}) == perform(delete("none"))
    assert PENDING_SINCE == tasks.fields("p")["pending_since"]
