"""Removing a queue leaves nothing behind, and takes nothing that somebody has just enqueued."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.inspecting import removal
from pyasynq.errors import QueueBusyError, QueueNotEmptyError, QueueNotFoundError
from pyasynq.task import TaskState
from tests.contract.test_inspect_actions import aggregate, put
from tests.contract.test_inspect_bulk import fill
from tests.factories import DAY, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer
from tests.invariants import check_invariants

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

EVERY_STATE = tuple(TaskState)


def remove(queue: str = "default", *, force: bool = False, progress: Any = None) -> Plan[int]:
    """Remove a queue."""
    return removal.remove_queue(queue, force=force, progress=progress)


def leave_traces(tasks: Tasks) -> None:
    """Write everything that outlives the tasks of a queue."""
    client, keys = tasks.client, tasks.keys
    client.sadd("asynq:queues", keys.queue)
    client.mset({keys.paused: 1, keys.processed: 3, keys.failed: 2})
    client.set(f"{keys.processed}:{DAY}", 3, ex=60)
    client.set(f"{keys.failed}:{DAY}", 2, ex=60)
    client.set(keys.unique("t", b"x"), "gone", ex=60)
    client.hset(keys.cancellations, "gone", "1 retry t")
    client.zadd(keys.verdicts, {"s/1/leased done gone": 1})
    client.expire(keys.verdicts, 60)
    client.hset(keys.limits, "concurrency", 1)
    client.hset(keys.ticks, "entry", 1)


@pytest.mark.parametrize("name", ["default", "a*[b]?\\c", "b:d", "z"])
def test_w12_an_empty_queue_goes_with_all_its_traces(
    perform: Perform, redis_client: RedisClient, name: str
) -> None:
    """Counters, locks, our own keys; other queues stay."""
    leave_traces(Tasks(redis_client, name))
    others = ["other", "defaul", "default2", "axb?\\c"]
    for other in others:
        Tasks(redis_client, other).pending("a")
    assert 0 == perform(remove(name))
    assert {other.encode() for other in others} == redis_client.smembers("asynq:queues")
    assert 1 + 2 * len(others) == len(redis_client.keys("*"))


def test_the_doctor_also_removes_what_is_left_of_an_unregistered_queue(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Another process may have removed its name since the doctor saw it."""
    leave_traces(tasks)
    redis_client.delete("asynq:queues")
    with pytest.raises(QueueNotFoundError):
        perform(remove())
    perform(removal.remove_empty_queue("default"))
    assert [] == redis_client.keys("*")


@pytest.mark.parametrize("state", EVERY_STATE)
def test_w12_a_queue_with_tasks_is_not_removed(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, state: TaskState
) -> None:
    """This holds in any state; Asynq overlooks completed and aggregating ones."""
    leave_traces(tasks)
    put(tasks, state, "a", "b")
    before = {key: redis_client.dump(key) for key in redis_client.keys("*")}
    with pytest.raises(QueueNotEmptyError) as caught:
        perform(remove())
    assert 2 == caught.value.tasks
    assert before == {key: redis_client.dump(key) for key in redis_client.keys("*")}


def test_w12_tasks_that_are_being_aggregated_count(perform: Perform, tasks: Tasks) -> None:
    """They are in no group."""
    aggregate(tasks, "a", "b", "c")
    with pytest.raises(QueueNotEmptyError, match="it has 3 tasks"):
        perform(remove())


def test_w12_force_deletes_tasks_in_every_state(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """With their locks; progress tells of all states together."""
    leave_traces(tasks)
    aggregate(tasks, "s1", "s2")
    for state in EVERY_STATE:
        if state is not TaskState.ACTIVE:
            put(tasks, state, f"{state}-1", f"{state}-2", unique_key=tasks.keys.unique("t", b"1"))
    told: list[tuple[int, int]] = []
    assert 14 == perform(remove(force=True, progress=lambda *numbers: told.append(numbers)))
    assert [] == redis_client.keys("*")
    assert [(number, 14) for number in range(2, 15, 2)] == told


def test_orphans_go_with_their_queue(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Hashes in no collection, and leases without tasks."""
    leave_traces(tasks)
    redis_client.hset(tasks.keys.task("orphan"), mapping={"msg": "m", "state": "active"})
    redis_client.zadd(tasks.keys.lease, {"orphan": 1})
    redis_client.zadd(tasks.keys.aggregation_sets, {tasks.keys.aggregation_set("g", "s"): 1})
    redis_client.sadd(tasks.keys.groups, "g")
    perform(remove())
    assert [] == redis_client.keys("*")


def test_active_tasks_forbid_removal(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Even by force; nothing is deleted."""
    tasks.active("a")
    tasks.pending("b")
    with pytest.raises(QueueBusyError, match=r"active tasks \(1\)"):
        perform(remove(force=True))
    assert ["b"] == tasks.ids("pending")


def test_a_queue_to_remove_must_exist(perform: Perform) -> None:
    """A misspelt name."""
    with pytest.raises(QueueNotFoundError):
        perform(remove())


class Meddles(BlockingPerformer):
    """Does something right before the `when`th call of a script or command."""

    def __init__(self, client: RedisClient, name: str, when: int, meddle: Any) -> None:
        super().__init__(client)
        self._name, self._when, self._meddle = name, when, meddle

    def _send(self, call: Any) -> Any:
        name = call.script.name if hasattr(call, "script") else call.command[0]
        if name == self._name:
            self._when -= 1
            if not self._when:
                self._meddle()
        return super()._send(call)


@pytest.mark.parametrize(("name", "when"), [("SREM", 1), ("SCAN", 1), ("inspect/remove_queue", 2)])
def test_w12_a_task_that_is_enqueued_meanwhile_keeps_its_queue(
    tasks: Tasks, redis_client: RedisClient, name: str, when: int
) -> None:
    """It is listed in `asynq:queues` again, and no key of the task is deleted."""
    leave_traces(tasks)
    lock = tasks.keys.unique("t", b"x")
    perform = Meddles(redis_client, name, when, lambda: tasks.pending("a", unique_key=lock))
    assert 0 == perform(remove())
    assert {b"default"} == redis_client.smembers("asynq:queues")
    assert (["a"], b"a") == (tasks.ids("pending"), redis_client.get(lock))


def test_a_task_that_comes_while_the_queue_is_emptied_is_told(
    tasks: Tasks, redis_client: RedisClient
) -> None:
    """Not even force deletes what its call has not seen."""
    tasks.pending("a")
    perform = Meddles(redis_client, "inspect/remove_queue", 1, lambda: tasks.pending("b"))
    with pytest.raises(QueueNotEmptyError, match="it has 1 task;"):
        perform(remove(force=True))
    assert {b"default"} == redis_client.smembers("asynq:queues")


def test_a_task_that_is_taken_while_the_queue_is_emptied_is_told(
    tasks: Tasks, redis_client: RedisClient
) -> None:
    """A worker has it."""
    tasks.pending("a")
    perform = Meddles(redis_client, "inspect/remove_queue", 1, lambda: tasks.active("b"))
    with pytest.raises(QueueBusyError):
        perform(remove(force=True))


class Dies(BlockingPerformer):
    """Fails at a call, as a program does that is killed: before the call is sent, or after its reply."""

    def __init__(self, client: RedisClient, calls: int, *, is_sent: bool) -> None:
        super().__init__(client)
        self._left, self._is_sent = calls, is_sent

    def _send(self, call: Any) -> Any:
        self._left -= 1
        if self._left < 0 and not self._is_sent:
            raise KeyboardInterrupt
        reply = super()._send(call)
        if self._left < 0:
            raise KeyboardInterrupt
        return reply


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_forced_removal_that_was_killed_at_any_call_leaves_no_damage_and_can_be_repeated(
    tasks: Tasks, redis_client: RedisClient, is_sent: bool
) -> None:
    """The queue has fewer tasks, and each of them has its lock and its group."""
    calls, has_ended = 0, False
    while not has_ended:
        for group in "abc":
            locks = [tasks.keys.unique("t", f"{group}{number}".encode()) for number in range(2)]
            for lock in locks:
                tasks.put(TaskState.AGGREGATING, f"{group}-{lock[-1]}", group=group, unique_key=lock)
        aggregate(tasks, "in-set")
        put(tasks, TaskState.ARCHIVED, "archived")
        try:
            Dies(redis_client, calls, is_sent=is_sent)(remove(force=True))
            has_ended = True
        except KeyboardInterrupt:
            check_invariants(redis_client)
        calls += 1
        if redis_client.sismember("asynq:queues", "default"):
            BlockingPerformer(redis_client)(remove(force=True))
        assert [] == redis_client.keys("*")
    assert calls > 15


def test_a_group_whose_name_is_not_utf_8_is_removed_by_force(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Any program may have made it."""
    name = b"g\xff"
    message = message_bytes("a")
    redis_client.hset(tasks.keys.task("a"), mapping={"msg": message, "state": "aggregating", "group": name})
    redis_client.zadd(tasks.keys.group_prefix.encode() + name, {"a": 1})
    redis_client.sadd(tasks.keys.groups, name)
    redis_client.sadd("asynq:queues", "default")
    assert 1 == perform(remove(force=True))
    assert [] == redis_client.keys("*")


@pytest.mark.usefixtures("damage_allowed")
def test_the_list_of_grouped_tasks_drops_ids_without_a_task_and_names_without_ids(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """A task in another state keeps its hash; one without a message loses it."""
    tasks.put(TaskState.AGGREGATING, "a", "gone", "broken", group="g")
    tasks.put(TaskState.AGGREGATING, "b", group="h")
    tasks.put(TaskState.AGGREGATING, "ghost", group="i")
    tasks.pending("pending")
    redis_client.zadd(tasks.keys.group("g"), {"pending": 1})
    redis_client.delete(tasks.keys.task("gone"), tasks.keys.task("ghost"))
    redis_client.hdel(tasks.keys.task("broken"), "msg")
    redis_client.sadd(tasks.keys.groups, "empty", "other")
    names = [b"g", b"h", b"i", b"empty"]
    for _ in range(2):
        assert ["a", "b"] == perform(removal.list_grouped("default", names))
        assert ({"a"}, {"b"}) == (set(tasks.members("g")), set(tasks.members("h")))
        assert {"g", "h", "other"} == tasks.groups()
    keys = {tasks.keys.task(name) for name in ("a", "b", "pending")}
    assert {key.encode() for key in keys} == set(redis_client.keys(tasks.keys.task_prefix + "*"))


def test_the_list_of_grouped_tasks_ends_after_250_ids(perform: Perform, tasks: Tasks) -> None:
    """Groups may have grown since they were counted; those behind keep their names."""
    tasks.put(TaskState.AGGREGATING, *(f"a{number:03}" for number in range(200)), group="a")
    tasks.put(TaskState.AGGREGATING, *(f"b{number:03}" for number in range(100)), group="b")
    tasks.put(TaskState.AGGREGATING, "c", group="c")
    expected = [*sorted(tasks.members("a")), *sorted(tasks.members("b"))[:50]]
    assert expected == perform(removal.list_grouped("default", [b"a", b"b", b"c"]))
    assert {"a", "b", "c"} == tasks.groups()


def test_many_keys_are_found(tasks: Tasks, redis_client: RedisClient) -> None:
    """The keys of a large queue take several calls of SCAN."""
    fill(tasks, "archived", 1_500)
    for number in range(2_500):
        redis_client.set(tasks.keys.unique("t", str(number).encode()), "gone", ex=60)
    assert 1_500 == BlockingPerformer(redis_client)(remove(force=True))
    assert [] == redis_client.keys("*")
