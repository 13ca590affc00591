"""Requests to cancel: written down for one attempt, then called out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.cancellation import CancelRequest, read_requests, refresh_results, request_cancelation
from pyasynq._redis.plan import CommandCall, Replay
from pyasynq.errors import InvalidOptionError, QueueNotFoundError, TaskNotFoundError
from pyasynq.info import CancelResult, CancelStatus
from pyasynq.task import TaskState
from tests.contract.test_inspect_actions import put
from tests.factories import NOW, TOKEN, Tasks
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient


def cancel(
    task_id: str = "a", queue: str | None = None, outcome: str = "retry", *, after: int = 0
) -> Plan[list[CancelResult]]:
    """Ask for a cancel, some seconds later."""
    return request_cancelation(task_id, queue, outcome, now=NOW.plus(after))


def published(perform: BlockingPerformer) -> list[Any]:
    """Return what was called out, and check that it was the last call."""
    calls = [call.command for call in perform.calls if isinstance(call, CommandCall)]
    found = [command for command in calls if command[0] == "PUBLISH"]
    assert not found or perform.calls[-1] == CommandCall(found[-1], None, Replay.SAFE)
    return found


@pytest.mark.parametrize("queue", [None, "default"])
@pytest.mark.parametrize("outcome", ["retry", "archive", "delete"])
def test_h16_a_request_is_written_down_for_the_attempt_that_runs(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, queue: str | None, outcome: str
) -> None:
    """The request is kept for a minute, so a worker that missed the message finds it."""
    tasks.active("a", "b")
    found = perform(cancel("a", queue, outcome))
    assert [CancelResult("default", "a", CancelStatus.REQUESTED, TaskState.ACTIVE)] == found
    assert {"a": CancelRequest(NOW.seconds, outcome, TOKEN)} == perform(read_requests("default", ["b", "a"]))
    assert 55 < redis_client.ttl(tasks.keys.cancellations) <= 60


def test_h16_a_request_is_written_before_it_is_called_out(redis_client: RedisClient, tasks: Tasks) -> None:
    """A worker that hears the call finds the outcome that was asked for. The call is Asynq's: the bare id."""
    tasks.active("a")
    perform = BlockingPerformer(redis_client)
    perform(cancel())
    assert [("PUBLISH", "asynq:cancel", "a")] == published(perform)


def test_h16_without_a_queue_all_queues_are_looked_through(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The same id may be in several; an answer for each."""
    tasks.active("a")
    Tasks(redis_client, "low").pending("a")
    Tasks(redis_client, "other").pending("b")
    answers = [(result.queue, result.status, result.state) for result in perform(cancel())]
    assert [
        ("default", CancelStatus.REQUESTED, TaskState.ACTIVE),
        ("low", CancelStatus.NOT_ACTIVE, TaskState.PENDING),
    ] == answers


@pytest.mark.parametrize("state", [state for state in TaskState if state is not TaskState.ACTIVE])
def test_h16_a_task_that_is_not_active_is_answered_by_its_state(
    redis_client: RedisClient, tasks: Tasks, state: TaskState
) -> None:
    """Nothing is written or called out: its next attempt shall not be hit."""
    put(tasks, state, "a")
    perform = BlockingPerformer(redis_client)
    assert [CancelResult("default", "a", CancelStatus.NOT_ACTIVE, state)] == perform(cancel())
    assert ([], False) == (published(perform), bool(redis_client.exists(tasks.keys.cancellations)))


def test_h16_a_task_of_go_is_called_for_and_no_more(redis_client: RedisClient, tasks: Tasks) -> None:
    """Go's worker names no attempt and acknowledges nothing."""
    tasks.active("a", token="")
    perform = BlockingPerformer(redis_client)
    assert [CancelResult("default", "a", CancelStatus.SENT, TaskState.ACTIVE)] == perform(cancel())
    assert 1 == len(published(perform))
    assert not redis_client.exists(tasks.keys.cancellations)


def test_h16_an_unknown_id_is_published_as_in_asynq(redis_client: RedisClient) -> None:
    """Asynq checks nothing."""
    perform = BlockingPerformer(redis_client)
    assert [] == perform(cancel())
    assert 1 == len(published(perform))


def test_a_named_queue_must_have_the_task(perform: Perform, tasks: Tasks) -> None:
    """Else the name was wrong."""
    tasks.pending("b")
    with pytest.raises(TaskNotFoundError):
        perform(cancel("a", "default"))
    with pytest.raises(QueueNotFoundError):
        perform(cancel("a", "nope"))


@pytest.mark.parametrize("remains", [{"state": "active", "x:attempt": "t"}, {"msg": "m"}])
@pytest.mark.usefixtures("damage_allowed")
def test_what_is_left_of_a_hash_is_not_cancelled(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, remains: dict[str, str]
) -> None:
    """There is no task."""
    tasks.pending("b")
    redis_client.hset(tasks.keys.task("a"), mapping=remains)
    assert [] == perform(cancel())


def test_what_cannot_be_is_refused(perform: Perform) -> None:
    """The error names it."""
    with pytest.raises(InvalidOptionError, match=r"^outcome=<str>"):
        perform(cancel(outcome="kill"))
    with pytest.raises(InvalidOptionError, match=r"^task_id="):
        perform(cancel(" "))


def test_h16_a_second_request_replaces_the_first(perform: Perform, tasks: Tasks) -> None:
    """The last request decides."""
    tasks.active("a")
    perform(cancel(outcome="retry"))
    perform(cancel(outcome="delete", after=5))
    assert {"a": CancelRequest(NOW.seconds + 5, "delete", TOKEN)} == perform(read_requests("default", ["a"]))


def test_old_requests_are_cleared_away(perform: Perform, tasks: Tasks) -> None:
    """Under a steady stream the hash as a whole never expires."""
    tasks.active("a", "b")
    perform(cancel("a"))
    perform(cancel("b", after=59))
    assert {"a", "b"} == perform(read_requests("default", ["a", "b"])).keys()
    perform(cancel("b", after=60))
    assert {"b"} == perform(read_requests("default", ["a", "b"])).keys()


def test_without_ids_redis_is_not_asked(redis_client: RedisClient) -> None:
    """There is nothing to ask for."""
    perform = BlockingPerformer(redis_client)
    assert ({}, []) == (perform(read_requests("default", [])), perform.calls)


@pytest.mark.parametrize("token", [TOKEN, ""])
def test_an_attempt_has_ended_when_the_task_is_elsewhere(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, token: str
) -> None:
    """Gone, in another state, or taken again: a task that was not running is not checked again."""
    tasks.active("a", "b", "c", "d", token=token)
    tasks.pending("e")
    asked = [result for task_id in "abcde" for result in perform(cancel(task_id))]
    assert asked == perform(refresh_results(asked))
    redis_client.delete(tasks.keys.task("a"))
    redis_client.lrem(tasks.keys.active, 0, "a")
    redis_client.zrem(tasks.keys.lease, "a")
    redis_client.hset(tasks.keys.task("b"), "x:attempt", "other/1")
    redis_client.lrem(tasks.keys.active, 0, "c")
    redis_client.zrem(tasks.keys.lease, "c")
    redis_client.delete(tasks.keys.task("c"))
    tasks.put(TaskState.ARCHIVED, "c")
    redis_client.delete(tasks.keys.task("e"))
    redis_client.delete(tasks.keys.pending)
    ended = CancelStatus.ENDED
    status = asked[3].status
    assert [
        (ended, None),
        (ended, TaskState.ACTIVE),
        (ended, TaskState.ARCHIVED),
        (status, TaskState.ACTIVE),
        (CancelStatus.NOT_ACTIVE, TaskState.PENDING),
    ] == [(result.status, result.state) for result in perform(refresh_results(asked))]
