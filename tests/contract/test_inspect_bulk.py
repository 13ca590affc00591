"""Running, archiving and deleting all tasks of a state, in calls that do not keep others waiting."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.inspecting import bulk
from pyasynq._broker.inspecting.actions import ArchiveLimits, delete_tasks
from pyasynq.errors import ArchiveFullError, InvalidOptionError, QueueNotFoundError
from pyasynq.info import BulkResult
from pyasynq.task import TaskState
from tests.contract.test_inspect_actions import put
from tests.factories import NOW, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

LIMITS = ArchiveLimits(9_999, 0)
LATER = NOW.plus(5)


def run_all(state: str, *, group: str = "", progress: Any = None) -> Plan[BulkResult]:
    """Run all tasks of a state."""
    return bulk.run_all("default", state, group=group, progress=progress, now=LATER)


def archive_all(
    state: str,
    *,
    group: str = "",
    progress: Any = None,
    limits: ArchiveLimits = LIMITS,
    trim: bool = False,
) -> Plan[BulkResult]:
    """Archive all tasks of a state."""
    return bulk.archive_all(
        "default", state, group=group, progress=progress, limits=limits, trim=trim, now=LATER
    )


def delete_all(state: str, *, group: str = "", progress: Any = None) -> Plan[BulkResult]:
    """Delete all tasks of a state."""
    return bulk.delete_all("default", state, group=group, progress=progress)


def group_of(state: str) -> str:
    """Return the group that `put` uses."""
    return "g" if state == TaskState.AGGREGATING else ""


@pytest.mark.parametrize("state", ["scheduled", "retry", "archived", "aggregating"])
def test_what_was_due_first_runs_first(perform: Perform, tasks: Tasks, state: str) -> None:
    """Behind what is pending already; ids of equal score by their bytes."""
    tasks.pending("first")
    for number, task_id in enumerate("bacd"):
        tasks.put(TaskState(state), task_id, score=NOW.seconds + number // 2, group=group_of(state))
    assert BulkResult(4, 0) == perform(run_all(state, group=group_of(state)))
    assert ["first", "a", "b", "c", "d"] == tasks.ids("pending")


@pytest.mark.parametrize("state", ["pending", "scheduled", "retry", "aggregating"])
def test_all_tasks_of_a_state_are_archived(perform: Perform, tasks: Tasks, state: str) -> None:
    """Tasks in other states stay where they are."""
    put(tasks, TaskState(state), "a", "b")
    put(tasks, TaskState.COMPLETED, "c")
    assert BulkResult(2, 0) == perform(archive_all(state, group=group_of(state)))
    assert (["a", "b"], ["c"]) == (tasks.ids("archived"), tasks.ids("completed"))


@pytest.mark.parametrize("state", ["pending", "scheduled", "retry", "archived", "completed", "aggregating"])
def test_h09_all_tasks_of_a_state_are_deleted_with_their_locks(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, state: str
) -> None:
    """Asynq keeps the locks of pending and aggregating tasks."""
    put(tasks, TaskState(state), "a", "b", unique_key="asynq:{default}:unique:email:deliver:x")
    tasks.active("c")
    assert BulkResult(2, 0) == perform(delete_all(state, group=group_of(state)))
    assert [b"c"] == redis_client.lrange(tasks.keys.active, 0, -1)
    assert [] == redis_client.keys("*:unique:*")
    assert 4 == len(redis_client.keys("*"))


def test_only_the_group_that_is_asked_for_is_touched(perform: Perform, tasks: Tasks) -> None:
    """Groups are worked through one by one."""
    tasks.put(TaskState.AGGREGATING, "a", group="g")
    tasks.put(TaskState.AGGREGATING, "b", group="h")
    perform(delete_all("aggregating", group="g"))
    assert {b"h"} == tasks.client.smembers(tasks.keys.groups)


def test_an_archive_by_hand_tells_how_much_it_trimmed(perform: Perform, tasks: Tasks) -> None:
    """Else the loss would be silent."""
    tasks.pending(*"abcde")
    assert BulkResult(5, 0, 3) == perform(archive_all("pending", limits=ArchiveLimits(2, 0), trim=True))
    assert ["d", "e"] == tasks.ids("archived")


@pytest.mark.parametrize("state", ["pending", "scheduled", "aggregating"])
def test_more_than_the_archive_has_room_for_is_refused(perform: Perform, tasks: Tasks, state: str) -> None:
    """The error says how many tasks would be deleted; nothing was changed. (D43)"""
    put(tasks, TaskState(state), *"abc")
    tasks.put(TaskState.ARCHIVED, "recent", score=LATER.seconds - 50)
    tasks.put(TaskState.ARCHIVED, "old", score=1)
    limits = ArchiveLimits(3, LATER.seconds - 100)
    with pytest.raises(ArchiveFullError, match="would delete 1 archived") as caught:
        perform(archive_all(state, group=group_of(state), limits=limits))
    assert (3, 1, 3) == (caught.value.tasks, caught.value.surplus, caught.value.max_size)
    assert ["old", "recent"] == tasks.ids("archived")
    assert BulkResult(3, 0, 2) == perform(archive_all(state, group=group_of(state), limits=limits, trim=True))


def test_as_many_as_there_is_room_for_are_archived(perform: Perform, tasks: Tasks) -> None:
    """Tasks that are too old to be kept take no room. (D43)"""
    tasks.pending(*"abc")
    tasks.put(TaskState.ARCHIVED, "old", score=1)
    assert BulkResult(3, 0, 1) == perform(archive_all("pending", limits=ArchiveLimits(3, 2)))


@pytest.mark.parametrize(
    ("act", "states"),
    [
        (run_all, ["pending", "active", "completed", "aggregating", "nope"]),
        (archive_all, ["active", "archived", "completed", "aggregating", "nope"]),
        (delete_all, ["active", "aggregating", "nope"]),
    ],
)
def test_states_that_an_action_does_not_know_are_refused(
    perform: Perform, tasks: Tasks, act: Any, states: list[str]
) -> None:
    """The states are those of Asynq; a group must be named for aggregating tasks."""
    tasks.pending("a")
    for state in states:
        with pytest.raises(InvalidOptionError, match=r"^(state|group)="):
            perform(act(state))
    with pytest.raises(InvalidOptionError, match=r"^group="):
        perform(act("retry", group="g"))


@pytest.mark.parametrize("act", [run_all, archive_all, delete_all])
def test_a_queue_must_exist(perform: Perform, act: Any) -> None:
    """A misspelt name must not look like an empty queue."""
    with pytest.raises(QueueNotFoundError):
        perform(act("retry"))


def test_progress_is_told_after_each_call(perform: Perform, tasks: Tasks) -> None:
    """Each report has the number of tasks so far and the total."""
    fill(tasks, "archived", 2_500)
    told: list[tuple[int, int]] = []
    perform(delete_all("archived", progress=lambda *numbers: told.append(numbers)))
    assert [(1_000, 2_500), (2_000, 2_500), (2_500, 2_500)] == told


def test_progress_can_end_the_operation(perform: Perform, tasks: Tasks) -> None:
    """What it raises comes out; what was done stays done."""

    def stop(seen: int, total: int) -> None:
        message = f"{seen} of {total}"
        raise InterruptedError(message)

    fill(tasks, "archived", 1_500)
    with pytest.raises(InterruptedError, match="1000 of 1500"):
        perform(delete_all("archived", progress=stop))
    assert 500 == len(tasks.ids("archived"))


@pytest.mark.parametrize("state", ["pending", "scheduled"])
@pytest.mark.usefixtures("damage_allowed")
def test_ids_without_a_task_are_dropped(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, state: str
) -> None:
    """The remainders of their hashes too; ids of tasks elsewhere are removed from this collection only."""
    put(tasks, TaskState(state), "a", "ghost", "strange", "remains")
    redis_client.delete(tasks.keys.task("ghost"))
    redis_client.hdel(tasks.keys.task("remains"), "msg")
    redis_client.hset(tasks.keys.task("strange"), "state", "retry")
    redis_client.zadd(tasks.keys.retry, {"strange": 1})
    assert BulkResult(1, 3) == perform(delete_all(state))
    assert ([], ["strange"]) == (tasks.ids(state), tasks.ids("retry"))
    assert [tasks.keys.task("strange").encode()] == redis_client.keys("*:t:*")


@pytest.mark.parametrize("state", ["pending", "archived"])
def test_what_joins_meanwhile_does_not_keep_the_operation_going(
    redis_client: RedisClient, tasks: Tasks, state: str
) -> None:
    """It ends after as many tasks as there were; new pending tasks are spared."""

    class Enqueues(BlockingPerformer):
        def _send(self, call: Any) -> Any:
            if len(self.calls) < 100:
                tasks.put(TaskState(state), f"new-{len(self.calls)}", score=NOW.seconds + 9)
            return super()._send(call)

    tasks.put(TaskState(state), "a", "b", "c")
    perform = Enqueues(redis_client)
    # Two tasks joined before it looked how many there are.
    assert BulkResult(5, 0) == perform(delete_all(state))
    assert 2 == len(tasks.ids(state))


def test_a_state_that_empties_meanwhile_ends_the_operation(redis_client: RedisClient, tasks: Tasks) -> None:
    """A worker took the last task."""

    class Takes(BlockingPerformer):
        def _send(self, call: Any) -> Any:
            reply = super()._send(call)
            if call[0][0] == "LLEN":
                redis_client.flushall()
            return reply

    tasks.pending("a")
    assert BulkResult(0, 0) == Takes(redis_client)(delete_all("pending"))


def fill(tasks: Tasks, state: str, number: int, *, unique: bool = False) -> None:
    """Put many tasks into a state, quickly."""
    client, keys = tasks.client, tasks.keys
    client.sadd("asynq:queues", "default")
    names = [f"{position:06}" for position in range(number)]
    pipeline = client.pipeline(transaction=False)
    for name in names:
        lock = f"asynq:{{default}}:unique:email:deliver:{name}" if unique else ""
        fields = {"unique_key": lock} if lock else {}
        message = message_bytes(name, unique_key=lock)
        pipeline.hset(keys.task(name), mapping={"msg": message, "state": state, **fields})
        if lock:
            pipeline.set(lock, name, ex=3600)
        if state == "pending":
            pipeline.hset(keys.task(name), "pending_since", "2000000000250000000")
        if len(pipeline) > 10_000:
            pipeline.execute()
    pipeline.execute()
    for start in range(0, number, 5_000):
        part = names[start : start + 5_000]
        if state == "pending":
            client.lpush(keys.pending, *part)
        else:
            client.zadd(getattr(keys, state), dict.fromkeys(part, NOW.seconds - 10))


ACTIONS: dict[str, Any] = {
    "run": run_all,
    "archive": functools.partial(archive_all, limits=ArchiveLimits(200_000, 0)),
    "delete": delete_all,
}


@pytest.mark.parametrize(
    ("action", "state", "number"),
    [("delete", "archived", 5_000), ("run", "archived", 5_000), ("archive", "pending", 5_000)],
)
@pytest.mark.usefixtures("damage_allowed")
def test_w14_many_tasks_do_not_keep_others_waiting(
    redis_client: RedisClient, tasks: Tasks, action: str, state: str, number: int
) -> None:
    """No script works on more than 250 tasks, which keeps Redis busy for some milliseconds."""
    fill(tasks, state, number, unique=action == "delete")
    perform = BlockingPerformer(redis_client)
    told = []
    done = perform(ACTIONS[action](state, progress=lambda seen, total: told.append(seen)))
    assert BulkResult(number, 0) == done
    assert number // 1_000 == len(told)
    assert number // 250 == sum(hasattr(call, "script") for call in perform.calls)


def test_an_operation_on_nothing_asks_for_a_number_only(redis_client: RedisClient, tasks: Tasks) -> None:
    """There is nothing to do."""
    tasks.pending("a")
    perform = BlockingPerformer(redis_client)
    act = functools.partial(delete_tasks, "default")
    assert BulkResult(0, 0) == perform(bulk.act_on_all("default", TaskState.RETRY, act))
    assert 1 == len(perform.calls)
