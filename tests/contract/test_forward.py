from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.delayed import Forwarded, delete_expired_completed, forward
from pyasynq._clock import Instant
from pyasynq.task import TaskState
from tests.factories import NOW, PENDING_SINCE, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient

sources = pytest.mark.parametrize("source", [TaskState.SCHEDULED, TaskState.RETRY])


def forwarded(perform: Perform, **arguments: Any) -> Forwarded:
    """Forward at NOW."""
    return perform(forward("default", **({"now": NOW} | arguments)))


@sources
def test_due_tasks_join_the_end_of_the_queue_earliest_first(
    perform: Perform, tasks: Tasks, source: TaskState
) -> None:
    """Fails if the script no longer calls ZRANGEBYSCORE, ZREM or LPUSH: due at this second, not after it."""
    tasks.pending("waiting")
    for task_id, score in (("now", NOW.seconds), ("next", NOW.seconds + 1), ("past", NOW.seconds - 9)):
        tasks.put(source, task_id, score=score)
    assert Forwarded(2, NOW.seconds + 1, NOW) == forwarded(perform)
    assert ["waiting", "past", "now"] == tasks.ids("pending")
    assert ["next"] == tasks.ids(source.value)


@sources
def test_a_forwarded_task_is_pending_since_now(perform: Perform, tasks: Tasks, source: TaskState) -> None:
    """Fails if the script no longer calls HSET; the rest of the hash stays."""
    tasks.put(source, "a", extra={"x:trace": b"last failure"})
    forwarded(perform)
    assert {
        "msg": message_bytes("a"),
        "state": b"pending",
        "pending_since": PENDING_SINCE,
        "x:trace": b"last failure",
    } == tasks.fields("a")


def test_h14_the_next_due_time_is_the_earlier_of_both(perform: Perform, tasks: Tasks) -> None:
    """The forwarder rests until then; None means that nothing waits."""
    assert Forwarded(0, None, NOW) == forwarded(perform)
    tasks.put(TaskState.RETRY, "a", score=NOW.seconds + 20)
    assert NOW.seconds + 20 == forwarded(perform).next_due
    tasks.put(TaskState.SCHEDULED, "b", score=NOW.seconds + 10)
    assert NOW.seconds + 10 == forwarded(perform).next_due


@sources
def test_all_due_tasks_are_moved_some_at_a_time(
    redis_client: RedisClient, tasks: Tasks, source: TaskState
) -> None:
    """Calls go on until nothing is due, and no longer."""
    tasks.put(source, *"abcd")
    tasks.put(source, "later", score=NOW.seconds + 1)
    perform = BlockingPerformer(redis_client)
    assert 4 == forwarded(perform, limit=2).moved
    assert 3 == len(perform.calls)
    assert ["later"] == tasks.ids(source.value)


def test_h15_w23_without_a_time_redis_tells_it(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME: NOW lies in its future."""
    tasks.put(TaskState.SCHEDULED, "past", score=1)
    tasks.put(TaskState.SCHEDULED, "future")
    result = forwarded(perform, now=None)
    assert (1, NOW.seconds) == (result.moved, result.next_due)
    assert Instant(1_700_000_000) < result.redis_now < NOW


@pytest.mark.parametrize("field", ["group", "x:group"])
def test_w04_h11_a_due_task_of_a_group_joins_it(perform: Perform, tasks: Tasks, field: str) -> None:
    """Fails if the script no longer calls HDEL, HSET, ZADD or SADD; SADD makes the group known."""
    tasks.put(TaskState.SCHEDULED, "a", extra={field: "g1"}, group_key="g1")
    assert 1 == forwarded(perform).moved
    assert {
        "msg": message_bytes("a", group_key="g1"),
        "state": b"aggregating",
        "group": b"g1",
    } == tasks.fields("a")
    client = tasks.client
    assert [(b"a", NOW.ceiling)] == client.zrange(tasks.keys.group("g1"), 0, -1, withscores=True)
    assert {b"g1"} == client.smembers(tasks.keys.groups)
    assert [] == tasks.ids("pending") + tasks.ids("scheduled")


def test_an_empty_group_is_none(perform: Perform, tasks: Tasks) -> None:
    """Peers may write the field so."""
    tasks.put(TaskState.RETRY, "a", extra={"group": ""})
    forwarded(perform)
    assert ["a"] == tasks.ids("pending")


def test_h03_w15_a_due_id_without_a_task_is_dropped(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Fails if the script no longer calls DEL: writing a state would make a hash that blocks the id."""
    tasks.put(TaskState.SCHEDULED, "ghost", "remains", "a")
    redis_client.delete(tasks.keys.task("ghost"))
    redis_client.hdel(tasks.keys.task("remains"), "msg")
    assert 1 == forwarded(perform).moved
    assert ["a"] == tasks.ids("pending")
    assert {} == tasks.fields("ghost") == tasks.fields("remains")


def test_completed_tasks_are_deleted_when_their_retention_ends(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls ZRANGEBYSCORE, ZREM or DEL: at this second, not before it."""
    for task_id, ends in (("past", NOW.seconds - 9), ("now", NOW.seconds), ("next", NOW.seconds + 1)):
        tasks.put(TaskState.COMPLETED, task_id, score=ends, completed_at=ends - 60, retention=60)
    assert 2 == perform(delete_expired_completed("default", batch=100, now=NOW))
    assert ["next"] == tasks.ids("completed")
    assert {} == tasks.fields("past") == tasks.fields("now")


def test_completed_tasks_are_deleted_some_at_a_time(redis_client: RedisClient, tasks: Tasks) -> None:
    """A call that deletes fewer than it may is the last one."""
    tasks.put(TaskState.COMPLETED, *"abcde", completed_at=NOW.seconds - 60, retention=60)
    perform = BlockingPerformer(redis_client)
    assert 5 == perform(delete_expired_completed("default", batch=2, now=NOW))
    assert 3 == len(perform.calls)


def test_h15_w23_without_a_time_redis_tells_when_retention_ends(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME."""
    tasks.put(TaskState.COMPLETED, "past", score=61, completed_at=1, retention=60)
    tasks.put(TaskState.COMPLETED, "future", completed_at=NOW.seconds - 60, retention=60)
    assert 1 == perform(delete_expired_completed("default", batch=100))
    assert ["future"] == tasks.ids("completed")


@pytest.mark.usefixtures("damage_allowed")  # all have the message of one
def test_w11_eight_thousand_tasks_of_one_second_are_deleted(redis_client: RedisClient, tasks: Tasks) -> None:
    """No call takes more than 1,000, whatever batch is asked for."""
    redis_client.zadd(tasks.keys.completed, {f"{number}": 1 for number in range(8_000)})
    perform = BlockingPerformer(redis_client)
    assert 8_000 == perform(delete_expired_completed("default", batch=10_000, now=NOW))
    assert 9 == len(perform.calls)


@pytest.mark.parametrize(
    ("score", "due"),
    [(10.0**19, 10**19), (NOW.seconds + 0.5, NOW.seconds + 1), (float("inf"), None)],
)
def test_h13_a_score_that_is_not_a_second_does_not_stop_the_forwarder(
    perform: Perform, tasks: Tasks, score: float, due: int | None
) -> None:
    """Redis writes it with a point or an exponent; Go makes one of `time.Unix(math.MaxInt64, 0)`."""
    tasks.put(TaskState.SCHEDULED, "odd", score=score)  # type: ignore[arg-type]
    tasks.put(TaskState.RETRY, "a", score=NOW.seconds)
    assert Forwarded(1, due, NOW) == forwarded(perform)
    assert ["a"] == tasks.ids("pending")
    tasks.client.flushdb()  # it is not sound


@sources
def test_h05_a_forwarded_task_has_no_attempt_token(perform: Perform, tasks: Tasks, source: TaskState) -> None:
    """Go's recoverer leaves the token of an attempt of ours: a Go worker would be taken for that attempt."""
    tasks.put(source, "a", extra={"x:attempt": "server/1"})
    tasks.put(source, "b", extra={"x:attempt": "server/1"}, group="g")
    forwarded(perform)
    assert b"" == tasks.fields("a").get("x:attempt", b"") == tasks.fields("b").get("x:attempt", b"")
