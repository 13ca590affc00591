"""Leases on a real Redis: renewed, lost, stolen; settles that fail; cancel requests; shutdown."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.driver import AsyncDriver
from pyasynq._server.settings import EngineSettings
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.errors import RedisUnavailableError, ReplyLostError
from pyasynq.events import (
    AttemptAbandoned,
    AttemptOverdue,
    LeaseLost,
    LoopBlocked,
    Outcome,
    RoundFinished,
    SettleDelayed,
    TaskFinished,
    TaskStarted,
)
from pyasynq.task import Task
from tests.fix_engine import QUICK, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import redis

    from tests.factories import Tasks
    from tests.fix_engine import Running


class Gate:
    """A handler that waits until it is let go, and says whether it was cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.cancelled = False

    async def __call__(self, task: Task) -> None:
        del task
        self.begun.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def subscribed(running: Running) -> None:
    """Wait until cancel requests are heard."""
    engine = running.server._engine
    assert engine is not None
    subscriber: Any = next(service for service in engine._started if service.name == "subscriber")
    while not subscriber.subscribed:
        await running.next_round("deadlines")


@run_async
async def test_h05_a_stolen_token_cancels_the_handler_and_nothing_is_written(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """The renewal finds that another attempt has the task."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        redis_client.hset(tasks.keys.task("a"), "x:attempt", "other/1")
        assert Outcome.LET_GO is (await running.finished("a")).outcome
        await running.recorder.wait(LeaseLost)
        await running.settled()
    assert gate.cancelled
    assert b"other/1" == tasks.fields("a")["x:attempt"]
    assert ["a"] == tasks.ids("active")


@run_async
async def test_w16_a_task_that_was_taken_out_of_active_is_lost(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """A renewal that finds the task gone cancels the handler, where Asynq believes in its lease."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        redis_client.delete(tasks.keys.active, tasks.keys.lease, tasks.keys.task("a"))
        assert Outcome.LET_GO is (await running.finished("a")).outcome
    assert gate.cancelled


@run_async
async def test_w17_the_same_id_in_two_queues_is_two_attempts(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """Both are renewed, and a lost lease of one leaves the other alone."""
    gates = {"one": Gate(), "two": Gate()}

    async def handle(task: Task) -> None:
        await gates[context().queue](task)

    config = ServerConfig(queues={"one": 1, "two": 1})
    async with serving(redis_url, handle, config) as running:
        for queue in gates:
            await running.client.enqueue("t", task_id="a", queue=queue)
        for gate in gates.values():
            await gate.begun.wait()
        redis_client.hset(queue_keys("one").task("a"), "x:attempt", "other/1")
        await running.recorder.wait(TaskFinished, lambda event: event.queue == "one")
        assert gates["one"].cancelled
        gates["two"].open.set()
        done = await running.recorder.wait(TaskFinished, lambda event: event.queue == "two")
        assert Outcome.SUCCEEDED is done.outcome
        await running.settled()
    redis_client.delete(*redis_client.keys("asynq:{one}:*"))


@run_async
async def test_leases_are_renewed_while_a_handler_runs(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """A lease of 2 seconds lasts for 3."""
    gate = Gate()
    settings = dataclasses.replace(QUICK, lease=2, recoverer_interval=1_000)
    async with serving(redis_url, gate, settings=settings) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        first = tasks.scores("lease")["a"]
        while tasks.scores("lease")["a"] < first + 3:
            await running.next_round("heartbeater")
        gate.open.set()
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()
    assert [] == redis_client.lrange(tasks.keys.active, 0, -1)


@run_async
async def test_h26_a_blocked_loop_renews_and_is_reported_with_its_stack(redis_url: str, tasks: Tasks) -> None:
    """The heartbeat has a thread of its own."""
    leases: list[int] = []

    async def block_the_loop(task: Task) -> None:
        del task
        ends = time.monotonic() + 1.5
        while time.monotonic() < ends:
            leases.append(tasks.scores("lease")["a"])

    settings = dataclasses.replace(QUICK, watch_interval=0.05, loop_blocked_after=0.2)
    async with serving(redis_url, block_the_loop, settings=settings) as running:
        await running.client.enqueue("t", task_id="a")
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        blocked = await running.recorder.wait(LoopBlocked)
        await running.settled()
    assert "block_the_loop" in blocked.stack
    assert blocked.seconds >= 0.2
    assert max(leases) > min(leases)


@run_async
async def test_a_cancel_request_cancels_the_attempt_and_it_is_retried(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """As in Asynq: the message on the wire is the bare id."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await subscribed(running)
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        redis_client.publish("asynq:cancel", "unknown")
        redis_client.publish("asynq:cancel", "a")
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        await running.settled()
    assert gate.cancelled
    assert "context canceled" == decode_task_message(tasks.fields("a")["msg"]).error_msg


@run_async
async def test_h17_a_handler_that_swallows_its_cancellation_keeps_its_slot_and_is_reported(
    redis_url: str, tasks: Tasks
) -> None:
    """The outcome is the cause all the same, once the handler has ended."""
    swallowed, end = asyncio.Event(), asyncio.Event()

    async def handle(task: Task) -> None:
        if task.type == "other":
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
            await end.wait()

    settings = dataclasses.replace(QUICK, overdue_after=0.05)
    config = ServerConfig(concurrency=1, shutdown_timeout=5)
    async with serving(redis_url, handle, config, settings) as running:
        await running.client.enqueue("t", task_id="a", timeout=1)
        await swallowed.wait()
        await running.client.enqueue("other", task_id="b")
        overdue = await running.recorder.wait(AttemptOverdue)
        assert "a" == overdue.task_id
        assert [] == running.recorder.of(TaskFinished)
        end.set()
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        assert Outcome.SUCCEEDED is (await running.finished("b")).outcome
        await running.settled()
    assert "context deadline exceeded" == decode_task_message(tasks.fields("a")["msg"]).error_msg


@run_async
async def test_h17_a_thread_keeps_slot_and_lease_until_it_ends(redis_url: str, tasks: Tasks) -> None:
    """It is told, waited for, and its outcome is the time-out."""
    told, end = threading.Event(), threading.Event()

    def handle(task: Task) -> None:
        del task
        context().cancelled.wait()
        told.set()
        end.wait()

    settings = dataclasses.replace(QUICK, overdue_after=0.05)
    async with serving(redis_url, handle, settings=settings) as running:
        await running.client.enqueue("t", task_id="a", timeout=1)
        await running.recorder.wait(AttemptOverdue)
        assert told.wait(5)
        assert ["a"] == tasks.ids("active")
        assert ["a"] == tasks.ids("lease")
        end.set()
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        await running.settled()


class BreakingDriver(AsyncDriver):
    """A driver whose next batches fail as told: before anything was sent, or after."""

    breaks: list[str]

    async def run_batch(self, plans: Any) -> Any:
        if not self.breaks or not any(_name(plan) == self.breaks[0].partition(":")[0] for plan in plans):
            return await super().run_batch(plans)
        when = self.breaks.pop(0).partition(":")[2]
        error: Exception = RedisUnavailableError("test", "cut")
        if when == "after":
            await super().run_batch(plans)
            error = ReplyLostError("test", "cut")
        return [error for _ in plans]


def _name(plan: Any) -> str:
    return str(plan.__name__)


def break_calls(running: Running, *breaks: str) -> None:
    """Let the named plans fail, once each."""
    engine = running.server._engine
    assert engine is not None
    engine._driver.__class__ = BreakingDriver
    engine._driver.breaks = list(breaks)  # type: ignore[attr-defined]


@pytest.mark.parametrize("when", ["before", "after"])
@run_async
async def test_h01_w01_a_settle_that_fails_is_tried_again_and_nothing_runs_twice(
    redis_url: str, tasks: Tasks, when: str
) -> None:
    """Whether or not the first try took effect, the task ends once."""
    runs = []
    gate = Gate()

    async def handle(task: Task) -> None:
        runs.append(task)
        await gate(task)

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        break_calls(running, f"settle_done:{when}", f"settle_done:{when}")
        gate.open.set()
        assert 1 == (await running.recorder.wait(SettleDelayed)).tasks
        await running.settled()
        assert [] == running.recorder.of(LeaseLost)
    assert 1 == len(runs)
    assert {} == tasks.fields("a")


@run_async
async def test_h01_the_lease_of_a_task_whose_settle_is_outstanding_is_renewed(
    redis_url: str, tasks: Tasks
) -> None:
    """The heartbeat goes on until Redis has confirmed the outcome."""
    gate = Gate()
    settings = dataclasses.replace(QUICK, syncer_interval=1_000, lease=2, recoverer_interval=1_000)
    async with serving(redis_url, gate, settings=settings) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        break_calls(running, "settle_done:before")
        gate.open.set()
        await running.recorder.wait(SettleDelayed)
        first = tasks.scores("lease")["a"]
        while tasks.scores("lease")["a"] < first + 2:
            await running.next_round("heartbeater")
    # Shutdown drains what is outstanding.
    assert {} == tasks.fields("a")


@run_async
async def test_w20_outcomes_are_tried_again_although_new_ones_keep_coming(
    redis_url: str, tasks: Tasks
) -> None:
    """The syncer has a fixed rhythm, where Asynq's starts anew with each request."""

    async def handle(task: Task) -> None:
        del task

    async with serving(redis_url, handle) as running:
        break_calls(running, "settle_done:before")
        await running.client.enqueue("t", task_id="a")
        await running.recorder.wait(SettleDelayed)
        number = 0
        while tasks.fields("a"):
            number += 1
            await running.client.enqueue("t", task_id=f"more-{number}")
            await running.finished(f"more-{number}")
        await running.settled()


@run_async
async def test_h05_tasks_of_a_dequeue_whose_reply_was_lost_are_found_and_run(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """By the token of the call; no crash is counted."""
    crashes = []

    async def handle(task: Task) -> None:
        del task
        crashes.append(redis_client.hget(tasks.keys.task(context().task_id), "x:crashes"))

    async with serving(redis_url, handle) as running:
        await running.next_round("processor")
        break_calls(running, "dequeue:after")
        await running.client.enqueue_many([Task("t", task_id=str(number)) for number in range(3)])
        for number in range(3):
            assert Outcome.SUCCEEDED is (await running.finished(str(number))).outcome
        await running.settled()
    assert [None] * 3 == crashes
    assert [] == tasks.ids("active")


@run_async
async def test_tasks_that_do_not_finish_in_time_are_put_back_in_front_in_order(
    redis_url: str, tasks: Tasks
) -> None:
    """W13: with `pending_since`; the exit code says so."""
    cleaned = []

    async def handle(task: Task) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(task.type)

    config = ServerConfig(concurrency=2, shutdown_timeout=0, cancel_timeout=5)
    async with serving(redis_url, handle, config) as running:
        for task_id in "abc":
            await running.client.enqueue("t", task_id=task_id)
        for task_id in "ab":
            await running.recorder.wait(TaskStarted, lambda event, wanted=task_id: event.task_id == wanted)  # type: ignore[misc]
    assert 3 == running.server.exit_code
    assert ["a", "b", "c"] == tasks.ids("pending")
    assert "pending_since" in tasks.fields("a")
    assert 0 == decode_task_message(tasks.fields("a")["msg"]).retried
    assert 2 == len(cleaned)


@run_async
async def test_tasks_that_finish_during_the_shutdown_are_settled(redis_url: str, tasks: Tasks) -> None:
    """`shutdown_timeout` is for them; the exit code is 0."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        running.server.stop()
        asyncio.get_running_loop().call_soon(gate.open.set)
    assert 0 == running.server.exit_code
    assert {} == tasks.fields("a")


@run_async
async def test_a_thread_that_does_not_end_is_named_and_not_put_back(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """A server in somebody else's program cannot end the thread, so the task waits for its lease to lapse."""
    end = threading.Event()

    def handle(task: Task) -> None:
        del task
        end.wait()

    config = ServerConfig(shutdown_timeout=0, cancel_timeout=0)
    async with serving(redis_url, handle, config) as running:
        await running.client.enqueue("t", task_id="a")
        await running.recorder.wait(TaskStarted)
    await running.recorder.wait(AttemptAbandoned)
    assert ["a"] == tasks.ids("active")
    end.set()
    engine = running.server._engine
    assert engine is not None
    assert await engine._runner.wait_until_idle(5)


@run_async
async def test_a_stopped_server_takes_nothing_more(redis_url: str, tasks: Tasks) -> None:
    """TSTP's part: what runs goes on, what comes stays."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        running.server.stop()
        await running.client.enqueue("t", task_id="b")
        gate.open.set()
        await running.finished("a")
        await running.settled()
        assert "stopped" == running.server.state
    assert ["b"] == tasks.ids("pending")


def test_recorded_events_have_names() -> None:
    """The helper of these tests knows all event classes."""
    from tests.fix_engine import EVENT_CLASSES  # noqa: PLC0415 - only this test looks at it

    assert {TaskFinished, RoundFinished, LeaseLost} <= set(EVENT_CLASSES)
    assert EngineSettings().lease == 30
