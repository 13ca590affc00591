"""Moves of tasks to another queue: what goes with them, what stays, and deaths in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.operating.acts import ActStep, Stepped, read_step
from pyasynq._broker.operating.moves import Move, forget_taken, hold_and_take, release_step
from pyasynq._broker.operating.periods import OPERATION_SECONDS
from pyasynq._broker.scripts import OPERATE_HOLD, OPERATE_TAKE
from pyasynq._redis.plan import ScriptCall
from pyasynq._wire.keys import ALL_QUEUES
from pyasynq._wire.messages import decode_task_message
from pyasynq.task import TaskState
from tests.factories import NOW, Tasks
from tests.fix_broker import BlockingPerformer
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.plan import Plan
    from pyasynq._redis.script import Script
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

LOCK = "asynq:{default}:unique:t:x"
THEIR_LOCK = "asynq:{other}:unique:t:x"
OP = "op"


@pytest.fixture
def others(redis_client: RedisClient) -> Tasks:
    """The tasks of the other queue, which exists."""
    redis_client.sadd(ALL_QUEUES, "other")
    return Tasks(redis_client, "other")


def take(task_id: str, state: str = "", **wanted: bool) -> Plan[Move]:
    """Hold a task in the other queue, and take it out of its own."""
    return hold_and_take(OP, "default", "other", task_id, state, **wanted)


def move(perform: Perform, *ids: str, number: int = 1) -> Stepped:
    """Move tasks in one step; `refused` has both reasons, as in an operation."""
    moves = {task_id: perform(take(task_id)) for task_id in ids}
    fates = {task_id: one.fate for task_id, one in moves.items()}
    stepped = perform(release_step(ActStep(OP, number), "other", fates))
    perform(forget_taken(OP, "default", ids))
    reasons = {task_id: one.reason for task_id, one in moves.items() if one.reason}
    return stepped._replace(refused=reasons | stepped.refused)


def keep_of(client: RedisClient) -> dict[str, Any]:
    """Return the database without ledgers."""
    return {key: value for key, value in snapshot(client).items() if ":x:step:" not in key}


def before_script(plan: Plan[Any], script: Script, action: Callable[[], object]) -> Plan[Any]:
    """Return the plan with an action right before it calls a script."""
    call = next(plan)
    while True:
        if isinstance(call, ScriptCall) and call.script is script:
            action()
        reply = yield call
        try:
            call = plan.send(reply)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("state", [TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED])
def test_a_task_keeps_its_id_time_fields_and_lock(
    redis_client: RedisClient, tasks: Tasks, others: Tasks, state: TaskState, replay: bool
) -> None:
    """Message and lock name the other queue, also when each call is sent twice."""
    extra = {"x:trace": "Traceback", "x:unique_ttl": "7"}
    tasks.put(state, "i", score=NOW.seconds + 77, unique_key=LOCK, extra=extra, error_msg="why", retried=3)
    redis_client.pexpire(LOCK, 500_000)
    stepped = move(BlockingPerformer(redis_client, replay=replay), "i")
    assert (1, {}) == (stepped.done, stepped.refused)
    assert {"i": NOW.seconds + 77} == others.scores(state.value)
    fields = others.fields("i")
    message = decode_task_message(fields["msg"])
    assert ("other", THEIR_LOCK, 3, "why") == (
        message.queue,
        message.unique_key,
        message.retried,
        message.error_msg,
    )
    assert (b"Traceback", b"7", THEIR_LOCK.encode()) == tuple(
        fields[name] for name in ("x:trace", "x:unique_ttl", "unique_key")
    )
    assert "x:held" not in fields
    assert b"i" == redis_client.get(THEIR_LOCK)
    assert 400_000 < redis_client.pttl(THEIR_LOCK) <= 500_000
    assert not redis_client.exists(LOCK, tasks.keys.task("i"), getattr(tasks.keys, state.value))


@pytest.mark.usefixtures("damage_allowed")
def test_a_callback_goes_with_its_task(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, others: Tasks
) -> None:
    """The other queue's scripts look for it from then on."""
    tasks.put(TaskState.RETRY, "i", extra={"x:finished": "{}"})
    assert 1 == move(perform, "i").done
    assert (b"{}", b"1") == (others.fields("i")["x:finished"], redis_client.get(others.keys.callbacks))


def test_pending_tasks_go_to_the_end(perform: Perform, tasks: Tasks, others: Tasks) -> None:
    """One after another; since when they wait goes with them."""
    others.pending("first")
    tasks.pending("a", "b", "c")
    waits = tasks.fields("b")["pending_since"]
    assert 2 == move(perform, "c", "b").done
    assert (["a"], ["first", "c", "b"]) == (tasks.ids("pending"), others.ids("pending"))
    assert waits == others.fields("b")["pending_since"]


@pytest.mark.usefixtures("damage_allowed")
def test_a_lock_without_an_end_stays_so(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, others: Tasks
) -> None:
    """And one that another task has is neither taken nor given away."""
    tasks.put(TaskState.RETRY, "a", unique_key=LOCK)
    redis_client.persist(LOCK)
    assert 1 == move(perform, "a").done
    assert (b"a", -1) == (redis_client.get(THEIR_LOCK), redis_client.ttl(THEIR_LOCK))
    tasks.put(TaskState.RETRY, "b", unique_key=LOCK)
    redis_client.set(LOCK, "another")
    assert 1 == move(perform, "b", number=2).done
    assert (b"another", b"a") == (redis_client.get(LOCK), redis_client.get(THEIR_LOCK))
    assert {"a", "b"} == set(others.scores("retry"))


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize("ttl", [60, None])
def test_a_task_whose_id_or_lock_is_taken_stays(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, others: Tasks, ttl: int | None
) -> None:
    """Both queues are as before, and the reason is told."""
    tasks.put(TaskState.RETRY, "same", "free")
    tasks.put(TaskState.ARCHIVED, "locked", unique_key=LOCK)
    if ttl is None:
        redis_client.persist(LOCK)
    others.pending("same")
    others.put(TaskState.RETRY, "holder", unique_key=THEIR_LOCK)
    before = keep_of(redis_client)
    stepped = move(perform, "same", "locked")
    assert (0, {"same": "exists", "locked": "locked"}) == (stepped.done, stepped.refused)
    assert before == keep_of(redis_client)


def test_only_what_waits_is_moved(perform: Perform, redis_client: RedisClient, tasks: Tasks) -> None:
    """Nothing changes for the others, each of which has its reason."""
    tasks.active("a")
    tasks.put(TaskState.COMPLETED, "c", completed_at=NOW.seconds - 60, retention=60)
    tasks.put(TaskState.AGGREGATING, "g", group="g")
    tasks.pending("p", "q")
    redis_client.hset(tasks.keys.task("q"), "msg", b"\xff")
    before = keep_of(redis_client)
    reasons = {"a": "active", "c": "completed", "g": "aggregating", "q": "undecodable", "nope": "missing"}
    assert Stepped(0, reasons) == move(perform, *reasons)
    assert Move("drop", "pending") == perform(take("p", "retry"))
    assert before == keep_of(redis_client)
    redis_client.lrem(tasks.keys.pending, 0, "q")
    redis_client.delete(tasks.keys.task("q"))


@pytest.mark.parametrize("change", ["edited", "moved", "rescheduled", "gone", "taken from its list"])
def test_a_task_that_changes_meanwhile_stays(
    redis_client: RedisClient, tasks: Tasks, others: Tasks, change: str
) -> None:
    """Its copy in the other queue is deleted, with the lock."""
    tasks.put(TaskState.RETRY, "r", unique_key=LOCK)
    tasks.pending("p")

    def act() -> None:
        if change == "edited":
            redis_client.hset(tasks.keys.task("r"), "msg", tasks.fields("r")["msg"] + b"\x30\x05")
        elif change == "moved":
            redis_client.hset(tasks.keys.task("r"), "state", "archived")
        elif change == "rescheduled":
            redis_client.zincrby(tasks.keys.retry, 1, "r")
        elif change == "gone":
            redis_client.delete(tasks.keys.task("r"))
        else:
            redis_client.lrem(tasks.keys.pending, 0, "p")

    task_id = "p" if change == "taken from its list" else "r"
    perform = BlockingPerformer(redis_client)
    moved = perform(before_script(take(task_id), OPERATE_TAKE, act))
    assert Move("drop", "missing" if change == "gone" else "changed") == moved
    assert redis_client.exists(others.keys.task(task_id))
    assert Stepped(0) == perform(release_step(ActStep(OP, 1), "other", {task_id: moved.fate}))
    assert not redis_client.exists(others.keys.task(task_id), THEIR_LOCK)
    assert redis_client.exists(tasks.keys.retry, tasks.keys.task("p")) == 2
    redis_client.flushall()


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.RETRY])
@pytest.mark.parametrize("died", ["after hold", "after take", "after release"])
@pytest.mark.parametrize("doctor", [False, True])
def test_a_death_in_between_neither_loses_nor_doubles_a_task(
    redis_client: RedisClient, tasks: Tasks, others: Tasks, state: TaskState, died: str, doctor: bool
) -> None:
    """The next process finishes the move, also after the doctor has put the copy into its list."""
    perform = BlockingPerformer(redis_client)
    tasks.put(state, "i", unique_key=LOCK)
    if died == "after hold":
        with pytest.raises(KeyboardInterrupt):
            perform(before_script(take("i"), OPERATE_TAKE, die))
        assert not redis_client.exists(getattr(others.keys, state.value))
    else:
        assert Move("place") == perform(take("i"))
        assert not redis_client.exists(tasks.keys.task("i"))
        assert 0 < redis_client.ttl(tasks.keys.step(OP)) <= OPERATION_SECONDS
    if died == "after release":
        assert 1 == perform(release_step(ActStep(OP, 1), "other", {"i": "place"})).done
    elif doctor:
        others._place(redis_client, state, "i", NOW.seconds, "")
    # A step that was made is known by its ledger: an operation repeats its last call alone.
    fate = "place" if perform(read_step(OP, "other")) else perform(take("i")).fate
    assert 1 == perform(release_step(ActStep(OP, 1), "other", {"i": fate})).done
    assert ["i"] == others.ids(state.value)
    assert not redis_client.exists(tasks.keys.task("i"), getattr(tasks.keys, state.value))
    perform(forget_taken(OP, "default", ["i"]))


def die() -> None:
    """End the process."""
    raise KeyboardInterrupt


def test_a_new_task_with_the_id_of_a_moved_one_stays(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, others: Tasks
) -> None:
    """The next process goes on with the one that was taken, and leaves the new one alone."""
    tasks.pending("i")
    perform(take("i"))
    tasks.pending("i")
    assert Move("again") == perform(take("i"))
    assert Move("again") == perform(take("i", is_wanted=False))
    assert 1 == perform(release_step(ActStep(OP, 1), "other", {"i": "again"})).done
    assert (["i"], ["i"]) == (tasks.ids("pending"), others.ids("pending"))
    perform(forget_taken(OP, "default", ["i"]))
    assert Move("drop", "changed") == perform(take("i", is_wanted=False))
    assert 0 < redis_client.ttl(tasks.keys.step(OP)) or not redis_client.exists(tasks.keys.step(OP))


def test_a_copy_that_is_held_again_has_only_the_fields_that_the_task_has_now(
    redis_client: RedisClient, tasks: Tasks, others: Tasks
) -> None:
    """The process before died; meanwhile the task was changed."""
    perform = BlockingPerformer(redis_client)
    tasks.put(TaskState.RETRY, "i", extra={"x:trace": "Traceback"})
    with pytest.raises(KeyboardInterrupt):
        perform(before_script(take("i"), OPERATE_TAKE, die))
    redis_client.hdel(tasks.keys.task("i"), "x:trace")
    assert 1 == move(perform, "i").done
    assert {"msg", "state"} == set(others.fields("i"))


def test_what_another_operation_holds_is_taken(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, others: Tasks
) -> None:
    """It is neither written over, nor released, nor deleted."""
    tasks.pending("i")
    perform(take("i"))
    held = others.fields("i")
    assert b"op pending " == held["x:held"]
    tasks.pending("i")
    assert Move("drop", "exists") == perform(hold_and_take("o", "default", "other", "i", ""))
    for fate in ("place", "drop"):
        assert (
            0 == perform(release_step(ActStep("o", 1 if fate == "place" else 2), "other", {"i": fate})).done
        )
    assert held == others.fields("i")
    perform(release_step(ActStep(OP, 1), "other", {"i": "place"}))


def test_the_hold_is_refused_by_a_full_redis_and_the_rest_is_not() -> None:
    """Only the first script takes memory; the others end what was begun."""
    assert (False, True) == (OPERATE_HOLD.drains, OPERATE_TAKE.drains)
