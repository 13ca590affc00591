"""Outcomes and dequeues whose calls fail, on a real Redis."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._redis.driver import AsyncDriver
from pyasynq.context import context
from pyasynq.errors import RedisUnavailableError, ReplyLostError
from pyasynq.events import (
    LeaseLost,
    Outcome,
    SettleDelayed,
)
from pyasynq.task import Task
from tests.fix_engine import QUICK, Gate, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import redis

    from tests.factories import Tasks
    from tests.fix_engine import Running


class BreakingDriver(AsyncDriver):
    """A driver whose next batches fail as told: before anything was sent, or after."""

    breaks: list[str]

    async def run_unshielded(self, plans: Any) -> Any:
        if not self.breaks or not any(_name(plan) == self.breaks[0].partition(":")[0] for plan in plans):
            return await super().run_unshielded(plans)
        when = self.breaks.pop(0).partition(":")[2]
        error: Exception = RedisUnavailableError("test", "cut")
        if when == "after":
            await super().run_unshielded(plans)
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
    settings = dataclasses.replace(QUICK, syncer_interval=1_000, lease=2, look_interval=1_000)
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
    """The syncer has a fixed rhythm; Asynq's starts again with each request."""

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
    """The token of the call finds them, and no crash is counted."""
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
