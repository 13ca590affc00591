"""A server's states, start, record and end, on a real Redis."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.servers import list_servers
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.keys import queue_keys
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.errors import (
    ConfigurationError,
    RedisPermissionError,
    RedisUnavailableError,
    ServerStateError,
)
from pyasynq.events import Events, RedisWarning, RoundFailed, RoundFinished, ServerStateChanged
from pyasynq.server import Server
from tests.fix_engine import QUICK, Recorder, do_nothing, make_server, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import redis

    from pyasynq.task import Task
    from tests.factories import Tasks
    from tests.fix_drivers import OwnServer

WEIGHTS = {"critical": 6, "default": 3, "low": 1}


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
            record.info.engine.partition(" ")[0],
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
            warnings = running.recorder.of(RedisWarning)
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


@pytest.mark.usefixtures("impatient")
@run_async
async def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    """The address is named; the server is closed."""
    server = Server("redis://localhost:1")
    with pytest.raises(RedisUnavailableError, match="localhost:1"):
        await server.start(do_nothing)
    assert "closed" == server.state
    await server.shutdown()


@pytest.mark.parametrize("rule", ["-evalsha", "resetkeys"])
@run_async
async def test_a_server_that_lacks_a_right_does_not_start(own_server: OwnServer, rule: str) -> None:
    """It would fail at every round for ever; the error says what is refused."""
    with own_server.connect() as client:
        client.execute_command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", rule)
    server = Server(own_server.url.replace("unix://", "unix://bob:pw@"))
    with pytest.raises(RedisPermissionError, match="lease/list_expired"):
        await server.start(do_nothing)
    assert "closed" == server.state


@run_async
async def test_h20_a_service_that_cannot_do_its_work_rests_longer_and_longer(own_server: OwnServer) -> None:
    """The forwarder, too, which keeps rounds apart from one another."""
    settings = dataclasses.replace(QUICK, forward_gap=0.2)
    async with serving(own_server.url, do_nothing, settings=settings) as running:
        await running.recorder.wait(RoundFinished, lambda event: event.service == "forwarder")
        with own_server.connect() as client:
            client.execute_command("ACL", "SETUSER", "default", "-@scripting")
            client.zadd(queue_keys("default").scheduled, {"a": 1})
            assert running.server._engine is not None
            services = {service.name: service for service in running.server._engine._started}
            while (
                len(
                    failures := [
                        one for one in running.recorder.of(RoundFailed) if one.service == "forwarder"
                    ]
                )
                < 4
            ):
                services["forwarder"].wake()
                await running.recorder.wait(RoundFailed, lambda event: event.service == "forwarder", new=True)
            client.execute_command("ACL", "SETUSER", "default", "+@scripting")
            client.delete(queue_keys("default").scheduled)
    assert failures[0].rest < failures[3].rest


@run_async
async def test_an_object_that_is_not_a_handler_is_refused(redis_url: str) -> None:
    """The error names the type of what was given."""
    with pytest.raises(ConfigurationError, match="not int"):
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
