from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._redis.key_watcher import Watcher
from pyasynq._redis.url import parse_redis_url

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import redis

    from pyasynq.events import RedisWarning
    from tests.fix_drivers import OwnServer
    from tests.fix_proxy import Proxy

PENDING = "asynq:{default}:pending"
PAUSED = "asynq:{default}:paused"


class Watching:
    """A watcher whose changes are awaited one by one."""

    def __init__(self, url: str, **settings: object) -> None:
        self.changes: asyncio.Queue[str] = asyncio.Queue()
        self.watcher = Watcher(parse_redis_url(url), self.changes.put_nowait, **settings)  # type: ignore[arg-type]

    async def connected(self, *keys: str) -> None:
        """Arm keys once the connection is there."""
        assert not await self.watcher.arm(*keys)
        assert set(keys) == {await self.change() for _ in keys}
        assert await self.watcher.arm(*keys)

    async def change(self) -> str:
        """Wait for the next change."""
        return await asyncio.wait_for(self.changes.get(), 10)


def watch(test: Callable[[Watching], Coroutine[None, None, None]], url: str, **settings: object) -> None:
    """Run a test with a watcher, and close it."""

    async def run() -> None:
        watching = Watching(url, **settings)
        try:
            await test(watching)
        finally:
            await watching.watcher.close()

    asyncio.run(run())


def test_h14_a_push_into_an_empty_queue_is_noticed(redis_url: str, redis_client: redis.Redis) -> None:
    """Any push wakes it; an unarmed queue, or another key, is not reported."""

    async def test(watching: Watching) -> None:
        await watching.connected(PENDING, PAUSED)
        redis_client.lpush("asynq:{other}:pending", "x")
        redis_client.lpush(PENDING, "x")
        assert PENDING == await watching.change()
        redis_client.set(PAUSED, 1)
        assert PAUSED == await watching.change()
        redis_client.delete(PENDING, PAUSED, "asynq:{other}:pending")

    watch(test, redis_url)


def test_h14_a_change_is_reported_once_for_each_arm(redis_url: str, redis_client: redis.Redis) -> None:
    """The second push is silent until the key is armed again."""

    async def test(watching: Watching) -> None:
        await watching.connected(PENDING, PAUSED)
        redis_client.lpush(PENDING, "x")
        redis_client.lpush(PENDING, "y")
        redis_client.set(PAUSED, 1)
        assert [PENDING, PAUSED] == [await watching.change(), await watching.change()]
        assert await watching.watcher.arm(PENDING)
        redis_client.delete(PENDING, PAUSED)
        assert PENDING == await watching.change()

    watch(test, redis_url)


def test_a_confirmed_watch_tells_whether_the_key_is_there(redis_url: str, redis_client: redis.Redis) -> None:
    """As of that moment; of keys that are not watched nothing is said."""

    async def test(watching: Watching) -> None:
        redis_client.lpush(PENDING, "x")
        await watching.connected(PENDING, PAUSED)
        assert (True, False) == (watching.watcher.exists(PENDING), watching.watcher.exists(PAUSED))
        redis_client.delete(PENDING)
        assert PENDING == await watching.change()
        assert await watching.watcher.arm(PENDING, PAUSED)
        assert (False, False) == (watching.watcher.exists(PENDING), watching.watcher.exists(PAUSED))
        redis_client.lpush(PENDING, "x")
        assert PENDING == await watching.change()
        assert await watching.watcher.arm(PENDING)
        assert watching.watcher.exists(PENDING)
        watching.watcher.forget(PENDING)
        assert not watching.watcher.exists(PENDING)
        redis_client.delete(PENDING)

    watch(test, redis_url)


def test_h14_arming_an_armed_key_costs_nothing(redis_url: str, redis_client: redis.Redis) -> None:
    """A server that looks at its queues often does not read each time."""

    def reads() -> int:
        stats: Any = redis_client.info("commandstats")
        return int(stats.get("cmdstat_exists", {"calls": 0})["calls"])

    async def test(watching: Watching) -> None:
        await watching.connected(PENDING)
        before = reads()
        for _ in range(100):
            assert await watching.watcher.arm(PENDING)
        assert before == reads()

    watch(test, redis_url)


def test_h14_after_a_lost_connection_every_watched_key_may_have_changed(
    proxy: Proxy, redis_client: redis.Redis
) -> None:
    """Earlier pushes are found, because the server checks; then it can be armed again."""

    async def test(watching: Watching) -> None:
        await watching.connected(PENDING, PAUSED)
        proxy.cut_all()
        assert {PENDING, PAUSED} == {await watching.change(), await watching.change()}
        assert await watching.watcher.arm(PENDING)
        redis_client.lpush(PENDING, "x")
        assert PENDING == await watching.change()
        redis_client.delete(PENDING)

    watch(test, proxy.url)


def test_h14_an_emptied_database_is_a_change_of_every_key(redis_url: str, redis_client: redis.Redis) -> None:
    """FLUSHALL names no keys."""

    async def test(watching: Watching) -> None:
        await watching.connected(PENDING, PAUSED)
        redis_client.flushall()
        assert {PENDING, PAUSED} == {await watching.change(), await watching.change()}

    watch(test, redis_url)


def test_h14_many_pushes_in_one_go_are_all_taken(redis_url: str, redis_client: redis.Redis) -> None:
    """Thousands of keys change between two replies."""
    keys = [f"k{number}" for number in range(3000)]

    async def test(watching: Watching) -> None:
        await watching.connected(*keys)
        with redis_client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.set(key, 1)
            pipeline.execute()
        assert set(keys) == {await watching.change() for _ in keys}
        redis_client.delete(*keys)

    watch(test, redis_url)


def test_h14_an_arm_that_is_not_confirmed_in_time_is_none(proxy: Proxy) -> None:
    """If the network drops everything: the caller polls, and the connection is made again."""

    async def test(watching: Watching) -> None:
        await watching.connected(PENDING)
        proxy.hold()
        assert not await watching.watcher.arm(PAUSED)
        proxy.release()
        assert {PENDING, PAUSED} == {await watching.change(), await watching.change()}

    watch(test, proxy.url, timeout=0.2)


@pytest.mark.parametrize("refused", ["HELLO", "CLIENT"])
def test_h14_where_redis_cannot_wake_anybody_one_warning_says_so(own_server: OwnServer, refused: str) -> None:
    """A proxy that speaks RESP2 only, or a server that refuses CLIENT TRACKING: the caller polls."""
    own_server.stop()
    own_server.start("--rename-command", refused, "")
    warnings: list[RedisWarning] = []

    async def test(watching: Watching) -> None:
        assert not await watching.watcher.arm(PENDING)
        while watching.watcher.supported:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        assert not await watching.watcher.arm(PENDING)

    watch(test, own_server.url, on_warning=warnings.append)
    assert ["wakeup_refused"] == [warning.code for warning in warnings]


def test_h14_a_server_that_is_not_there_yet_is_found_later(own_server: OwnServer) -> None:
    """The watcher starts first; the wrong password of today does not refuse it permanently either."""
    own_server.stop()

    async def test(watching: Watching) -> None:
        assert not await watching.watcher.arm(PENDING)
        own_server.start()
        assert PENDING == await watching.change()
        assert await watching.watcher.arm(PENDING)

    watch(test, own_server.url)


def test_h14_a_closed_watcher_leaves_no_connection_and_no_task(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """Its name is gone from the list of clients."""

    async def test(watching: Watching) -> None:
        await watching.connected(PENDING)
        await watching.watcher.close()
        assert 1 == len(asyncio.all_tasks())
        assert not await watching.watcher.arm(PENDING)

    watch(test, redis_url, client_name="closing")
    while any(one["name"] == "closing" for one in redis_client.client_list()):
        pass
