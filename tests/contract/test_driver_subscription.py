from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._redis import subscription
from pyasynq._redis.subscription import Subscription
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import RedisAuthenticationError, RedisPermissionError, RedisUnavailableError

if TYPE_CHECKING:
    import redis

    from tests.fix_drivers import OwnServer
    from tests.fix_proxy import Proxy


def subscribe(url: str, channel: str = "news", **settings: float) -> Subscription:
    """Make a subscription."""
    return Subscription(parse_redis_url(url), channel, **settings)  # type: ignore[arg-type]


def test_messages_come_in_their_order(redis_url: str, redis_client: redis.Redis) -> None:
    """From the moment of entering; other channels are not heard."""

    async def listen() -> list[bytes]:
        async with subscribe(redis_url) as messages:
            for channel, message in (("news", "1"), ("other", "2"), ("news", "3")):
                redis_client.publish(channel, message)
            return [await anext(messages), await anext(messages)]

    assert [b"1", b"3"] == asyncio.run(listen())


def test_a_broken_connection_is_an_error(proxy: Proxy) -> None:
    """The caller decides when to listen again, and knows that something may have been missed."""

    async def listen() -> None:
        async with subscribe(proxy.url) as messages:
            proxy.cut_all()
            with pytest.raises(RedisUnavailableError):
                await anext(messages)

    asyncio.run(listen())


def ping_calls(client: redis.Redis) -> int:
    """Return how many pings the server has answered."""
    stats: Any = client.info("commandstats")
    return int(stats.get("cmdstat_ping", {"calls": 0})["calls"])


def test_silence_is_told_from_a_dead_connection(
    proxy: Proxy, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent server answers pings, however long it is silent; one that does not is an error."""
    monkeypatch.setattr(subscription, "_SILENCE", 0.01)

    async def listen() -> None:
        async with subscribe(proxy.url, timeout=0.5) as messages:
            message = asyncio.ensure_future(anext(messages))
            while ping_calls(redis_client) < pings + 3:  # noqa: ASYNC110 - only the server knows the count
                await asyncio.sleep(0)
            redis_client.publish("news", "late")
            assert b"late" == await message
            proxy.hold()
            with pytest.raises(RedisUnavailableError, match="no sign of life"):
                await anext(messages)
            proxy.release()

    pings = ping_calls(redis_client)
    asyncio.run(listen())


def test_what_prevents_a_subscription_is_raised_on_entering(own_server: OwnServer) -> None:
    """Each cause as its own error."""
    with own_server.connect() as client:
        client.execute_command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "+@all", "resetchannels")

    async def enter(url: str) -> None:
        async with subscribe(url):
            pytest.fail("entered")

    with pytest.raises(RedisPermissionError, match="SUBSCRIBE news"):
        asyncio.run(enter(own_server.url.replace("unix://", "unix://bob:pw@")))
    with pytest.raises(RedisAuthenticationError):
        asyncio.run(enter(own_server.url.replace("unix://", "unix://bob:wrong@")))
    own_server.stop()
    with pytest.raises(RedisUnavailableError, match=own_server.url.removeprefix("unix://")):
        asyncio.run(enter(own_server.url))


def test_it_needs_no_client_command(own_server: OwnServer, redis_client: redis.Redis) -> None:
    """Where CLIENT is refused, the connection has no name."""
    with own_server.connect() as client:
        client.execute_command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", "-client")

        async def listen() -> bytes:
            async with subscribe(own_server.url.replace("unix://", "unix://bob:pw@")) as messages:
                client.publish("news", "1")
                return await anext(messages)

        assert b"1" == asyncio.run(listen())
