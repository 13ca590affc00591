"""Which tasks a server takes and when it looks, on a real Redis."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pyasynq._engine.settings import EngineSettings
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.events import Outcome, TaskFinished
from pyasynq.task import Task
from tests.fix_engine import QUICK, do_nothing, make_server, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import redis

    from tests.factories import Tasks

WEIGHTS = {"critical": 6, "default": 3, "low": 1}


@pytest.mark.sample(1)
@pytest.mark.parametrize("concurrency", [1, 50])
@run_async
async def test_full_queues_are_served_by_weight(redis_url: str, concurrency: int) -> None:
    """Within 5 % over as long as all queues are full."""
    order: list[str] = []

    async def handle(task: Task) -> None:
        del task
        order.append(context().queue)

    config = ServerConfig(queues=WEIGHTS, concurrency=concurrency, max_tasks=2_000)
    server = make_server(redis_url, config)
    async with Client(redis_url) as client:
        for queue in WEIGHTS:
            await client.enqueue_many(Task("t", queue=queue) for _ in range(1_500))
    assert 0 == await server.run(handle, signals=False)
    assert 2_000 == len(order)
    counts = Counter(order)
    for queue, weight in WEIGHTS.items():
        assert counts[queue] == pytest.approx(200 * weight, rel=0.05)


@run_async
async def test_strict_priority_empties_the_higher_queue_first(redis_url: str) -> None:
    """A lower queue is served while the higher ones are empty."""
    order: list[str] = []

    async def handle(task: Task) -> None:
        del task
        order.append(context().queue)

    async with Client(redis_url) as client:
        for queue in reversed(WEIGHTS):
            await client.enqueue_many(Task("t", queue=queue) for _ in range(20))
    config = ServerConfig(queues=WEIGHTS, concurrency=5, strict_priority=True, burst=True)
    await make_server(redis_url, config).run(handle, signals=False)
    assert ["critical"] * 20 + ["default"] * 20 + ["low"] * 20 == order


@run_async
async def test_burst_runs_what_handlers_enqueue_and_ends(redis_url: str, tasks: Tasks) -> None:
    """Idle means: nothing pending, nothing running, nothing to write."""
    runs = []

    async def handle(task: Task) -> None:
        runs.append(task.type)
        if len(runs) < 5:
            await client.enqueue(f"t{len(runs)}")

    async with Client(redis_url) as client:
        await client.enqueue("t0")
        server = make_server(redis_url, ServerConfig(burst=True))
        assert 0 == await server.run(handle, signals=False)
    assert ["t0", "t1", "t2", "t3", "t4"] == runs
    assert [] == tasks.ids("pending")


@run_async
async def test_max_tasks_ends_after_this_many_attempts(redis_url: str, tasks: Tasks) -> None:
    """Exactly this many are taken, though more are there."""
    tasks.pending(*"abcde")
    server = make_server(redis_url, ServerConfig(max_tasks=3, concurrency=2))
    assert 0 == await server.run(do_nothing, signals=False)
    assert ["d", "e"] == tasks.ids("pending")


@run_async
async def test_h14_an_idle_server_is_woken_for_each_task(redis_url: str) -> None:
    """The polls are far apart in this test, so they do not find the tasks."""
    settings = dataclasses.replace(QUICK, look_interval=1_000)
    config = ServerConfig(task_check_interval=1_000)
    async with serving(redis_url, do_nothing, config, settings) as running:
        for number in range(5):
            await running.next_round("deadlines")
            await running.client.enqueue("t", task_id=str(number))
            assert Outcome.SUCCEEDED is (await running.finished(str(number))).outcome
        await running.settled()


@run_async
async def test_h14_a_second_queue_is_woken_while_the_first_is_busy(redis_url: str) -> None:
    """Each queue is watched as soon as it is known to be empty."""
    gate = asyncio.Event()

    async def handle(task: Task) -> None:
        if task.type == "long":
            await gate.wait()

    settings = dataclasses.replace(QUICK, look_interval=1_000)
    config = ServerConfig(queues={"one": 1, "two": 1}, task_check_interval=1_000)
    async with serving(redis_url, handle, config, settings) as running:
        await running.client.enqueue("long", queue="one", task_id="long")
        await running.client.enqueue("t", queue="two", task_id="b")
        assert Outcome.SUCCEEDED is (await running.finished("b")).outcome
        await running.client.enqueue("t", queue="two", task_id="c")
        assert Outcome.SUCCEEDED is (await running.finished("c")).outcome
        gate.set()
        await running.finished("long")
        await running.settled()


@run_async
async def test_h14_the_forwarder_rests_until_the_next_task_is_due_or_an_earlier_one_is_added(
    redis_url: str,
) -> None:
    """The earlier one runs, though the forwarder's longest rest is longer than the test may take."""
    config = ServerConfig(delayed_task_check_interval=1_000)
    async with serving(redis_url, do_nothing, config) as running:
        await running.next_round("forwarder")
        begun = time.time()
        await running.client.enqueue("t", task_id="late", process_in=3_000)
        await running.client.enqueue("t", task_id="soon", process_in=1)
        await running.finished("soon")
        assert 1 <= time.time() - begun
        await running.settled()


@run_async
async def test_a_paused_queue_gives_nothing_and_wakes_when_it_is_resumed(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """Watched like its tasks, without spinning."""
    redis_client.set(tasks.keys.paused, int(time.time()))
    settings = dataclasses.replace(QUICK, look_interval=1_000)
    async with serving(redis_url, do_nothing, ServerConfig(task_check_interval=1_000), settings) as running:
        await running.client.enqueue("t", task_id="a")
        for _ in range(10):
            await running.next_round("deadlines")
        rounds = len(
            [event for event in running.recorder.seen if getattr(event, "service", "") == "processor"]
        )
        assert rounds < 30
        assert [] == running.recorder.of(TaskFinished)
        redis_client.delete(tasks.keys.paused)
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()


@pytest.mark.single_server("replicas and Sentinels send commands of their own")
@run_async
async def test_an_idle_server_sends_few_commands(redis_url: str, redis_client: redis.Redis) -> None:
    """Redis hears from it now and then: a few commands a second, those inside scripts included."""
    async with serving(redis_url, do_nothing, settings=EngineSettings()) as running:
        for _ in range(4):
            await running.next_round("deadlines")
        before = redis_client.info("stats")["total_commands_processed"]
        for _ in range(8):
            await running.next_round("deadlines")
        sent = redis_client.info("stats")["total_commands_processed"] - before
    assert sent <= 30
