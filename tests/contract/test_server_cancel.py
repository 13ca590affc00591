"""Requests to cancel reach the attempt that they are for, heard or not, and decide about its task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from pyasynq._broker.cancellation import request_cancelation
from pyasynq._broker.inspecting.queues import pause_queue
from pyasynq._redis.plan import CommandCall
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.events import Outcome, RoundFailed
from pyasynq.info import CancelStatus
from pyasynq.inspector import Inspector
from pyasynq.task import TaskState
from tests.contract.test_server_leases import subscribed
from tests.factories import NOW
from tests.fix_broker import BlockingPerformer
from tests.fix_engine import Gate, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import redis

    from tests.factories import Tasks

OUTCOMES = [
    ("retry", Outcome.RETRIED, TaskState.RETRY),
    ("archive", Outcome.ARCHIVED, TaskState.ARCHIVED),
    ("delete", Outcome.REVOKED, None),
]


class Silent(BlockingPerformer):
    """Writes requests down, and calls nothing out."""

    def _send(self, call: Any) -> Any:
        is_calling = isinstance(call, CommandCall) and call.command[0] == "PUBLISH"
        return 0 if is_calling else super()._send(call)


@pytest.mark.parametrize(("choice", "outcome", "state"), OUTCOMES)
@run_async
async def test_h16_a_call_that_was_missed_is_found_with_the_next_renewal(
    redis_url: str,
    redis_client: redis.Redis,
    tasks: Tasks,
    choice: str,
    outcome: Outcome,
    state: TaskState | None,
) -> None:
    """Asynq's worker would run the task to its end."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        Silent(redis_client)(request_cancelation("a", "default", choice, now=None))
        assert outcome is (await running.finished("a")).outcome
        await running.settled()
    assert gate.cancelled
    found = tasks.fields("a").get("state")
    assert (state.value.encode() if state else None) == found


@pytest.mark.parametrize(("choice", "outcome", "state"), OUTCOMES)
@run_async
async def test_h16_w18_a_received_cancel_call_reads_the_outcome_asked_for(
    redis_url: str,
    tasks: Tasks,
    choice: Literal["retry", "archive", "delete"],
    outcome: Outcome,
    state: TaskState | None,
) -> None:
    """The call itself is Asynq's and says nothing of it; waiting for the settle acknowledges it."""
    gate = Gate()
    async with serving(redis_url, gate) as running, Inspector(redis_url) as inspector:
        await subscribed(running)
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        [result] = await inspector.cancel("a", outcome=choice, wait=10)
        assert (CancelStatus.ENDED, state) == (result.status, result.state)
        assert outcome is (await running.finished("a")).outcome
    assert gate.cancelled


@run_async
async def test_h16_a_request_for_another_attempt_is_not_obeyed(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """The attempt that it was for has ended; this one came after."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await subscribed(running)
        await running.client.enqueue("t", task_id="a", retention=60)
        await gate.begun.wait()
        now = int(redis_client.time()[0])
        redis_client.hset(queue_keys("default").cancellations, "a", f"{now} delete other/1")
        redis_client.publish("asynq:cancel", "a")
        await running.next_round("heartbeater")
        await running.next_round("heartbeater")
        gate.open.set()
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()
    assert ["a"] == tasks.ids("completed")


@run_async
async def test_h16_an_old_request_does_not_hide_a_call_of_go(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """Go's inspector writes nothing down; its call means a retry."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await subscribed(running)
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        then = int(redis_client.time()[0]) - 10
        redis_client.hset(queue_keys("default").cancellations, "a", f"{then} delete other/1")
        redis_client.publish("asynq:cancel", "a")
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        await running.settled()
    assert "context canceled" == decode_task_message(tasks.fields("a")["msg"]).error_msg


@run_async
async def test_h16_a_call_whose_request_cannot_be_read_is_left_to_the_heartbeat(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """A retry would be wrong for somebody who asked for a deletion; both services say what is wrong."""
    gate = Gate()
    key = queue_keys("default").cancellations
    async with serving(redis_url, gate) as running:
        await subscribed(running)
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        redis_client.set(key, "no hash")
        redis_client.publish("asynq:cancel", "a")
        await running.recorder.wait(RoundFailed, lambda event: event.service == "subscriber")
        await running.recorder.wait(RoundFailed, lambda event: event.service == "heartbeater")
        assert not gate.cancelled
        redis_client.delete(key)
        Silent(redis_client)(request_cancelation("a", "default", "delete", now=None))
        assert Outcome.REVOKED is (await running.finished("a")).outcome


@run_async
async def test_a_queue_whose_pause_ends_goes_on(redis_url: str, redis_client: redis.Redis) -> None:
    """The server is woken by the end of the pause, or looks for itself."""
    gate = Gate()
    gate.open.set()
    BlockingPerformer(redis_client)(pause_queue("default", 1, now=NOW))
    async with serving(redis_url, gate) as running:
        await running.client.enqueue("t", task_id="a")
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
