from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._wire.messages import decode_task_message, encode_task_message
from pyasynq.errors import TaskIDConflictError
from pyasynq.task import TaskState
from tests.contract.enqueueing import composed, enqueue, statuses
from tests.factories import NOW, PENDING_SINCE, Tasks, registered
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient

BY_RULES = {"unique": 60, "on_duplicate": "ignore"}


def test_tasks_join_the_end_of_the_queue_in_their_order(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls LPUSH or pushes at the wrong end."""
    tasks.pending("first")
    assert ["enqueued", "enqueued"] == statuses(enqueue(perform, composed("a"), composed("b")))
    assert ["first", "a", "b"] == tasks.ids("pending")


def test_a_pending_task_is_a_hash_of_message_state_and_time(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET; a plain task has no lock and none of our own fields."""
    task = composed("a")
    enqueue(perform, task)
    assert {"msg": task.encoded, "state": b"pending", "pending_since": PENDING_SINCE} == tasks.fields("a")


def test_microseconds_are_padded_in_pending_since(perform: Perform, tasks: Tasks) -> None:
    """7 microseconds after the second are 000007000 nanoseconds."""
    [run] = split_runs([composed("a")])
    perform(registered(enqueue_run(run, now=NOW._replace(microseconds=7)), run.queue))
    assert b"2000000000000007000" == tasks.fields("a")["pending_since"]


def test_without_a_time_redis_tells_it(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME.

    The time written lies between before and after the call on this host.
    """
    [run] = split_runs([composed("a")])
    before = time.time_ns()
    perform(registered(enqueue_run(run, now=None), run.queue))
    assert before // 1000 <= int(tasks.fields("a")["pending_since"]) // 1000 <= time.time_ns() // 1000


@pytest.mark.parametrize("state", [state for state in TaskState if state is not TaskState.AGGREGATING])
def test_an_id_that_exists_in_any_state_is_a_conflict(
    perform: Perform, tasks: Tasks, state: TaskState
) -> None:
    """Fails if the script no longer calls EXISTS; other tasks are enqueued, the existing one is unchanged."""
    if state is TaskState.ACTIVE:
        tasks.active("b")
    else:
        tasks.put(state, "b", score=NOW.seconds + 60, retention=60, completed_at=NOW.seconds)
    before = tasks.fields("b")
    results = enqueue(perform, composed("a"), composed("b", b"other"), composed("c"))
    assert ["enqueued", "conflict", "enqueued"] == statuses(results)
    assert isinstance(results[1].error, TaskIDConflictError)
    assert before == tasks.fields("b")
    assert {"a", "c"} <= set(tasks.ids("pending"))


def test_an_id_given_twice_in_one_call_is_enqueued_once(perform: Perform, tasks: Tasks) -> None:
    """The second one finds the first one."""
    assert ["enqueued", "conflict"] == statuses(enqueue(perform, composed("a", b"1"), composed("a", b"2")))
    assert ["a"] == tasks.ids("pending")


def test_when_all_are_refused_nothing_is_pushed(perform: Perform, tasks: Tasks) -> None:
    """An LPUSH without ids would be an error."""
    tasks.pending("a")
    assert ["conflict"] == statuses(enqueue(perform, composed("a", b"other")))
    assert ["a"] == tasks.ids("pending")


def test_w29_each_task_has_its_own_result_and_its_headers(perform: Perform, tasks: Tasks) -> None:
    """Asynq's batch reports conflicts as success and drops header options."""
    tasks.pending("b")
    results = enqueue(perform, composed("a", headers={"k": "v"}), composed("b", b"other"))
    assert [("a", True), ("b", False)] == [(result.task_id, bool(result)) for result in results]
    assert b"\n\x01k\x12\x01v" in tasks.fields("a")["msg"]


def test_w25_a_task_stored_before_the_reply_was_lost_is_enqueued(
    redis_client: RedisClient, tasks: Tasks, perform: Perform
) -> None:
    """Fails if the script no longer reads the stored message (HGET).

    An id that another task has stays a conflict.
    """
    tasks.pending("b")
    results = enqueue(BlockingPerformer(redis_client, replay=True), composed("a"), composed("b", b"other"))
    assert ["enqueued", "conflict"] == statuses(results)
    assert ["b", "a"] == tasks.ids("pending")
    assert ["conflict"] == statuses(enqueue(perform, composed("a"))), (
        "without a replay an equal message conflicts"
    )


@pytest.mark.parametrize("options", [{}, {"unique": 60}, {"process_in": 9}, {"group": "g"}, BY_RULES])
def test_w25_a_task_that_has_been_tried_before_the_replay_is_enqueued(
    redis_client: RedisClient, tasks: Tasks, options: dict[str, Any]
) -> None:
    """Its message tells of the retry by then; one that differs in anything else stays a conflict."""
    item, other = (composed("a", payload, headers={"k": "v"}, **options) for payload in (b"1", b"2"))
    enqueue(BlockingPerformer(redis_client), item)
    message = decode_task_message(item.encoded)
    message.retried, message.error_msg, message.last_failed_at, message.completed_at = 1, "no", 7, 300
    redis_client.hset(tasks.keys.task("a"), "msg", encode_task_message(message))
    replaying = BlockingPerformer(redis_client, replay=True)
    assert ["enqueued"] == statuses(enqueue(replaying, item))
    assert ["enqueued"] != statuses(enqueue(replaying, other))


def test_a_thousand_tasks_go_with_one_call(redis_client: RedisClient, tasks: Tasks) -> None:
    """The largest run stays within Lua's limits."""
    perform = BlockingPerformer(redis_client)
    results = enqueue(perform, *(composed(f"{number}") for number in range(1000)))
    assert all(results)
    assert 2 == len(perform.calls)
    assert [str(number) for number in range(1000)] == tasks.ids("pending")
