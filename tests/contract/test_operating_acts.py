"""Steps of operations: what they do, that each is counted once, and the way back from a deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.inspecting.actions import ArchiveLimits
from pyasynq._broker.operating.acts import (
    ActStep,
    Stepped,
    archive_step,
    delete_step,
    forget_steps,
    read_restorable,
    reschedule_step,
    run_step,
    set_aside_step,
    undo_step,
)
from pyasynq.task import TaskState
from tests.factories import NOW
from tests.fix_broker import BlockingPerformer
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.plan import Plan
    from tests.factories import Tasks
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

LOCK = "asynq:{default}:unique:t:x"
LIMITS = ArchiveLimits(9_999, 0)
OP = "op"


def step(number: int = 1) -> ActStep:
    """Return a step of the operation `op`."""
    return ActStep(OP, number)


def set_aside(*ids: str, number: int = 1, state: str = "") -> Plan[Stepped]:
    """Delete tasks so that they can be put back."""
    return set_aside_step(step(number), "default", ids, state)


def undo(*ids: str, number: int = 1) -> Plan[Stepped]:
    """Put tasks back; the ledger is that of another operation, as in real life."""
    return undo_step(ActStep("undo", number), "default", ids, OP)


def way_ids(perform: Perform) -> list[str]:
    """Return the ids of the tasks that can be put back, the last deleted first."""
    return [task_id for _, task_id in perform(read_restorable(OP, "default"))]


def fill(tasks: Tasks) -> None:
    """Put tasks into every state, with locks, headers, fields of ours and scores of their own."""
    extra = {"x:trace": "Traceback", "result": b"\x00\xff"}
    tasks.pending("p1", "p2", "p3", "p4", "p5")
    tasks.active("a")
    tasks.put(TaskState.SCHEDULED, "s", score=NOW.seconds + 77, unique_key=f"{LOCK}-s", headers={"a": "b"})
    tasks.put(TaskState.RETRY, "r", score=NOW.seconds + 5, extra=extra, error_msg="why", retried=3)
    tasks.put(TaskState.ARCHIVED, "z", "y", extra=extra)
    tasks.put(TaskState.COMPLETED, "c", completed_at=NOW.seconds - 60, retention=60)
    tasks.put(TaskState.AGGREGATING, "g1", "g2", group="g:1", score=NOW.seconds - 9)
    tasks.in_set("h", "set", "m")


def as_before(client: RedisClient) -> dict[str, Any]:
    """Return the database without ledgers and the paths back."""
    return {key: value for key, value in snapshot(client).items() if ":x:" not in key}


ALL = ("p3", "p5", "p1", "p2", "s", "r", "y", "c", "g1", "g2")


def test_what_is_deleted_comes_back_byte_for_byte(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Messages, fields, scores, order and locks; what is running or being aggregated is left alone."""
    fill(tasks)
    before = as_before(redis_client)
    result = perform(set_aside(*ALL, "a", "m", "nope"))
    assert (10, {"a": "active", "m": "aggregated", "nope": "missing"}) == (result.done, result.refused)
    assert 429 == result.kept
    assert ["p4"] == tasks.ids("pending")
    assert not redis_client.exists(f"{LOCK}-s", tasks.keys.task("s"), tasks.keys.group("g:1"))
    assert set() == tasks.groups()
    ways = way_ids(perform)
    assert set(ALL) == set(ways)
    assert Stepped(10) == perform(undo(*ways))
    assert before == as_before(redis_client)
    assert 3_590 < redis_client.ttl(f"{LOCK}-s") <= 3_600
    assert not redis_client.exists(tasks.keys.gone(OP), tasks.keys.gone_task(OP, "s"))
    assert -1 == redis_client.ttl(tasks.keys.task("s"))


@pytest.mark.parametrize("first", [True, False])
def test_a_whole_list_comes_back_in_its_order(perform: Perform, tasks: Tasks, first: bool) -> None:
    """Whichever end the deletion began at, and in several steps."""
    ids = [f"t{number}" for number in range(9)]
    tasks.pending(*ids)
    ordered = ids if first else ids[::-1]
    for number in range(3):
        perform(set_aside(*ordered[number * 3 : number * 3 + 3], number=number + 1))
    assert [] == tasks.ids("pending")
    ways = way_ids(perform)
    assert ordered[::-1][:3] == sorted(ways[:3], reverse=first)
    perform(undo(*ways[:5]))
    perform(undo(*ways[5:], number=2))
    assert ids == tasks.ids("pending")


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ((), ["first", "a", "b", "c"]),
        (("a",), ["first", "b", "c"]),
        (("c",), ["first", "a", "b"]),
        (("a", "c"), ["b", "first"]),
    ],
)
def test_a_pending_task_goes_next_to_the_neighbour_that_is_left(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, gone: tuple[str, ...], expected: list[str]
) -> None:
    """New tasks have come meanwhile. A task that has lost both neighbours goes to the front."""
    tasks.pending("first", "a", "b", "c")
    perform(set_aside("b"))
    for task_id in gone:
        redis_client.lrem(tasks.keys.pending, 1, task_id)
        redis_client.delete(tasks.keys.task(task_id))
    tasks.pending("new")
    perform(undo("b"))
    assert [*expected, "new"] == tasks.ids("pending")


def test_the_newest_and_the_first_task_go_back_to_their_ends(perform: Perform, tasks: Tasks) -> None:
    """The newest in front of the one that it followed, the first to the front."""
    tasks.pending("first", "b", "newest")
    perform(set_aside("first", "newest"))
    tasks.pending("later")
    perform(undo("newest", "first"))
    assert ["first", "b", "newest", "later"] == tasks.ids("pending")


def test_a_task_in_the_middle_of_a_long_list_is_found(perform: Perform, tasks: Tasks) -> None:
    """Further than a thousand from the front."""
    ids = [f"t{number:04}" for number in range(2_200)]
    tasks.pending(*ids)
    perform(set_aside("t1100"))
    perform(undo("t1100"))
    assert ids == tasks.ids("pending")


def test_an_id_or_a_lock_that_is_taken_meanwhile_is_left_out(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """And told; the way back stays, for when they are free."""
    tasks.put(TaskState.RETRY, "locked", unique_key=LOCK)
    tasks.put(TaskState.ARCHIVED, "taken", "back")
    perform(set_aside("locked", "taken", "back"))
    tasks.put(TaskState.SCHEDULED, "other", unique_key=LOCK)
    tasks.pending("taken")
    result = perform(undo("back", "taken", "locked", "nope"))
    refused = {"taken": "exists", "locked": "locked", "nope": "missing"}
    assert (1, refused) == (result.done, result.refused)
    assert ["taken"] == tasks.ids("pending")
    assert b"other" == redis_client.get(LOCK)
    assert {"taken", "locked"} == set(way_ids(perform))
    redis_client.delete(tasks.keys.gone_task(OP, "taken"))
    redis_client.delete(tasks.keys.task("taken"))
    redis_client.lrem(tasks.keys.pending, 1, "taken")
    assert {"taken": "missing"} == perform(undo("taken", number=2)).refused


def test_nothing_is_put_back_twice(perform: Perform, tasks: Tasks) -> None:
    """A second undo finds nothing to put back."""
    tasks.pending("a", "b")
    perform(set_aside("a"))
    perform(undo("a"))
    assert {"a": "missing"} == perform(undo("a", number=2)).refused
    assert ["a", "b"] == tasks.ids("pending")


def test_a_lock_comes_back_with_what_was_left_of_it(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """To the millisecond, and a lock without an end has none again."""
    tasks.put(TaskState.RETRY, "a", unique_key=LOCK)
    redis_client.pexpire(LOCK, 50_500)
    tasks.put(TaskState.RETRY, "b", unique_key=f"{LOCK}-b")
    redis_client.persist(f"{LOCK}-b")
    tasks.put(TaskState.RETRY, "c", unique_key=f"{LOCK}-c")
    redis_client.set(f"{LOCK}-c", "somebody else", ex=9)
    perform(set_aside("a", "b", "c"))
    assert (b"somebody else", 0) == (redis_client.get(f"{LOCK}-c"), redis_client.exists(LOCK, f"{LOCK}-b"))
    perform(undo("c", "b", "a"))
    assert (b"a", b"b") == (redis_client.get(LOCK), redis_client.get(f"{LOCK}-b"))
    assert 50_000 < redis_client.pttl(LOCK) <= 50_500
    assert -1 == redis_client.pttl(f"{LOCK}-b")
    redis_client.delete(f"{LOCK}-b", f"{LOCK}-c")
    redis_client.set(f"{LOCK}-b", "b", ex=60)


@pytest.mark.parametrize("size", [100, 128, 300])
def test_the_lock_that_go_names_in_the_message_only_comes_back(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, size: int
) -> None:
    """The task is in a group. From 128 bytes on, the length of the name takes two bytes."""
    lock = "asynq:{default}:unique:".ljust(size, "x")
    tasks.put(TaskState.AGGREGATING, "m", group="g", unique_key=lock)
    redis_client.hdel(tasks.keys.task("m"), "unique_key")
    perform(set_aside("m"))
    assert not redis_client.exists(lock)
    perform(undo("m"))
    assert b"m" == redis_client.get(lock)
    redis_client.hset(tasks.keys.task("m"), "unique_key", lock)


def test_the_way_back_lapses(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """A day after the deletion."""
    tasks.pending("a")
    perform(set_aside("a"))
    for key in (tasks.keys.gone(OP), tasks.keys.gone_task(OP, "a")):
        assert 86_390 < redis_client.ttl(key) <= 86_400


def test_tasks_in_another_state_are_left_alone(perform: Perform, tasks: Tasks) -> None:
    """A task that was chosen as archived and runs by now is not deleted."""
    tasks.put(TaskState.ARCHIVED, "a")
    tasks.pending("b")
    result = perform(set_aside("a", "b", state="archived"))
    assert (1, {"b": "pending"}) == (result.done, result.refused)
    assert ["b"] == tasks.ids("pending")


STEPS: dict[str, Callable[[ActStep], Plan[Stepped]]] = {
    "run": lambda one: run_step(one, "default", ["r", "nope"], "", now=NOW),
    "archive": lambda one: archive_step(one, "default", ["r", "nope"], "", limits=LIMITS, now=NOW),
    "delete": lambda one: delete_step(one, "default", ["r", "nope"], ""),
    "set_aside": lambda one: set_aside_step(one, "default", ["r", "nope"], ""),
    "reschedule": lambda one: reschedule_step(one, "default", [("r", 5), ("nope", 6)], now=NOW),
    "undo": lambda one: undo_step(one, "default", ["d", "nope"], "earlier"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_made_again_is_counted_as_the_first_time(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, name: str
) -> None:
    """Its process died before it could tell; the tasks may be anywhere by now."""
    fill(tasks)
    tasks.pending("d")
    perform(set_aside_step(ActStep("earlier", 1), "default", ["d"], ""))
    first = perform(STEPS[name](step(7)))
    assert (1, {"nope": "missing"}, False) == (first.done, first.refused, first.repeated)
    changed = snapshot(redis_client)
    assert first._replace(repeated=True) == perform(STEPS[name](step(7)))
    assert changed == snapshot(redis_client)
    assert perform(STEPS[name](step(6))).lost
    assert changed == snapshot(redis_client)
    ledger = tasks.keys.step(OP)
    assert 29 * 86_400 < redis_client.ttl(ledger) <= 30 * 86_400
    again = perform(STEPS[name](step(8)))
    assert (False, False) == (again.repeated, again.lost)
    perform(forget_steps(OP, "default"))
    assert 0 < redis_client.ttl(ledger) <= 3_600


@pytest.mark.parametrize("name", STEPS)
def test_a_step_whose_reply_was_lost_is_sent_again(
    tasks: Tasks, redis_client: RedisClient, name: str
) -> None:
    """The driver sends it, and the ledger answers."""
    fill(tasks)
    tasks.pending("d")
    again = BlockingPerformer(redis_client, replay=True)
    again(set_aside_step(ActStep("earlier", 1), "default", ["d"], ""))
    assert (1, {"nope": "missing"}) == again(STEPS[name](step()))[:2]


def test_steps_do_what_the_inspector_does(perform: Perform, tasks: Tasks) -> None:
    """Their scripts are the same."""
    fill(tasks)
    perform(run_step(step(1), "default", ["r"], "", now=NOW))
    perform(archive_step(step(2), "default", ["p1"], "", limits=LIMITS, now=NOW))
    perform(delete_step(step(3), "default", ["p2"], ""))
    perform(reschedule_step(step(4), "default", [("s", NOW.seconds + 9)], now=NOW))
    assert ["p3", "p4", "p5", "r"] == tasks.ids("pending")
    assert {"p1", "y", "z"} == set(tasks.ids("archived"))
    assert {"s": NOW.seconds + 9} == tasks.scores("scheduled")
    assert [] == perform(read_restorable(OP, "default"))
