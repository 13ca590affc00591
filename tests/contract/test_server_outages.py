"""A server whose Redis, or the way to it, comes and goes."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.supervisor.vitals import Vitals
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.events import (
    HeartbeatWritten,
    Outcome,
    QueuesAsked,
    RoundFailed,
    SettleDelayed,
    TaskFinished,
    TaskRecovered,
)
from pyasynq.task import Task
from tests.factories import Tasks
from tests.fix_engine import QUICK, do_nothing, serving
from tests.fix_proxy import Cut, Proxy
from tests.invariants import check_invariants
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.fix_drivers import OwnServer

PERSISTENT = ("--appendonly", "yes", "--appendfsync", "always")
SLOW_LEASES = dataclasses.replace(QUICK, syncer_interval=0.05)


@pytest.mark.usefixtures("impatient")
@run_async
async def test_h20_a_redis_that_is_restarted_loses_nothing(own_server: OwnServer) -> None:
    """Outcomes of the outage are written when Redis is back, and new tasks are taken; nothing runs twice."""
    own_server.stop()
    own_server.start(*PERSISTENT)
    runs: Counter[str] = Counter()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handle(task: Task) -> None:
        del task
        runs[context().task_id] += 1
        if context().task_id == "during":
            begun.set()
            await go_on.wait()

    async with serving(own_server.url, handle) as running:
        await running.client.enqueue("t", task_id="during")
        await begun.wait()
        own_server.stop()
        go_on.set()
        assert Outcome.SUCCEEDED is (await running.finished("during")).outcome
        await running.recorder.wait(SettleDelayed)
        await running.recorder.wait(RoundFailed, lambda event: event.service == "processor")
        own_server.start(*PERSISTENT)
        while True:
            try:
                await running.client.enqueue("t", task_id="after")
                break
            except ConnectionError:
                continue
        assert Outcome.SUCCEEDED is (await running.finished("after")).outcome
        await running.settled()
        assert [] == running.recorder.of(TaskRecovered)
    assert {"during": 1, "after": 1} == runs
    with own_server.connect() as client:
        check_invariants(client)
        assert [] == Tasks(client).ids("active")


@pytest.mark.sample(1)
@pytest.mark.single_server("a proxy serves one server")
@pytest.mark.parametrize("cut", list(Cut))
@run_async
async def test_h01_h05_connections_that_are_cut_at_any_point_lose_nothing_and_repeat_nothing(
    redis_url: str, tasks: Tasks, cut: Cut
) -> None:
    """Three hundred tasks, twenty cuts at random moments: each task runs once, and Redis is sound."""
    runs: Counter[str] = Counter()
    moments = random.Random(str(cut))

    async def handle(task: Task) -> None:
        runs[context().task_id] += 1
        if moments.random() < 0.1:
            proxy.cut(cut, containing=b"EVALSHA")
        if task.type == "bad":
            raise ValueError("no")

    with Proxy(redis_url) as proxy:
        config = ServerConfig(concurrency=7, shutdown_timeout=5, retry_delay=lambda retried, error, task: 500)
        async with serving(proxy.url, handle, config, SLOW_LEASES) as running:
            kinds = ["t", "bad", "t"]
            made = [Task(kinds[number % 3], task_id=str(number)) for number in range(300)]
            for result in await running.client.enqueue_many(made):
                assert result
            for number in range(300):
                await running.finished(str(number))
            await running.settled()
        assert proxy.cuts > 5
    assert [1] * 300 == list(runs.values())
    assert 100 == len(tasks.ids("retry"))
    assert ([], []) == (tasks.ids("pending"), tasks.ids("active"))


@pytest.mark.long
@run_async
async def test_w21_a_redis_that_is_away_is_asked_with_growing_rests(own_server: OwnServer) -> None:
    """Neither the look nor the processor spins."""

    async def handle(task: Task) -> None:
        del task

    config = ServerConfig(task_check_interval=0.01)
    settings = EngineSettings(sweep_interval=0.02, look_interval=0.01)
    async with serving(own_server.url, handle, config, settings) as running:
        await running.next_round("processor")
        own_server.stop()
        await running.recorder.wait(RoundFailed, lambda failed: failed.service == "queue_look")
        for _ in range(50):
            await running.next_round("deadlines")
        for service in ("queue_look", "processor"):
            assert len([one for one in running.recorder.of(RoundFailed) if one.service == service]) < 20
        assert [] == running.recorder.of(TaskFinished)
        own_server.start()


@run_async
async def test_a_worker_is_ready_within_two_seconds_of_the_first_good_answer(
    own_server: OwnServer,
) -> None:
    """Although Redis has answered every call with an error, and far more beats failed than rounds. (D18)"""
    vitals = Vitals(1, 42, "active")
    with own_server.connect() as admin:
        async with serving(own_server.url, do_nothing) as running:
            vitals.watch(running.server.events)
            await running.recorder.wait(QueuesAsked, lambda asked: not asked.unreachable, new=True)
            admin.config_set("requirepass", "rotated")
            admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            for _ in range(6):
                await running.recorder.wait(
                    RoundFailed, lambda failed: failed.service == "heartbeater", new=True
                )
            await running.recorder.wait(QueuesAsked, lambda asked: asked.unreachable == ("default",))
            assert not vitals.is_ready(time.monotonic())
            admin.config_set("requirepass", "")
            async with asyncio.timeout(2):
                await running.recorder.wait(HeartbeatWritten, new=True)
                await running.recorder.wait(QueuesAsked, lambda asked: not asked.unreachable, new=True)
            assert vitals.is_ready(time.monotonic())
