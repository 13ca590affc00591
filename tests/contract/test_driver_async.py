"""Guarantees of the asyncio driver only: cancellation, and shared connections."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.session import MAX_CONNECTIONS
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import RedisUnavailableError, ReplyLostError
from tests.contract.test_driver_run import increment, run

if TYPE_CHECKING:
    import redis

    from tests.fix_proxy import Proxy


async def everybody_has_begun() -> None:
    """Let tasks go on until they wait for the network."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_cancelled_caller_leaves_the_exchange_to_its_end(proxy: Proxy, redis_client: redis.Redis) -> None:
    """It gets `CancelledError` at once; the counter is raised, and the connection is as good as before."""

    async def test() -> None:
        driver = AsyncDriver(parse_redis_url(proxy.url))
        await driver.run(increment())
        proxy.hold()
        call = asyncio.create_task(driver.run(increment()))
        await everybody_has_begun()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        proxy.release()
        await driver.close()
        assert driver.last_disconnect is None

    asyncio.run(test())
    assert b"2" == redis_client.get("{q}:n")
    assert 1 == proxy.connections


def test_a_call_keeps_nothing_of_its_callers_context(redis_url: str) -> None:
    """The loop keeps the timer of the call's time-out for seconds; a handler's context holds its task."""

    class Something:
        """What may be large."""

    held: contextvars.ContextVar[Something] = contextvars.ContextVar("held")

    async def call(driver: AsyncDriver) -> weakref.ref[Something]:
        something = Something()
        held.set(something)
        await driver.run(increment())
        return weakref.ref(something)

    async def test() -> None:
        driver = AsyncDriver(parse_redis_url(redis_url))
        await driver.run(increment())
        # Asyncio removes a cancelled timer when it is the next one.
        earlier = asyncio.get_running_loop().call_later(1.0, lambda: None)
        reference = await asyncio.create_task(call(driver))
        await everybody_has_begun()
        gc.collect()
        assert reference() is None
        earlier.cancel()
        await driver.close()

    asyncio.run(test())


def test_a_call_that_outlasts_the_closing_is_lost_and_not_cancelled(proxy: Proxy) -> None:
    """The caller was not cancelled, and would take the error for the end of its own task."""

    async def test() -> None:
        driver = AsyncDriver(parse_redis_url(proxy.url))
        await driver.run(increment())
        proxy.hold()
        call = asyncio.create_task(driver.run(increment()))
        await everybody_has_begun()
        driver._state.timeout = 0.05
        await driver.close()
        with pytest.raises(ReplyLostError, match="closed"):
            await call
        proxy.release()

    asyncio.run(test())


def test_rounds_at_the_same_time_have_connections_of_their_own(proxy: Proxy) -> None:
    """Up to ten; what comes then waits for one, in the order of arrival."""

    async def test() -> list[int]:
        driver = AsyncDriver(parse_redis_url(proxy.url))
        values = await asyncio.gather(*[driver.run(increment()) for _ in range(100)])
        await driver.close()
        return values

    assert set(range(1, 101)) == set(asyncio.run(test()))
    assert MAX_CONNECTIONS == proxy.connections


def test_a_round_that_gets_no_connection_in_time_is_refused(proxy: Proxy) -> None:
    """Nothing of it was sent."""

    async def test() -> None:
        driver = AsyncDriver(parse_redis_url(proxy.url), timeout=0.3)
        await driver.run(increment())
        proxy.hold()
        calls = [asyncio.create_task(driver.run(run("PING"))) for _ in range(MAX_CONNECTIONS)]
        await everybody_has_begun()
        driver._state.timeout = 0.05
        with pytest.raises(RedisUnavailableError, match="all 10 connections have been busy"):
            await driver.run(increment())
        proxy.release()
        await asyncio.gather(*calls, return_exceptions=True)
        await driver.close()

    asyncio.run(test())


def test_a_closed_loop_leaves_nothing_behind(redis_url: str) -> None:
    """A driver that is closed in another loop than the one it was used in closes the old sockets quietly."""
    driver = AsyncDriver(parse_redis_url(redis_url))

    async def use() -> int:
        return await driver.run(increment())

    assert 1 == asyncio.run(use())
    asyncio.run(driver.close())


def test_an_embedded_server_is_started_by_who_connects_first() -> None:
    """It ends with the last driver that holds it."""

    async def test() -> list[int]:
        first, second = (AsyncDriver(parse_redis_url("embedded://")) for _ in range(2))
        values = [await first.run(increment()), await second.run(increment())]
        await first.close()
        values.append(await second.run(increment()))
        await second.close()
        return values

    assert [1, 2, 3] == asyncio.run(test())
    assert [1, 2, 3] == asyncio.run(test())
