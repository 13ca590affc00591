"""The head of an ordered queue goes back to the front, no matter which call puts it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.delayed import Forwarded, forward
from pyasynq._broker.inspecting.actions import Moved, run_tasks
from pyasynq._broker.leases import RecoverTask, recover
from pyasynq._broker.order import retry_in_order
from pyasynq._broker.settle import RequeueTask, RetryTask, settle_requeue
from pyasynq.task import TaskState
from tests.factories import LEASE_SCORE, NOW, TOKEN, Tasks, claim, message_bytes
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient


@pytest.fixture(autouse=True)
def ordered(tasks: Tasks) -> None:
    """The queue `default` is ordered."""
    tasks.client.hset(tasks.keys.limits, "ordered", 1)


def failed(task_id: str, retry_at: int) -> RetryTask:
    """Return the decision that retries a task after its first failure."""
    return RetryTask(claim(task_id), message_bytes(task_id, retried=1), retry_at, True, b"")


def test_a_task_that_was_tried_is_forwarded_to_the_front(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls RPUSH: it is still the head, and others became pending after it."""
    tasks.pending("second", "third")
    tasks.put(TaskState.RETRY, "head", score=NOW.seconds)
    assert Forwarded(1, None, NOW) == perform(forward("default", now=NOW))
    assert ["head", "second", "third"] == tasks.ids("pending")


def test_several_are_forwarded_in_the_order_in_which_they_were_due(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls ZRANGE. A queue that was made ordered late may have several."""
    tasks.pending("last")
    for task_id, seconds in (("second", 8), ("first", 9), ("third", 7)):
        tasks.put(TaskState.RETRY, task_id, score=NOW.seconds - seconds)
    assert 3 == perform(forward("default", now=NOW, limit=2)).moved
    assert ["first", "second", "third", "last"] == tasks.ids("pending")


def test_the_head_waits_for_its_time(perform: Perform, tasks: Tasks) -> None:
    """The order does not shorten a delay."""
    tasks.pending("second")
    tasks.put(TaskState.RETRY, "head", score=NOW.seconds + 1)
    assert Forwarded(0, NOW.seconds + 1, NOW) == perform(forward("default", now=NOW))
    assert ["head"] == tasks.ids("retry")


def test_a_scheduled_task_becomes_pending_when_it_is_due(perform: Perform, tasks: Tasks) -> None:
    """It has not been the head, so it joins the end."""
    tasks.pending("first")
    tasks.put(TaskState.SCHEDULED, "late", score=NOW.seconds)
    perform(forward("default", now=NOW))
    assert ["first", "late"] == tasks.ids("pending")


def test_a_head_with_a_group_stays_the_head(perform: Perform, tasks: Tasks) -> None:
    """It was run out of its group by hand; back in the group, it would let the next ones pass."""
    tasks.pending("second")
    tasks.put(TaskState.RETRY, "head", score=NOW.seconds, group="g")
    perform(forward("default", now=NOW))
    assert ["head", "second"] == tasks.ids("pending")
    assert set() == tasks.groups()


@pytest.mark.parametrize("field", [None, "0"])
def test_a_queue_that_is_not_ordered_takes_it_at_the_end(
    perform: Perform, tasks: Tasks, field: str | None
) -> None:
    """As Asynq does: also where an inspector has ended the order."""
    tasks.client.delete(tasks.keys.limits)
    if field is not None:
        tasks.client.hset(tasks.keys.limits, "ordered", field)
    tasks.pending("second")
    tasks.put(TaskState.RETRY, "tried", score=NOW.seconds)
    perform(forward("default", now=NOW))
    assert ["second", "tried"] == tasks.ids("pending")
    tasks.put(TaskState.RETRY, "again", score=NOW.seconds)
    perform(run_tasks("default", ["again"], now=NOW))
    assert ["second", "tried", "again"] == tasks.ids("pending")


def test_a_head_that_is_run_by_hand_goes_to_the_front(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls RPUSH or HGET: the one that was named first is taken first."""
    tasks.pending("third")
    tasks.put(TaskState.RETRY, "first", "second", score=NOW.seconds + 60)
    assert Moved(2, {}) == perform(run_tasks("default", ["first", "second"], now=NOW))
    assert ["first", "second", "third"] == tasks.ids("pending")


@pytest.mark.parametrize("state", [TaskState.SCHEDULED, TaskState.ARCHIVED])
def test_another_task_that_is_run_by_hand_joins_the_end(
    perform: Perform, tasks: Tasks, state: TaskState
) -> None:
    """It becomes pending now; the head keeps its place even in the same call."""
    tasks.pending("second")
    tasks.put(state, "other")
    tasks.put(TaskState.RETRY, "head")
    assert Moved(2, {}) == perform(run_tasks("default", ["other", "head"], now=NOW))
    assert ["head", "second", "other"] == tasks.ids("pending")


def test_a_run_that_is_sent_again_is_counted_once(redis_client: RedisClient, tasks: Tasks) -> None:
    """The first run has put the head in front."""
    tasks.pending("second")
    tasks.put(TaskState.RETRY, "head")
    perform = BlockingPerformer(redis_client, replay=True)
    assert Moved(1, {}) == perform(run_tasks("default", ["head"], now=NOW))
    assert ["head", "second"] == tasks.ids("pending")


def test_a_recovered_and_a_requeued_head_come_back_in_front(perform: Perform, tasks: Tasks) -> None:
    """A task that is recovered or requeued goes to the front, as in a queue without order."""
    tasks.pending("second")
    tasks.active("head")
    perform(settle_requeue("default", [RequeueTask(claim("head"))], now=NOW))
    assert ["head", "second"] == tasks.ids("pending")
    tasks.client.flushdb()
    tasks.pending("second")
    tasks.active("head", lease=NOW.seconds - 10)
    perform(recover("default", [RecoverTask("head", TOKEN, NOW.seconds - 10)], now=NOW))
    assert ["head", "second"] == tasks.ids("pending")


def test_without_a_delay_a_failed_head_is_in_front_at_once(perform: Perform, tasks: Tasks) -> None:
    """Counted and rewritten as any failed task."""
    tasks.pending("second")
    tasks.active("head")
    tried = [failed("head", NOW.seconds)]
    assert frozenset() == perform(retry_in_order("default", tried, now=NOW, redis_now=NOW)).refused
    assert ["head", "second"] == tasks.ids("pending")
    assert message_bytes("head", retried=1) == tasks.fields("head")["msg"]
    assert {"processed": 1, "failed": 1, "processed_today": 1, "failed_today": 1} == tasks.counts()


def test_with_a_delay_it_waits_in_retry(redis_client: RedisClient, tasks: Tasks) -> None:
    """In one call, since there is nothing to forward."""
    tasks.active("head")
    perform = BlockingPerformer(redis_client)
    perform(retry_in_order("default", [failed("head", NOW.seconds + 1)], now=NOW, redis_now=NOW))
    assert {"head": NOW.seconds + 1} == tasks.scores("retry")
    assert 1 == len(perform.calls)


def test_a_lost_attempt_moves_nothing(perform: Perform, tasks: Tasks) -> None:
    """Somebody else has the head now."""
    tasks.active("head", token="other/1", lease=LEASE_SCORE)
    tried = [failed("head", NOW.seconds)]
    assert {"head"} == perform(retry_in_order("default", tried, now=NOW, redis_now=NOW)).refused
    assert ["head"] == tasks.ids("active")


def test_a_retry_that_is_sent_again_is_not_refused(redis_client: RedisClient, tasks: Tasks) -> None:
    """Each of its two calls knows what its first run did."""
    tasks.pending("second")
    tasks.active("head")
    perform = BlockingPerformer(redis_client, replay=True)
    tried = [failed("head", NOW.seconds)]
    assert frozenset() == perform(retry_in_order("default", tried, now=NOW, redis_now=NOW)).refused
    assert ["head", "second"] == tasks.ids("pending")
