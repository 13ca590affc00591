from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.settle import RetryTask, settle_retry
from tests.contract.settling import (
    EXPIRES_AT,
    RETENTION,
    archive,
    complete,
    completed_bytes,
    done,
    failed_bytes,
    requeue,
    retry,
)
from tests.factories import NOW, PENDING_SINCE, Tasks, claim
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient

LOCK = "asynq:{default}:unique:email:deliver:99914b932bd37a50b983c5e7c90ae93b"
finishing = pytest.mark.parametrize("finish", [done, complete])
clearing = pytest.mark.parametrize("settle", [complete, retry, archive])


def test_a_done_task_is_gone(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls DEL."""
    tasks.active("a", "b")
    perform(done([claim("a"), claim("b")]))
    assert [] == redis_client.keys("*:t:*")


def test_a_completed_task_is_kept_for_its_retention(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET or ZADD."""
    tasks.active("a", retention=RETENTION)
    perform(complete([claim("a")]))
    assert {"msg": completed_bytes("a"), "state": b"completed"} == tasks.fields("a")
    assert {"a": EXPIRES_AT} == tasks.scores("completed")


@pytest.mark.parametrize(("result", "expected"), [(None, b"early"), (b"late", b"late"), (b"", b"")])
def test_a_result_is_written_when_there_is_one(
    perform: Perform, tasks: Tasks, result: bytes | None, expected: bytes
) -> None:
    """Fails if the script no longer calls HSET.

    None keeps what the handler wrote while it ran, empty bytes are a result.
    """
    tasks.active("a", extra={"result": b"early"})
    perform(complete([claim("a")], result=result))
    assert expected == tasks.fields("a")["result"]


@finishing
def test_a_finished_task_releases_its_lock(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, finish: Any
) -> None:
    """Fails if the script no longer deletes the lock."""
    tasks.active("a", unique_key=LOCK)
    redis_client.hdel(tasks.keys.task("a"), "unique_key")
    perform(finish([claim("a")], unique_key=LOCK))
    assert 0 == redis_client.exists(LOCK)
    redis_client.delete(tasks.keys.task("a"), tasks.keys.completed)


@finishing
def test_a_lock_of_another_task_stays(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, finish: Any
) -> None:
    """Fails if the script no longer calls GET: ours had expired, and the next task has it now."""
    tasks.active("a")
    redis_client.set(LOCK, "b", ex=60)
    perform(finish([claim("a")], unique_key=LOCK))
    assert b"b" == redis_client.get(LOCK)


@finishing
def test_finished_tasks_count_as_processed(perform: Perform, tasks: Tasks, finish: Any) -> None:
    """One call counts once for all."""
    tasks.active("a", "b", "c")
    perform(finish([claim("a"), claim("b")]))
    perform(finish([claim("c")]))
    assert {"processed": 3, "processed_today": 3} == tasks.counts()


def test_a_retried_task_waits_for_its_time(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET or ZADD."""
    tasks.active("a")
    perform(retry([claim("a")], trace=b"Traceback"))
    assert {"msg": failed_bytes("a"), "state": b"retry", "x:trace": b"Traceback"} == tasks.fields("a")
    assert {"a": NOW.seconds + 90} == tasks.scores("retry")


def test_failures_among_retried_tasks_are_counted(perform: Perform, tasks: Tasks) -> None:
    """A task that was only sent away counts nowhere."""
    tasks.active("a", "b", "c")
    decisions = [
        RetryTask(claim(task_id), failed_bytes(task_id), NOW.seconds + 90, is_failure, b"")
        for task_id, is_failure in (("a", True), ("b", False), ("c", True))
    ]
    perform(settle_retry("default", decisions, now=NOW))
    assert {"processed": 2, "processed_today": 2, "failed": 2, "failed_today": 2} == tasks.counts()


def test_without_a_failure_nothing_is_counted(perform: Perform, tasks: Tasks) -> None:
    """A success does not create the counter of failures."""
    tasks.active("a")
    perform(retry([claim("a")], is_failure=False))
    assert {} == tasks.counts()


def test_an_archived_task_is_kept_and_counted_as_failed(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET or ZADD."""
    tasks.active("a", "b")
    assert 0 == perform(archive([claim("a"), claim("b")], trace=b"Traceback")).trimmed
    assert {"msg": failed_bytes("a"), "state": b"archived", "x:trace": b"Traceback"} == tasks.fields("a")
    assert {"a": NOW.ceiling, "b": NOW.ceiling} == tasks.scores("archived")
    assert {"processed": 2, "processed_today": 2, "failed": 2, "failed_today": 2} == tasks.counts()


@pytest.mark.parametrize("settle", [retry, archive])
def test_the_lock_of_a_failed_task_stays(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Any
) -> None:
    """As with Asynq: the task is not finished, or can be run again by hand."""
    tasks.active("a", unique_key=LOCK)
    perform(settle([claim("a")]))
    assert b"a" == redis_client.get(LOCK)
    redis_client.delete(tasks.keys.task("a"), tasks.keys.retry, tasks.keys.archived)


@clearing
def test_h06_an_attempt_that_ended_clears_token_and_crashes(
    perform: Perform, tasks: Tasks, settle: Any
) -> None:
    """Fails if the script no longer calls HDEL: only crashes in a row count."""
    tasks.active("a", crashes=2)
    perform(settle([claim("a")]))
    assert {"msg", "state"} == tasks.fields("a").keys()


@pytest.mark.parametrize("settle", [retry, archive])
def test_a_failure_without_a_traceback_keeps_no_older_one(
    perform: Perform, tasks: Tasks, settle: Any
) -> None:
    """It would be taken for that of the last failure."""
    tasks.active("a", extra={"x:trace": b"old"})
    perform(settle([claim("a")]))
    assert "x:trace" not in tasks.fields("a")


def test_requeued_tasks_come_first_in_the_order_given(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls RPUSH or pushes at the wrong end."""
    tasks.pending("waiting")
    tasks.active("a", "b", "c")
    perform(requeue([claim("a"), claim("b"), claim("c")]))
    assert ["a", "b", "c", "waiting"] == tasks.ids("pending")


def test_thousands_of_requeued_tasks_keep_their_order(redis_client: RedisClient, tasks: Tasks) -> None:
    """Calls of one plan do not turn it round."""
    ids = [f"{number}" for number in range(1500)]
    tasks.active(*ids)
    BlockingPerformer(redis_client)(requeue([claim(task_id) for task_id in ids]))
    assert ids == tasks.ids("pending")


def test_h23_w13_a_requeued_task_is_pending_since_now(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET or HDEL. Asynq writes no time, so latency reads 0."""
    tasks.active("a", crashes=1, extra={"result": b"half"})
    before = tasks.fields("a")
    perform(requeue([claim("a")]))
    expected = before | {"state": b"pending", "pending_since": PENDING_SINCE}
    del expected["x:attempt"]
    assert expected == tasks.fields("a")


def test_nothing_is_counted_for_a_requeued_task(perform: Perform, tasks: Tasks) -> None:
    """It has not been processed."""
    tasks.active("a")
    perform(requeue([claim("a")]))
    assert {} == tasks.counts()


def test_large_messages_are_sent_in_several_calls(redis_client: RedisClient, tasks: Tasks) -> None:
    """About 4 MB a call."""
    tasks.active("a", "b", "c")
    perform = BlockingPerformer(redis_client)
    decisions = [
        RetryTask(claim(task_id), failed_bytes(task_id), NOW.seconds + 90, True, b"x" * 1_500_000)
        for task_id in ("a", "b", "c")
    ]
    perform(settle_retry("default", decisions, now=NOW))
    assert 2 == len(perform.calls)
    assert {"a", "b", "c"} == set(tasks.ids("retry"))
