"""Bounds and lifetimes of scripts that none of the public interfaces shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.doctoring.tasks import walk
from pyasynq._broker.doctoring.ticks import reset_tick
from pyasynq._broker.inspecting.cursors import encode_cursor, list_tag
from pyasynq._broker.inspecting.pace import ChunkPace
from pyasynq._broker.inspecting.walk_reader import MAX_READ
from pyasynq._broker.inspecting.walks import Walk, walk_tasks
from pyasynq._broker.operating.operations import (
    advance_operation,
    create_operation,
    set_operation_state,
    take_operation,
)
from pyasynq._broker.operating.periods import OPERATION_SECONDS
from pyasynq._broker.scripts import INSPECT_POISON, INSPECT_READ_TASKS, INSPECT_WALK_LIST
from pyasynq._redis.plan import Replay, ScriptCall
from pyasynq._wire.keys import operation_key
from pyasynq.info import ScanFilter, TaskPage
from pyasynq.task import TaskState
from tests.factories import NOW, Tasks
from tests.waiting import set_to

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan, Reply
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

FIELDS = {"state": "running", "act": "delete"}


def page_from(perform: Perform, left: int) -> TaskPage:
    """Return the page of pending tasks behind which this many older ones are left, found by no other id."""
    cursor = encode_cursor(list_tag("default", "pending", ""), (left, [], []))
    return perform(walk_tasks(Walk("default", "pending", cursor=cursor), now=NOW, pace=ChunkPace()))


def test_a_place_in_a_list_is_its_position_if_no_id_around_it_is_known(
    perform: Perform, tasks: Tasks
) -> None:
    """At the end of the list nothing is left to find."""
    tasks.pending(*"abc")
    assert ["b", "a"] == [task.id for task in page_from(perform, 2).tasks]
    assert ((), 0) == (page_from(perform, 0).tasks, page_from(perform, 0).looked_at)


def test_no_ids_follow_the_end_of_a_list(perform: Perform, tasks: Tasks) -> None:
    """The whole list would be sent, of any length."""
    tasks.pending(*"abc")

    def walk_all() -> Plan[Reply]:
        args = (tasks.keys.task_prefix, "", 500, 10, 10, MAX_READ, 8)
        return (yield ScriptCall(INSPECT_WALK_LIST, (tasks.keys.pending,), args, Replay.SAFE))

    found, looked_at, left, before, after, *_ = perform(walk_all())
    assert (1, 3, 0, []) == (found, looked_at, left, after)
    assert [b"c", b"b", b"a"] == before


def test_a_call_ends_when_it_has_read_as_many_bytes_as_it_may(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """A task more might be large."""
    tasks.pending("a", "b")
    size = redis_client.hstrlen(tasks.keys.task("a"), "msg")

    def read_until(max_bytes: int) -> Plan[int]:
        args = (tasks.keys.task_prefix, 10, max_bytes, "id", "a", "id", "b")
        looked_at, *_ = yield ScriptCall(INSPECT_READ_TASKS, (tasks.keys.lease,), args, Replay.SAFE)
        return int(looked_at)

    assert 1 == perform(read_until(size))
    assert 2 == perform(read_until(size + 1))


def test_the_last_poison_task_ends_a_call_for_it(perform: Perform, tasks: Tasks) -> None:
    """Otherwise one call more would look behind it."""
    for task_id in "ab":
        tasks.put(TaskState.ARCHIVED, task_id, score=1_000, error_msg="poison: it crashed")

    def find_poison(most: int) -> Plan[tuple[int, int]]:
        args = (tasks.keys.task_prefix, 0, 100, most, MAX_READ, "poison")
        reply = yield ScriptCall(INSPECT_POISON, (tasks.keys.archived,), args, Replay.SAFE)
        looked_at, is_cut, *_ = reply
        return looked_at, is_cut

    assert (1, 1) == perform(find_poison(1))
    assert (2, 0) == perform(find_poison(2))


def test_scores_above_all_tasks_bound_an_empty_walk(perform: Perform, tasks: Tasks) -> None:
    """No position is looked at."""
    tasks.put(TaskState.ARCHIVED, "a", score=1_000)
    asked = Walk("default", "archived", scan_filter=ScanFilter(2_000, 3_000))
    found = perform(walk_tasks(asked, now=NOW, pace=ChunkPace()))
    assert ((), 0) == (found.tasks, found.looked_at)


def test_the_doctor_walks_past_the_end_of_the_active_list(perform: Perform, tasks: Tasks) -> None:
    """The last page is empty if the one before was just full."""
    tasks.active("a")
    assert (1, [b"a"], []) == perform(walk("default", tasks.keys.active, "active", 0))
    assert (0, [], []) == perform(walk("default", tasks.keys.active, "active", 1))


def test_a_tick_of_the_future_is_set_to_the_present_unless_it_has_changed(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Another scheduler may have mended it meanwhile."""
    redis_client.hset(tasks.keys.ticks, "entry", NOW.seconds + 99)
    later = str(NOW.seconds + 99).encode()
    assert not perform(reset_tick("default", b"entry", b"5", NOW.seconds))
    assert later == redis_client.hget(tasks.keys.ticks, "entry")
    assert perform(reset_tick("default", b"entry", later, NOW.seconds))
    assert str(NOW.seconds).encode() == redis_client.hget(tasks.keys.ticks, "entry")


def test_each_step_keeps_an_operation_for_its_whole_lifetime_again(
    perform: Perform, redis_client: RedisClient
) -> None:
    """Taking an operation and pausing it renew its expiry too."""
    key = operation_key("op")

    def kept() -> bool:
        is_kept = bool(redis_client.ttl(key) == set_to(OPERATION_SECONDS))
        redis_client.expire(key, 60)
        return is_kept

    perform(create_operation("op", FIELDS, now=NOW))
    assert kept()
    fence = perform(take_operation("op", "me", now=NOW))
    assert kept()
    assert "running" == perform(advance_operation("op", fence, {"done": 1}, now=NOW))
    assert kept()
    assert "paused" == perform(set_operation_state("op", "paused", ["running"]))
    assert kept()


def test_an_operation_is_taken_over_when_the_last_second_of_its_lease_has_begun(
    perform: Perform, redis_client: RedisClient
) -> None:
    """A second process is refused until the second in which the lease ends."""
    perform(create_operation("op", FIELDS, now=NOW))
    assert 1 == perform(take_operation("op", "first", now=NOW))
    redis_client.hset(operation_key("op"), "lease", NOW.seconds + 1)
    assert 0 == perform(take_operation("op", "second", now=NOW))
    redis_client.hset(operation_key("op"), "lease", NOW.seconds)
    assert 2 == perform(take_operation("op", "second", now=NOW))


def test_an_operation_that_is_created_again_stays_as_it_is(
    perform: Perform, redis_client: RedisClient
) -> None:
    """The call may have been sent twice, because its reply was lost."""
    perform(create_operation("op", FIELDS, now=NOW))
    perform(advance_operation("op", perform(take_operation("op", "me", now=NOW)), {"done": 7}, now=NOW))
    before = redis_client.hgetall(operation_key("op"))
    perform(create_operation("op", FIELDS | {"done": 0}, now=NOW))
    assert before == redis_client.hgetall(operation_key("op"))
