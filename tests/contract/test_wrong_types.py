"""A key of the wrong type makes a script fail before it has changed anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.delayed import forward
from pyasynq._broker.dequeue import dequeue
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._broker.leases import RecoverTask, recover
from pyasynq._broker.verdicts import VerdictNote
from pyasynq._wire.keys import ALL_QUEUES
from pyasynq.errors import RedisReplyError
from pyasynq.task import TaskState
from tests.contract.enqueueing import composed
from tests.contract.settling import archive, complete, done, requeue, retry
from tests.contract.test_full_redis import ORDERED, RATED, poison
from tests.factories import DAY, NOW, TOKEN, Tasks, claim
from tests.fix_broker import BlockingPerformer
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

EXPIRED = NOW.seconds - 60
LEASED = "server/1/leased"
COUNTS = (f"processed:{DAY}", "processed")
ALL_COUNTS = (*COUNTS, f"failed:{DAY}", "failed")
ENQUEUES: dict[str, dict[str, Any]] = {
    "enqueue": {},
    "enqueue_unique": {"unique": 60},
    "enqueue_by_rules": {"unique": 60, "on_duplicate": "ignore"},
    "enqueue_front": {"unique": 60, "front": True},
}
SCHEDULES: dict[str, dict[str, Any]] = {
    "schedule": {"process_in": 60},
    "schedule_unique": {"unique": 60, "process_in": 60},
    "schedule_by_rules": {"unique": 60, "process_in": 60, "on_duplicate": "ignore"},
    "group_schedule": {"group": "g", "process_in": 60, "unique": 60},
}
GROUPS: dict[str, dict[str, Any]] = {
    "group_add": {"group": "g"},
    "group_add_unique": {"group": "g", "unique": 60},
    "group_add_by_rules": {"group": "g", "unique": 60, "on_duplicate": "ignore"},
}


def enqueue(options: dict[str, Any]) -> Plan[Any]:
    """Enqueue two tasks with one call."""
    [run] = split_runs([composed("x", **options), composed("y", b"y", **options)])
    return enqueue_run(run, now=NOW)


def settled(settle: Any, **options: Any) -> Callable[[], Plan[Any]]:
    """Settle the attempts of two tasks that a worker, or a consumer, has taken."""
    return lambda: settle([claim("a"), claim("b")], **options)


def settled_lease(settle: Any) -> Callable[[], Plan[Any]]:
    """Settle the attempts of two tasks that a consumer has taken, and note the verdicts."""
    note = VerdictNote("done", NOW.seconds + 600)
    return lambda: settle([claim("a"), claim("b")], note=note)


def recovered(token: str, task_id: str) -> Callable[[], Plan[Any]]:
    """Take back a task whose worker is dead."""
    return lambda: recover("default", [RecoverTask(task_id, token, EXPIRED)], now=NOW)


def cases() -> dict[str, tuple[Callable[[], Plan[Any]], str]]:
    """Return each call with each key that it writes to."""
    found: dict[str, tuple[Callable[[], Plan[Any]], str]] = {}

    def add(name: str, plan: Callable[[], Plan[Any]], *places: str) -> None:
        found.update({f"{name}-{place}": (plan, place) for place in places})

    for kinds, places in ((ENQUEUES, ("pending",)), (SCHEDULES, ("scheduled",)), (GROUPS, ("groups", "g:g"))):
        for name, options in kinds.items():
            add(name, lambda options=options: enqueue(options), *places)  # type: ignore[misc]
    taken = ("pending", "active", "lease", "x:limits")
    add("dequeue", lambda: dequeue("default", limit=5, token=TOKEN, now=NOW), *taken, "t:second")
    limited = (*taken, "x:bucket", "t:first")
    add("enqueue_front", lambda: enqueue({"front": True}), "x:limits")
    add("dequeue_limited", lambda: dequeue("default", limit=5, token=TOKEN, terms=RATED, now=NOW), *limited)
    ordered = ("pending", "lease", "x:limits", "t:first")
    add("dequeue_ordered", lambda: dequeue("default", limit=5, token=TOKEN, terms=ORDERED, now=NOW), *ordered)
    running = ("active", "lease", "t:b")
    add("done", settled(done), *running, *COUNTS)
    add("complete", settled(complete), *running, "completed", *COUNTS)
    add("retry", settled(retry), *running, "retry", *ALL_COUNTS)
    add("archive", settled(archive), *running, "archived", *ALL_COUNTS)
    add("requeue", settled(requeue), *running, "pending")
    for settle in (done, complete, retry, archive, requeue):
        add(f"{settle.__name__}_of_a_lease", settled_lease(settle), "x:verdicts")
    add("forward", lambda: forward("default", now=NOW), "scheduled", "pending", "t:due")
    add("forward_of_retries", lambda: forward("default", now=NOW), "retry", "pending", "t:due")
    add("forward_to_a_group", lambda: forward("default", now=NOW), "groups", "g:g")
    add("recover", recovered(TOKEN, "dead"), "active", "lease", "pending", "t:dead")
    add("recover_of_a_lease", recovered(LEASED, "leased"), "x:verdicts")
    add("poison", poison, "active", "lease", "archived", *ALL_COUNTS)
    return found


CASES = cases()


def prepare(tasks: Tasks, name: str) -> None:
    """Make tasks in all places that the call looks at."""
    tasks.client.sadd(ALL_QUEUES, "default")
    tasks.active("a", "b")
    tasks.active("dead", lease=EXPIRED)
    tasks.active("leased", token=LEASED, lease=EXPIRED)
    if name.startswith("dequeue"):
        tasks.pending("first", "second", "third")
    if name.startswith("dequeue_ordered"):
        # A task that is active would keep the next one back.
        tasks.client.delete(tasks.keys.active)
        tasks.client.hset(tasks.keys.limits, "ordered", 1)
    if name.startswith("forward"):
        state = TaskState.RETRY if "retries" in name else TaskState.SCHEDULED
        tasks.put(state, "due", group="g" if "group" in name else "")


@pytest.mark.sample(10, by_script=True)
@pytest.mark.parametrize("name", CASES)
def test_a_key_of_the_wrong_type_changes_nothing(
    damage_allowed: None, perform: Perform, redis_client: RedisClient, tasks: Tasks, name: str
) -> None:
    """Redis does not roll back, so a script that fails half-way would lose the tasks it has moved."""
    plan, place = CASES[name]
    prepare(tasks, name)
    harmed = f"asynq:{{default}}:{place}"
    redis_client.delete(harmed)
    redis_client.xadd(harmed, {"not": "what belongs here"})
    before = _state_of(redis_client)
    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        perform(plan())
    assert before == _state_of(redis_client)


def test_a_group_of_the_wrong_type_keeps_all_tasks_of_the_call_out(
    damage_allowed: None, perform: Perform, redis_client: RedisClient
) -> None:
    """Also those that had joined another group before: the error is that of all of them."""
    tasks = [composed("x", group="f", unique=60), composed("y", b"y", group="g", unique=60)]
    [run] = split_runs(tasks)
    redis_client.xadd("asynq:{default}:g:g", {"not": "what belongs here"})
    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        perform(enqueue_run(run, now=NOW))
    assert [b"asynq:{default}:g:g"] == redis_client.keys("*")


@pytest.mark.parametrize("first", [0, 120], ids=["oldest", "newest"])
def test_attempts_that_cannot_be_stored_stay_active_in_their_order(
    damage_allowed: None, perform: Perform, redis_client: RedisClient, tasks: Tasks, first: int
) -> None:
    """The newest of many active tasks are found from the other end of the list, and go back to it."""
    ids = [f"{number}" for number in range(145)]
    tasks.active(*ids)
    redis_client.xadd(tasks.keys.completed, {"not": "what belongs here"})
    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        perform(complete([claim(task_id) for task_id in ids[first : first + 25]]))
    assert ids == tasks.ids("active")
    assert {*ids} == tasks.scores("lease").keys()


@pytest.mark.parametrize("count", [b"many", b"1.5"])
def test_a_day_whose_counter_is_not_a_number_changes_nothing(
    damage_allowed: None, perform: Perform, redis_client: RedisClient, tasks: Tasks, count: bytes
) -> None:
    """INCRBY would fail when the tasks are gone."""
    tasks.active("a")
    redis_client.set(f"{tasks.keys.processed}:{DAY}", count)
    before = snapshot(redis_client)
    with pytest.raises(RedisReplyError, match="not an integer"):
        perform(done([claim("a")]))
    assert before == snapshot(redis_client)


def test_a_due_task_that_joined_its_group_stays_there_when_the_others_cannot_move(
    damage_allowed: None, perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Each task is in one place, whichever key has the wrong type."""
    tasks.put(TaskState.SCHEDULED, "grouped", group="g", score=NOW.seconds - 2)
    tasks.put(TaskState.SCHEDULED, "plain", score=NOW.seconds - 1)
    redis_client.xadd(tasks.keys.pending, {"not": "what belongs here"})
    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        perform(forward("default", now=NOW))
    assert {"plain": NOW.seconds - 1} == tasks.scores("scheduled")
    assert b"scheduled" == tasks.fields("plain")["state"]
    assert ["grouped"] == list(tasks.members("g"))
    assert b"aggregating" == tasks.fields("grouped")["state"]


def test_a_replay_meets_an_id_of_the_wrong_type_as_a_conflict(
    damage_allowed: None, redis_client: RedisClient
) -> None:
    """The other tasks of the call are enqueued."""
    redis_client.xadd("asynq:{default}:t:x", {"not": "what belongs here"})
    [run] = split_runs([composed("w"), composed("x")])
    performer = BlockingPerformer(redis_client, replay=True)
    assert [1] == list(performer(enqueue_run(run, now=NOW)))
    assert [b"w"] == redis_client.lrange("asynq:{default}:pending", 0, -1)


def _state_of(client: RedisClient) -> dict[str, Any]:
    """Return everything that is in Redis; `snapshot` knows no streams, so that is renamed meanwhile."""
    [stream] = [key for key in client.keys("*") if client.type(key) == b"stream"]
    dump = client.dump(stream)
    client.delete(stream)
    found = snapshot(client)
    client.restore(stream, 0, dump)
    # The order of the active tasks has no meaning.
    expires, active = found.get("asynq:{default}:active", (False, []))
    return found | {"active": (expires, sorted(active)), "asynq:{default}:active": None}
