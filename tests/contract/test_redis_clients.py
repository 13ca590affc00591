"""Whatever takes a URL takes a client of redis-py, and leaves its connections alone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

import pyasynq.sync
from pyasynq import App, Consumer, Inspector, PeriodicTaskManager, Scheduler, Semaphore, Task
from pyasynq.doctor import Doctor
from tests.fix_engine import do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fix_drivers import OwnServer


@pytest.fixture(params=[redis.Redis, redis.asyncio.Redis], ids=["blocking", "asyncio"])
def given(request: pytest.FixtureRequest, own_server: OwnServer) -> Iterator[Any]:
    """A client of an empty server; a test that makes it connect fails."""
    own_server.connect().close()
    client = request.param.from_url(own_server.url)

    def connect(*_: object) -> None:
        raise AssertionError("its connections are not ours")

    client.connection_pool.get_connection = connect
    yield client
    if isinstance(client, redis.Redis):
        client.close()
    else:
        asyncio.run(client.aclose())


@run_async
async def test_every_door_takes_a_client_of_redis_py(given: Any) -> None:
    """The blocking ones as well, whichever kind of client it is."""
    app = App(given)

    @app.task("typed")
    async def typed() -> None:
        pass

    async with serving(given, do_nothing) as running, app:
        await running.client.enqueue("t", task_id="1")
        await running.finished("1")
        await typed.enqueue()
        with pyasynq.sync.Client(given) as client:
            client.enqueue("t", task_id="2")
        await running.finished("2")
        await running.settled()
    async with Inspector(given) as inspector:
        assert ["default"] == await inspector.queues()
    with pyasynq.sync.Inspector(given) as blocking:
        assert ["default"] == blocking.queues()
    semaphore = Semaphore(given, scope="s", max_tokens=1)
    assert await semaphore.acquire(task_id="1", deadline=datetime.now(UTC) + timedelta(minutes=1))
    await semaphore.close()
    async with Consumer(given) as consumer, consumer.take("default", limit=1, wait=0) as attempts:
        assert 0 == len(attempts)
    async with Doctor(given) as doctor:
        assert [] == await doctor.examine()
    scheduler = Scheduler(given)
    scheduler.register("@every 1h", Task("t"))
    await scheduler.start()
    await scheduler.shutdown()
    manager = PeriodicTaskManager(given, provider=list)
    await manager.start()
    await manager.shutdown()
