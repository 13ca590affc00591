"""What `connections` takes for granted of redis-py, and what it promises to the drivers."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._redis import connection_blocking as blocking_connection
from pyasynq._redis.connection_async import AsyncConnection, Push
from pyasynq._redis.connection_blocking import BlockingConnection
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.facts import check_health
from pyasynq._redis.redis_py import pack_command
from pyasynq._redis.reply_errors import ReplyError
from pyasynq._redis.url import parse_redis_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from tests.fix_proxy import Proxy

    Command = tuple[str | bytes | int, ...]


pytestmark = pytest.mark.single_server("it is about one connection")


class Face:
    """A connection of either kind, blocking."""

    def __init__(self, connection: AsyncConnection | BlockingConnection, runner: asyncio.Runner) -> None:
        self.connection = connection
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.connection, name)

        def call(*arguments: Any) -> Any:
            value = method(*arguments)
            return self._runner.run(value) if asyncio.iscoroutine(value) else value

        return call


@pytest.fixture(params=[AsyncConnection, BlockingConnection])
def connect(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Callable[[str], Face]]:
    """Opens connections to a URL."""
    opened = []

    def connect(url: str) -> Face:
        face = Face(request.param(), runner)
        assert face.open(parse_redis_url(url), 5.0) is None
        opened.append(face)
        return face

    yield connect
    for face in opened:
        face.close()


def test_commands_are_packed_as_the_protocol_wants() -> None:
    """Text as UTF-8, numbers as text, bytes as they are, empty ones too; lengths are those of bytes."""
    assert b"*4\r\n$3\r\nSET\r\n$2\r\n\xc3\xa9\r\n$2\r\n-7\r\n$0\r\n\r\n" == pack_command(
        [("SET", "é", -7, b"")]
    )
    assert b"*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n" == pack_command([("A",), ("B",)])


@pytest.mark.parametrize("seconds", [0.0, -0.5])
def test_h20_an_exchange_without_any_time_left_sends_nothing(
    connect: Callable[[str], Face], redis_url: str, redis_client: redis.Redis, seconds: float
) -> None:
    """Connecting took all of it: the call was not made, and says so, instead of an error of the socket's."""
    received = connect(redis_url).exchange([("SET", "k", "v")], seconds)
    assert ([], "no time was left for it", False) == tuple(received)
    assert 0 == redis_client.exists("k")


def test_replies_come_as_they_are_and_errors_in_their_places(
    connect: Callable[[str], Face], redis_url: str
) -> None:
    """Bytes, numbers, None, lists; an error is a value among them and does not end the exchange."""
    commands: list[Command] = [
        ("SET", "k", "v"),
        ("GET", "k"),
        ("GET", "none"),
        ("LPUSH", "k", "x"),
        ("EVAL", "return {1, 'a', {}}", 0),
        ("EVALSHA", "0" * 40, 0),
        ("DEL", "k"),
    ]
    received = connect(redis_url).exchange(commands, 5.0)
    assert (None, True) == (received.broken, received.sent)
    errors = [reply.code for reply in received.replies if isinstance(reply, ReplyError)]
    assert ["WRONGTYPE", "NOSCRIPT"] == errors
    others = [reply for reply in received.replies if not isinstance(reply, ReplyError)]
    assert [b"OK", b"v", None, [1, b"a", []], 1] == others


def test_megabytes_go_both_ways(
    connect: Callable[[str], Face], redis_url: str, redis_client: redis.Redis
) -> None:
    """More than any buffer on the way holds."""
    value = b"x" * 20_000_000
    received = connect(redis_url).exchange([("SET", "k", value), ("GET", "k")], 10.0)
    assert [b"OK", value] == received.replies
    redis_client.delete("k")


@pytest.mark.parametrize("has_poll", [True, False])
def test_a_connection_that_the_server_closed_is_noticed_before_anything_is_sent(
    connect: Callable[[str], Face],
    redis_url: str,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_poll: bool,
) -> None:
    """The driver may then send even what must not be sent twice. Some systems have no poll."""
    if not has_poll:
        monkeypatch.setattr(blocking_connection, "select", object())
    face = connect(redis_url)
    assert [b"PONG"] == face.exchange([("PING",)], 5.0).replies
    [number] = face.exchange([("CLIENT", "ID")], 5.0).replies
    redis_client.client_kill_filter(_id=str(number))
    face.exchange([("PING",)], 5.0)  # an event loop takes notice of the end while it waits for something
    received = face.exchange([("PING",)], 5.0)
    assert ([], False) == (received.replies, received.sent)


def test_tcp_connections_are_kept_alive(connect: Callable[[str], Face], proxy: Proxy) -> None:
    """A silent network is noticed within a minute; small commands are not held back."""
    face = connect(proxy.url)
    inner = face.connection._connection
    sock = (
        inner._sock
        if isinstance(face.connection, BlockingConnection)
        else inner._writer.get_extra_info("socket")
    )
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    if hasattr(socket, "TCP_KEEPIDLE"):
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60


def test_redis_py_says_nothing_of_its_own(connect: Callable[[str], Face], redis_url: str) -> None:
    """No CLIENT SETINFO, no name, no HELLO: those are refused by some, and cost round trips."""
    [info] = connect(redis_url).exchange([("CLIENT", "INFO")], 5.0).replies
    fields = dict(field.partition("=")[::2] for field in info.decode().split())
    assert ("", "", "2") == (fields["name"], fields.get("lib-name", ""), fields.get("resp", "2"))


def test_pushes_and_replies_are_told_apart(redis_url: str, redis_client: redis.Redis) -> None:
    """The one private corner of redis-py that the wake-up needs: its parser hands out pushes as they come."""

    async def run() -> list[Any]:
        connection = AsyncConnection(protocol=3)
        assert await connection.open(parse_redis_url(redis_url), 5.0) is None
        assert [b"OK"] == (await connection.exchange([("CLIENT", "TRACKING", "ON")], 5.0)).replies
        await connection.send([("EXISTS", "k")])
        first = await connection.read()
        redis_client.set("k", 1)
        second = await connection.read()
        await connection.send([("NOSUCHCOMMAND",)])
        third = await connection.read()
        await connection.close()
        with pytest.raises(ConnectionError):
            await connection.read()
        return [first, second, third]

    reply, push, error = asyncio.run(run())
    assert 0 == reply
    assert Push([b"invalidate", [b"k"]]) == push
    assert isinstance(error, ReplyError)
    redis_client.delete("k")


def test_an_interrupted_exchange_leaves_no_connection_out_of_step(proxy: Proxy) -> None:
    """The reply that was not read must not become the reply of the next command."""

    async def run() -> None:
        connection = AsyncConnection()
        await connection.open(parse_redis_url(proxy.url), 5.0)
        proxy.hold()
        call = asyncio.create_task(connection.exchange([("ECHO", "first")], 5.0))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        proxy.release()
        received = await connection.exchange([("ECHO", "second")], 5.0)
        assert ([], False) == (received.replies, received.sent)

    asyncio.run(run())


def test_a_connection_sets_one_timer_for_many_exchanges_and_the_latest_deadline_counts(proxy: Proxy) -> None:
    """The timer of a short exchange does not cut a longer one, nor does that of an earlier one come late."""

    async def run() -> None:
        connection = AsyncConnection()
        await connection.open(parse_redis_url(proxy.url), 5.0)
        await connection.exchange([("PING",)], 0.5)
        timer = connection._timer
        assert timer is not None
        for _ in range(10):
            assert [b"a"] == (await connection.exchange([("ECHO", "a")], 5.0)).replies
        assert timer is connection._timer
        proxy.hold()
        call = asyncio.create_task(connection.exchange([("ECHO", "b")], 60.0))
        while timer is connection._timer:  # noqa: ASYNC110 - it is set again when it fires
            await asyncio.sleep(0.01)
        proxy.release()
        assert [b"b"] == (await call).replies
        proxy.hold()
        assert "no reply within 0.01 s" == (await connection.exchange([("ECHO", "c")], 0.01)).broken
        assert connection._timer is None

    asyncio.run(run())


def test_a_connection_that_is_dropped_with_a_timer_is_free_at_once(redis_url: str) -> None:
    """The timer holds a weak reference."""

    async def run() -> None:
        connection = AsyncConnection()
        await connection.open(parse_redis_url(redis_url), 5.0)
        await connection.exchange([("PING",)], 5.0)
        connection.abandon()
        reference = weakref.ref(connection)
        gc.disable()
        try:
            del connection
            assert reference() is None
        finally:
            gc.enable()

    asyncio.run(run())


def test_a_driver_that_was_not_closed_is_freed_without_the_collector(redis_url: str) -> None:
    """So are its connections, and in a forked child those that it has inherited."""
    driver = BlockingDriver(parse_redis_url(redis_url))
    driver.run(check_health())
    pool = weakref.ref(driver._own.connections)
    driver.abandon()
    gc.disable()
    try:
        del driver
        assert pool() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "rediss://127.0.0.1:{port}"])
@pytest.mark.parametrize("kind", [AsyncConnection, BlockingConnection])
def test_a_refused_connection_leaves_nothing_to_the_collector(
    kind: type[AsyncConnection | BlockingConnection], runner: asyncio.Runner, redis_url: str, url: str
) -> None:
    """While Redis is away there are many of them."""
    connection = kind()
    face = Face(connection, runner)
    target = parse_redis_url(url.format(port=parse_redis_url(redis_url).port))
    reference = weakref.ref(connection)
    gc.disable()
    try:
        assert face.open(target, 5.0) is not None
        del connection, face
        assert reference() is None
    finally:
        gc.enable()


def test_what_redis_py_keeps_of_a_closed_connection_is_free_without_the_collector(
    connect: Callable[[str], Face], redis_url: str
) -> None:
    """In a worker the collector hardly ever runs, and each lost connection would keep 64 KB or a stream."""
    face = connect(redis_url)
    [error] = face.exchange([("EVALSHA", "0" * 40, 0)], 5.0).replies
    assert isinstance(error, ReplyError)
    gc.disable()
    try:
        parser = weakref.ref(face.connection._connection._parser)
        face.close()
        assert parser() is None
    finally:
        gc.enable()
