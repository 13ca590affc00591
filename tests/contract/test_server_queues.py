"""Which tasks a server takes and when it looks, on a real Redis."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.driver import BlockingDriver
from pyasynq._broker.redis_url import parse_redis_url
from pyasynq._broker.servers import list_servers
from pyasynq._server.settings import EngineSettings
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.errors import ConfigurationError, RedisUnavailableError, ServerStateError
from pyasynq.events import Events, Outcome, RoundFinished, ServerStateChanged, ServerWarning, TaskFinished
from pyasynq.server import Server
from pyasynq.task import Task
from tests.fix_engine import QUICK, Recorder, make_server, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import redis

    from tests.factories import Tasks

WEIGHTS = {"critical": 6, "default": 3, "low": 1}


async def do_nothing(task: Task) -> None:
    """Succeed."""
    del task


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
async def test_max_tasks_ends_after_so_many_attempts(redis_url: str, tasks: Tasks) -> None:
    """Exactly so many are taken, though more are there."""
    tasks.pending(*"abcde")
    server = make_server(redis_url, ServerConfig(max_tasks=3, concurrency=2))
    assert 0 == await server.run(do_nothing, signals=False)
    assert ["d", "e"] == tasks.ids("pending")


@run_async
async def test_h14_an_idle_server_is_woken_for_each_task(redis_url: str) -> None:
    """Not by its polls, which are far apart here."""
    settings = dataclasses.replace(QUICK, safety_poll=1_000)
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

    settings = dataclasses.replace(QUICK, safety_poll=1_000)
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
    """Both tasks run within about their second, though the forwarder's longest rest is long."""
    config = ServerConfig(delayed_task_check_interval=1_000)
    async with serving(redis_url, do_nothing, config) as running:
        await running.next_round("forwarder")
        begun = time.time()
        await running.client.enqueue("t", task_id="late", process_in=3_000)
        await running.client.enqueue("t", task_id="soon", process_in=1)
        await running.finished("soon")
        assert 1 <= time.time() - begun < 4
        await running.settled()


@run_async
async def test_a_paused_queue_gives_nothing_and_wakes_when_it_is_resumed(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """Watched like its tasks, without spinning."""
    redis_client.set(tasks.keys.paused, int(time.time()))
    settings = dataclasses.replace(QUICK, safety_poll=1_000)
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


@run_async
async def test_the_server_shows_itself_and_what_it_runs(redis_url: str) -> None:
    """A record with at most 4 KB of each payload, gone after the shutdown."""
    gate = asyncio.Event()

    async def handle(task: Task) -> None:
        del task
        await gate.wait()

    async with serving(redis_url, handle, ServerConfig(queues=WEIGHTS, concurrency=7)) as running:
        await running.client.enqueue("t:x", b"x" * 10_000, task_id="a")
        driver = BlockingDriver(parse_redis_url(redis_url))
        records = driver.run(list_servers())
        while not records or not records[0].workers:
            await running.next_round("heartbeater")
            records = driver.run(list_servers())
        [record] = records
        assert (7, WEIGHTS, "active", running.server.id, "pyasynq") == (
            record.info.concurrency,
            record.info.queues,
            record.info.status,
            record.info.server_id,
            record.info.engine,
        )
        [worker] = record.workers
        assert ("a", "t:x", 4_096) == (worker.task_id, worker.task_type, len(worker.task_payload))
        running.server.stop()
        while "stopped" != driver.run(list_servers())[0].info.status:
            await running.next_round("heartbeater")
        gate.set()
    assert [] == driver.run(list_servers())
    driver.close()


@run_async
async def test_h22_a_redis_that_evicts_is_warned_about(redis_url: str, redis_client: redis.Redis) -> None:
    """Whatever is not `noeviction` deletes tasks when Redis is full."""
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        async with serving(redis_url, do_nothing) as running:
            warnings = running.recorder.of(ServerWarning)
            assert ["eviction"] == [warning.code for warning in warnings]
            assert "allkeys-lru" in warnings[0].message
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")


@run_async
async def test_a_lifespan_surrounds_all_tasks_and_its_state_is_theirs(redis_url: str) -> None:
    """Entered before the first task, left after the last."""
    log: list[Any] = []

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        log.append("enter")
        yield "pool"
        log.append("leave")

    async def handle(task: Task) -> None:
        del task
        log.append(context().state)

    async with Client(redis_url) as client:
        await client.enqueue("t")
    await Server(redis_url, ServerConfig(burst=True), lifespan=lifespan).run(handle, signals=False)
    assert ["enter", "pool", "leave"] == log


@run_async
async def test_a_server_goes_through_its_states_once(redis_url: str) -> None:
    """New, active, stopped, closed; no second start."""
    events = Events()
    states: list[str] = []
    events.subscribe(ServerStateChanged, lambda event: states.append(event.state))
    server = Server(redis_url, events=events)
    assert "new" == server.state
    await server.start(do_nothing)
    with pytest.raises(ServerStateError, match="starts once"):
        await server.start(do_nothing)
    server.stop()
    server.stop()
    await server.shutdown()
    await server.shutdown()
    assert ["active", "stopped", "closed"] == states


@run_async
async def test_a_shutdown_during_the_start_leaves_nothing_running(redis_url: str) -> None:
    """The start says so."""
    server = Server(redis_url)
    starting = asyncio.create_task(server.start(do_nothing))
    await asyncio.sleep(0)
    await server.shutdown()
    with pytest.raises(ServerStateError, match="while it started"):
        await starting
    assert "closed" == server.state


@run_async
async def test_run_ends_when_somebody_else_shuts_the_server_down(redis_url: str) -> None:
    """Every caller of shutdown waits for its end."""
    server = Server(redis_url)
    recorder = Recorder(server.events)
    running = asyncio.create_task(server.run(do_nothing, signals=False))
    await recorder.wait(RoundFinished, lambda event: event.service == "deadlines")
    await recorder.wait(RoundFinished, lambda event: event.service == "processor")
    await asyncio.gather(server.shutdown(), server.shutdown())
    assert 0 == await running


@run_async
async def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    """The address is named; the server is closed."""
    server = Server("redis://localhost:1")
    with pytest.raises(RedisUnavailableError, match="localhost:1"):
        await server.start(do_nothing)
    assert "closed" == server.state
    await server.shutdown()


@run_async
async def test_what_is_no_handler_is_refused(redis_url: str) -> None:
    """The error names what was given."""
    with pytest.raises(ConfigurationError, match="42"):
        await Server(redis_url).start(42)  # type: ignore[arg-type]


@run_async
async def test_a_cancelled_run_shuts_down_in_good_order(redis_url: str, tasks: Tasks) -> None:
    """The task goes back to its queue before `run` ends."""
    begun = asyncio.Event()

    async def handle(task: Task) -> None:
        del task
        begun.set()
        await asyncio.Event().wait()

    tasks.pending("a")
    server = make_server(redis_url, ServerConfig(shutdown_timeout=0, cancel_timeout=5))
    running = asyncio.create_task(server.run(handle, signals=False))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ["a"] == tasks.ids("pending")
    assert 3 == server.exit_code


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
