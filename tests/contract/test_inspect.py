from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.inspecting.group_counts import read_group_sizes
from pyasynq._broker.inspecting.queues import QueueCounts, count_tasks, history, memory_usage
from pyasynq._broker.inspecting.tasks import get_task, scan_tasks
from pyasynq._broker.queue_registry import queue_names
from pyasynq._broker.task_records import TaskRecord, decode_task_info
from pyasynq.errors import TaskNotFoundError, UnknownTaskStateError
from pyasynq.task import TaskState
from tests.factories import DAY, LEASE_SCORE, NOW, PENDING_SINCE, TOKEN, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient

EMPTY = QueueCounts("default", False, None, 0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def test_queues_are_listed_by_name(perform: Perform, redis_client: RedisClient) -> None:
    """A queue exists when its name is registered."""
    redis_client.sadd("asynq:queues", "low", "critical")
    assert ["critical", "low"] == perform(queue_names())


def test_an_unknown_queue_is_an_empty_one(perform: Perform) -> None:
    """Nothing is there to count."""
    assert EMPTY == perform(count_tasks("default", NOW))


def test_what_an_empty_queue_lacks_is_not_read(redis_client: RedisClient) -> None:
    """Without due tasks the time is not asked for either."""
    performer = BlockingPerformer(redis_client)
    performer(count_tasks("default"))
    redis_client.config_resetstat()
    assert EMPTY == performer(count_tasks("default"))
    stats: Any = redis_client.info("commandstats")
    skipped = ("zcount", "lindex", "hget", "smembers", "time")
    assert [] == [name for name in skipped if f"cmdstat_{name}" in stats]


def test_each_state_is_counted(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls LLEN, ZCARD or GET: all numbers differ."""
    numbers = iter(range(100))

    def some(number: int) -> list[str]:
        return [f"{next(numbers)}" for _ in range(number)]

    tasks.pending(*some(1))
    tasks.active(*some(2))
    for number, state in enumerate((TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED), 3):
        tasks.put(state, *some(number))
    tasks.put(TaskState.COMPLETED, *some(6), completed_at=NOW.seconds - 60, retention=60)
    tasks.put(TaskState.AGGREGATING, *some(3), group="g1")
    tasks.put(TaskState.AGGREGATING, *some(4), group="g2")
    tasks.in_set("g3", "set", *some(8))
    redis_client.mset({tasks.keys.processed: 31, tasks.keys.failed: 13})
    redis_client.set(f"{tasks.keys.processed}:{DAY}", 11, ex=60)
    redis_client.set(f"{tasks.keys.failed}:{DAY}", 8, ex=60)
    redis_client.set(tasks.keys.paused, 1)
    counts = perform(count_tasks("default", NOW.plus(1.5)))
    expected = QueueCounts("default", True, None, 1.5, 1, 2, 3, 4, 5, 6, 15, 2, 11, 8, 31, 13, due=7)
    assert expected == counts
    assert 36 == counts.size


def test_only_tasks_whose_second_has_come_are_due(perform: Perform, tasks: Tasks) -> None:
    """By the given time, and by that of Redis; both kinds of delayed tasks."""
    for late, state in enumerate((TaskState.SCHEDULED, TaskState.RETRY), 1):
        tasks.put(state, *(f"{state}{at}" for at in range(late)), score=NOW.seconds)
        tasks.put(state, f"{state} next", score=NOW.seconds + 1)
        tasks.put(state, f"{state} later", score=2**40)
    tasks.put(TaskState.RETRY, "long ago", score=1)
    assert 4 == perform(count_tasks("default", NOW)).due
    assert 1 == perform(count_tasks("default")).due


def test_w32_a_task_that_is_being_aggregated_is_counted_and_shown(perform: Perform, tasks: Tasks) -> None:
    """Asynq counts it nowhere."""
    tasks.in_set("g", "set", "a")
    assert 1 == perform(count_tasks("default", NOW)).aggregating
    assert "g" == decode_task_info(perform(get_task("default", "a")), NOW).group


def test_latency_is_the_wait_of_the_next_task(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Fails if the script no longer calls LINDEX or HGET.

    A clock that lags gives 0, and so does an unknown time.
    """
    tasks.pending("next", "last")
    redis_client.hset(tasks.keys.task("last"), "pending_since", f"{NOW.seconds + 5}000000000")
    assert 2.0 == perform(count_tasks("default", NOW.plus(2))).latency
    assert 0.0 == perform(count_tasks("default", NOW.plus(-2))).latency
    redis_client.hdel(tasks.keys.task("next"), "pending_since")
    assert 0.0 == perform(count_tasks("default", NOW.plus(2))).latency
    redis_client.hset(tasks.keys.task("next"), "pending_since", f"{time.time_ns() - 10**11}")
    assert 100 == pytest.approx(perform(count_tasks("default")).latency, abs=5)


def test_a_task_is_shown_with_all_that_is_known(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HMGET or ZSCORE."""
    tasks.active("a", crashes=1, extra={"result": b"r", "x:trace": b"t"})
    record = TaskRecord("a", message_bytes("a"), TaskState.ACTIVE, LEASE_SCORE, b"r", 1, b"t", TOKEN)
    assert record == perform(get_task("default", "a"))
    assert [record] == perform(scan_tasks("default", TaskState.ACTIVE, 0, 10)).records


@pytest.mark.parametrize(
    "state", [TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED, TaskState.COMPLETED]
)
def test_a_task_is_shown_with_its_score(perform: Perform, tasks: Tasks, state: TaskState) -> None:
    """What the score means depends on the state."""
    tasks.put(state, "a", score=NOW.seconds, completed_at=NOW.seconds - 60, retention=60)
    assert NOW.seconds == perform(get_task("default", "a")).score
    assert [NOW.seconds] == [record.score for record in perform(scan_tasks("default", state, 0, 10)).records]


@pytest.mark.parametrize(("score", "second"), [(10.0**19, 10**19), (1.5, 2), (float("inf"), None)])
def test_a_score_that_is_not_a_second_is_shown_rounded_up(
    perform: Perform, tasks: Tasks, score: float, second: int | None
) -> None:
    """One odd task does not hide the others; it is described as far as datetimes reach."""
    tasks.put(TaskState.SCHEDULED, "odd", score=score)  # type: ignore[arg-type]
    tasks.put(TaskState.SCHEDULED, "a", score=NOW.seconds)
    records = perform(scan_tasks("default", TaskState.SCHEDULED, 0, 10)).records
    assert {"a": NOW.seconds, "odd": second} == {record.id: record.score for record in records}
    assert second == perform(get_task("default", "odd")).score
    assert {"a", "odd"} == {decode_task_info(record, NOW).id for record in records}
    tasks.client.flushdb()  # it is not sound


def test_a_pending_task_has_no_score(perform: Perform, tasks: Tasks) -> None:
    """It is due."""
    tasks.pending("a")
    since = PENDING_SINCE
    record = TaskRecord("a", message_bytes("a"), TaskState.PENDING, None, None, 0, None, None, since)
    assert record == perform(get_task("default", "a"))
    assert [record] == perform(scan_tasks("default", TaskState.PENDING, 0, 10)).records


@pytest.mark.parametrize("remains", [{}, {"result": "r"}, {"msg": "m"}, {"state": "pending"}])
@pytest.mark.usefixtures("damage_allowed")
def test_a_task_that_is_not_there_is_an_error(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, remains: dict[str, str]
) -> None:
    """A remainder of a hash is not a task."""
    if remains:
        redis_client.hset(tasks.keys.task("a"), mapping=remains)
    with pytest.raises(TaskNotFoundError, match="id=a in queue 'default'"):
        perform(get_task("default", "a"))


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.SCHEDULED])
def test_pages_come_in_the_order_in_which_tasks_are_taken(
    perform: Perform, tasks: Tasks, state: TaskState
) -> None:
    """Fails if the script no longer calls LRANGE or ZRANGE or reads lists from the wrong end."""
    for position, task_id in enumerate("abcde"):
        tasks.put(state, task_id, score=NOW.seconds + position)

    def page(start: int, stop: int) -> str:
        return "".join(record.id for record in perform(scan_tasks("default", state, start, stop)).records)

    assert ["ab", "cd", "e", "", ""] == [page(0, 2), page(2, 4), page(4, 6), page(5, 9), page(3, 3)]


@pytest.mark.parametrize("state", [TaskState.ARCHIVED, TaskState.COMPLETED])
def test_w34_finished_tasks_come_oldest_first(perform: Perform, tasks: Tasks, state: TaskState) -> None:
    """As Asynq's code does it; its documentation says the opposite."""
    for position, task_id in enumerate("cab"):
        second = NOW.seconds + position
        tasks.put(state, task_id, score=second, retention=60, completed_at=second - 60)
    assert "cab" == "".join(record.id for record in perform(scan_tasks("default", state, 0, 9)).records)


def test_w30_ids_without_a_task_are_left_out(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Asynq shows them as blank tasks."""
    tasks.pending("a", "ghost", "b")
    saved = redis_client.dump(tasks.keys.task("ghost"))
    redis_client.delete(tasks.keys.task("ghost"))
    assert ["a", "b"] == [
        record.id for record in perform(scan_tasks("default", TaskState.PENDING, 0, 10)).records
    ]
    redis_client.restore(tasks.keys.task("ghost"), 0, saved)


def test_an_empty_page_needs_no_call(redis_client: RedisClient) -> None:
    """There is nothing to ask for."""
    perform = BlockingPerformer(redis_client)
    assert [] == perform(scan_tasks("default", TaskState.PENDING, 2, 2)).records
    assert [] == perform.calls


def test_a_record_is_described_for_users(perform: Perform, tasks: Tasks) -> None:
    """Times are aware; a lease that has ended makes an orphan."""
    tasks.active("a", lease=NOW.seconds, error_msg="oops", last_failed_at=NOW.seconds, retried=2)
    info = decode_task_info(perform(get_task("default", "a")), NOW)
    assert ("oops", NOW.seconds, 2) == (info.last_error, int(info.last_failed_at.timestamp()), info.retried)  # type: ignore[union-attr]
    assert info.is_orphaned
    assert not decode_task_info(perform(get_task("default", "a")), NOW.plus(-1)).is_orphaned


def test_the_next_process_time_is_known_for_tasks_that_wait(perform: Perform, tasks: Tasks) -> None:
    """A pending one is due now."""
    tasks.pending("p")
    tasks.put(TaskState.RETRY, "r", score=NOW.seconds + 9)
    tasks.put(TaskState.ARCHIVED, "x")
    due = {
        task_id: decode_task_info(perform(get_task("default", task_id)), NOW).next_process_at
        for task_id in "prx"
    }
    assert {"p": NOW.to_datetime(), "r": NOW._replace(microseconds=0).plus(9).to_datetime(), "x": None} == due


@pytest.mark.usefixtures("damage_allowed")
def test_memory_is_estimated_from_a_sample(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Asynq's estimate: the average of 20 tasks times all of them, and the collection itself.

    Fails if the script no longer calls MEMORY USAGE, LLEN, LRANGE, ZCARD or ZRANGE.
    """
    assert 0 == perform(memory_usage("default", 0))
    keys, client, number = tasks.keys, redis_client, itertools.count()
    expected = 0.0
    for name in ("active", "pending", "scheduled", "retry", "archived", "completed"):
        # The newest 20 of a list and the first 20 of a set are weighed: here, the large ones of 25.
        names = [f"{next(number):03}" for _ in range(25)]
        for place, task_id in enumerate(names):
            client.hset(keys.task(task_id), "msg", bytes(5_000 if 5 <= place < 15 else 500))
        sampled = names[5:] if name in {"active", "pending"} else names[:20]
        if name in {"active", "pending"}:
            client.lpush(getattr(keys, name), *names)
        else:
            client.zadd(getattr(keys, name), {task_id: score for score, task_id in enumerate(names)})
        client.delete(keys.task(sampled[-1]))
        weighed = sum(client.memory_usage(keys.task(task_id)) or 0 for task_id in sampled)
        expected += weighed / 20 * 25 + client.memory_usage(getattr(keys, name))
        assert int(expected) == perform(memory_usage("default", 0)), name


@pytest.mark.usefixtures("damage_allowed")
def test_memory_of_groups_is_estimated_from_five_of_them(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The average over the tasks found, times all that are in groups."""
    for group in range(5):
        ids = [f"{group}-{number:02}" for number in range(22)]
        tasks.put(TaskState.AGGREGATING, *ids, group=f"g{group}", payload=bytes(100 * (group + 1)))
        redis_client.delete(tasks.keys.task(ids[0]))
    sampled: list[int] = []
    for name in redis_client.smembers(tasks.keys.groups):
        sizes = [
            redis_client.memory_usage(tasks.keys.task(task_id.decode()))
            for task_id in redis_client.zrange(tasks.keys.group(name.decode()), 0, 19)
        ]
        sampled += filter(None, sizes)
    assert 5 * 19 == len(sampled)
    assert int(sum(sampled) / len(sampled) * 7 * 22) == perform(memory_usage("default", 7 * 22))


def test_groups_are_listed_with_their_sizes(perform: Perform, tasks: Tasks) -> None:
    """The groups are sorted by name; tasks being aggregated belong to none of them."""
    tasks.put(TaskState.AGGREGATING, "a", group="user:2")
    tasks.put(TaskState.AGGREGATING, "b", "c", group="user:1")
    assert [("user:1", 2), ("user:2", 1)] == list(perform(read_group_sizes("default")).items())


def test_history_goes_back_day_by_day(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Today first; a day without a count is zero."""
    redis_client.sadd("asynq:queues", "default")
    for day, processed, failed in ((DAY, 5, 2), ("2033-05-16", 7, 0)):
        redis_client.set(f"{tasks.keys.processed}:{day}", processed, ex=60)
        redis_client.set(f"{tasks.keys.failed}:{day}", failed, ex=60)
    found = [(str(row.day), row.processed, row.failed) for row in perform(history("default", 3, now=NOW))]
    assert [("2033-05-18", 5, 2), ("2033-05-17", 0, 0), ("2033-05-16", 7, 0)] == found


def test_a_task_in_an_unknown_state_is_an_error(
    damage_allowed: None, perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The error is the one of Asynq."""
    redis_client.hset(tasks.keys.task("a"), mapping={"msg": "m", "state": "frozen"})
    with pytest.raises(UnknownTaskStateError, match="unknown state 'frozen'"):
        perform(get_task("default", "a"))


def test_tasks_of_a_group_are_listed(perform: Perform, tasks: Tasks) -> None:
    """The earliest first."""
    for number, task_id in enumerate("ba"):
        tasks.put(TaskState.AGGREGATING, task_id, group="g", score=NOW.seconds + number)
    tasks.put(TaskState.AGGREGATING, "c", group="h")
    records = perform(scan_tasks("default", TaskState.AGGREGATING, 0, 10, group="g")).records
    assert [("b", NOW.seconds), ("a", NOW.seconds + 1)] == [(record.id, record.score) for record in records]


def test_crashes_and_traceback_are_described(perform: Perform, tasks: Tasks) -> None:
    """Bytes that are not UTF-8 do no harm."""
    tasks.active("a", crashes=2, extra={"x:trace": b"line\xff"})
    info = decode_task_info(perform(get_task("default", "a")), NOW)
    assert (2, "line\N{REPLACEMENT CHARACTER}", None) == (info.crashes, info.traceback, info.in_state_since)
