from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.inspect_queues import QueueCounts, queue_info, queue_names
from pyasynq._broker.inspect_tasks import TaskRecord, get_task, list_tasks, task_info
from pyasynq.errors import TaskNotFoundError
from pyasynq.task import TaskState
from tests.factories import DAY, LEASE_SCORE, NOW, TOKEN, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient

EMPTY = QueueCounts("default", False, 0.0, *[0] * 12)


def test_queues_are_listed_by_name(perform: Perform, redis_client: RedisClient) -> None:
    """A queue exists when its name is registered."""
    redis_client.sadd("asynq:queues", "low", "critical")
    assert ["critical", "low"] == perform(queue_names())


def test_an_unknown_queue_is_an_empty_one(perform: Perform) -> None:
    """Nothing is there to count."""
    assert EMPTY == perform(queue_info("default", NOW))


def test_each_state_is_counted(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Sees the loss of each LLEN, ZCARD and GET: all numbers differ."""
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
    counts = perform(queue_info("default", NOW.plus(1.5)))
    assert QueueCounts("default", True, 1.5, 1, 2, 3, 4, 5, 6, 15, 2, 11, 8, 31, 13) == counts
    assert 36 == counts.size


def test_w32_a_task_that_is_being_aggregated_is_counted_and_shown(perform: Perform, tasks: Tasks) -> None:
    """Asynq counts it nowhere."""
    tasks.in_set("g", "set", "a")
    assert 1 == perform(queue_info("default", NOW)).aggregating
    assert "g" == task_info(perform(get_task("default", "a")), NOW).group


def test_latency_is_the_wait_of_the_next_task(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Sees the loss of the LINDEX and of the HGET; a clock that lags gives 0, and so does an unknown time."""
    tasks.pending("next", "last")
    redis_client.hset(tasks.keys.task("last"), "pending_since", f"{NOW.seconds + 5}000000000")
    assert 2.0 == perform(queue_info("default", NOW.plus(2))).latency
    assert 0.0 == perform(queue_info("default", NOW.plus(-2))).latency
    redis_client.hdel(tasks.keys.task("next"), "pending_since")
    assert 0.0 == perform(queue_info("default", NOW.plus(2))).latency
    redis_client.hset(tasks.keys.task("next"), "pending_since", f"{time.time_ns() - 10**11}")
    assert 100 == pytest.approx(perform(queue_info("default")).latency, abs=5)


def test_a_task_is_shown_with_all_that_is_known(perform: Perform, tasks: Tasks) -> None:
    """Sees the loss of the HMGET and of the ZSCORE."""
    tasks.active("a", crashes=1, extra={"result": b"r", "x:trace": b"t"})
    record = TaskRecord("a", message_bytes("a"), TaskState.ACTIVE, LEASE_SCORE, b"r", 1, b"t", TOKEN)
    assert record == perform(get_task("default", "a"))
    assert [record] == perform(list_tasks("default", TaskState.ACTIVE, 0, 10))


@pytest.mark.parametrize(
    "state", [TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED, TaskState.COMPLETED]
)
def test_a_task_is_shown_with_its_score(perform: Perform, tasks: Tasks, state: TaskState) -> None:
    """What the score means depends on the state."""
    tasks.put(state, "a", score=NOW.seconds, completed_at=NOW.seconds - 60, retention=60)
    assert NOW.seconds == perform(get_task("default", "a")).score
    assert [NOW.seconds] == [record.score for record in perform(list_tasks("default", state, 0, 10))]


@pytest.mark.parametrize(("score", "second"), [(10.0**19, 10**19), (1.5, 2), (float("inf"), None)])
def test_a_score_that_is_no_second_is_shown_rounded_up(
    perform: Perform, tasks: Tasks, score: float, second: int | None
) -> None:
    """One odd task does not hide the others; it is described as far as datetimes reach."""
    tasks.put(TaskState.SCHEDULED, "odd", score=score)  # type: ignore[arg-type]
    tasks.put(TaskState.SCHEDULED, "a", score=NOW.seconds)
    records = perform(list_tasks("default", TaskState.SCHEDULED, 0, 10))
    assert {"a": NOW.seconds, "odd": second} == {record.id: record.score for record in records}
    assert second == perform(get_task("default", "odd")).score
    assert {"a", "odd"} == {task_info(record, NOW).id for record in records}
    tasks.client.flushdb()  # it is not sound


def test_a_pending_task_has_no_score(perform: Perform, tasks: Tasks) -> None:
    """It is due."""
    tasks.pending("a")
    record = TaskRecord("a", message_bytes("a"), TaskState.PENDING, None, None, 0, None)
    assert record == perform(get_task("default", "a"))
    assert [record] == perform(list_tasks("default", TaskState.PENDING, 0, 10))


@pytest.mark.parametrize("remains", [{}, {"result": "r"}, {"msg": "m"}, {"state": "pending"}])
@pytest.mark.usefixtures("damage_allowed")
def test_a_task_that_is_not_there_is_an_error(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, remains: dict[str, str]
) -> None:
    """What is left of a hash is no task."""
    if remains:
        redis_client.hset(tasks.keys.task("a"), mapping=remains)
    with pytest.raises(TaskNotFoundError, match="id=a in queue 'default'"):
        perform(get_task("default", "a"))


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.SCHEDULED])
def test_pages_come_in_the_order_in_which_tasks_are_taken(
    perform: Perform, tasks: Tasks, state: TaskState
) -> None:
    """Sees the loss of the LRANGE and of the ZRANGE, and lists read from the wrong end."""
    for position, task_id in enumerate("abcde"):
        tasks.put(state, task_id, score=NOW.seconds + position)

    def page(start: int, stop: int) -> str:
        return "".join(record.id for record in perform(list_tasks("default", state, start, stop)))

    assert ["ab", "cd", "e", "", ""] == [page(0, 2), page(2, 4), page(4, 6), page(5, 9), page(3, 3)]


def test_w30_ids_without_a_task_are_left_out(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Asynq shows them as blank tasks."""
    tasks.pending("a", "ghost", "b")
    saved = redis_client.dump(tasks.keys.task("ghost"))
    redis_client.delete(tasks.keys.task("ghost"))
    assert ["a", "b"] == [record.id for record in perform(list_tasks("default", TaskState.PENDING, 0, 10))]
    redis_client.restore(tasks.keys.task("ghost"), 0, saved)


def test_an_empty_page_is_no_call(redis_client: RedisClient) -> None:
    """There is nothing to ask for."""
    perform = BlockingPerformer(redis_client)
    assert [] == perform(list_tasks("default", TaskState.PENDING, 2, 2))
    assert [] == perform.calls


def test_a_record_is_described_for_users(perform: Perform, tasks: Tasks) -> None:
    """Times are aware; a lease that has ended makes an orphan."""
    tasks.active("a", lease=NOW.seconds, error_msg="oops", last_failed_at=NOW.seconds, retried=2)
    info = task_info(perform(get_task("default", "a")), NOW)
    assert ("oops", NOW.seconds, 2) == (info.last_error, int(info.last_failed_at.timestamp()), info.retried)  # type: ignore[union-attr]
    assert info.is_orphaned
    assert not task_info(perform(get_task("default", "a")), NOW.plus(-1)).is_orphaned


def test_the_next_process_time_is_known_for_tasks_that_wait(perform: Perform, tasks: Tasks) -> None:
    """A pending one is due now."""
    tasks.pending("p")
    tasks.put(TaskState.RETRY, "r", score=NOW.seconds + 9)
    tasks.put(TaskState.ARCHIVED, "x")
    due = {
        task_id: task_info(perform(get_task("default", task_id)), NOW).next_process_at for task_id in "prx"
    }
    assert {"p": NOW.to_datetime(), "r": NOW._replace(microseconds=0).plus(9).to_datetime(), "x": None} == due
