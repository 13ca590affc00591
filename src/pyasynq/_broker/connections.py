"""Connections: the one file that knows redis-py.

TCP, TLS, unix sockets and authentication are redis-py's; retries, health checks, names and time-outs of
whole rounds are ours, so redis-py's own are switched off. Used are the thinly documented `connect`,
`send_packed_command`, `read_response`, `can_read` and `disconnect` of its `Connection` classes, and where
it has no public way, the sockets and streams inside them. Contract tests hold all of it to what it says here.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import hiredis
import redis.asyncio.connection as redis_async
import redis.connection as redis_blocking
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from pyasynq._broker.reply_errors import ReplyError, reply_error
from pyasynq._broker.session import Session
from pyasynq._broker.steps import Received

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq._broker.plan import Argument, Reply
    from pyasynq._broker.redis_url import RedisTarget

# redis-py makes these error replies a ConnectionError; here the connection is as good as before.
_REPLIES: Final = (ResponseError, AuthenticationError, BusyLoadingError)
_BROKEN: Final = (RedisError, OSError)
# Seconds of silence until the first probe, seconds between probes, lost probes until the connection is dead.
# Linux and macOS name the first one differently; where a name is missing, the system's own value holds.
_KEEP_ALIVE: Final = {
    getattr(socket, name): value
    for name, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPALIVE", 30),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
    )
    if hasattr(socket, name)
}
_pack: Callable[[tuple[Argument, ...]], bytes] = cast("Any", hiredis.pack_command)


def pack(commands: Iterable[tuple[Argument, ...]]) -> bytes:
    """Return the commands as the bytes that Redis reads."""
    return b"".join([_pack(command) for command in commands])


def _connection_options(target: RedisTarget, protocol: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "db": target.database,
        "username": target.username,
        "password": target.password,
        "protocol": protocol,
        "socket_timeout": None,
        "health_check_interval": 0,
    }
    if target.path is not None:
        options["path"] = target.path
    else:
        options |= {"host": target.host, "port": target.port, **(target.tls or {})}
        options |= {"socket_keepalive": True, "socket_keepalive_options": _KEEP_ALIVE}
    return options


def _without_introduction(connection: Any) -> Any:
    # CLIENT SETINFO costs a round trip, and some refuse it. Which attribute stops it depends on the version.
    connection.driver_info = None
    connection.lib_name = None
    connection.lib_version = None
    return connection


class Push(NamedTuple):
    """What Redis said without being asked: its kind, such as `invalidate`, and what belongs to it."""

    parts: list[Any]


async def _as_push(parts: list[Any]) -> Push:
    return Push(parts)


def _cause_of(error: BaseException) -> str:
    return str(error) or type(error).__name__


class AsyncConnection:
    """One connection to Redis for asyncio: for the loop that opened it, and one exchange at a time."""

    __slots__ = ("_connection", "_loop", "_pid", "_protocol", "session")

    def __init__(self, *, protocol: int = 2) -> None:
        self.session = Session()
        self._protocol = protocol
        self._connection: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    async def open(self, target: RedisTarget, seconds: float) -> ReplyError | str | None:
        """Connect, authenticate and select the database; return None, or why it failed."""
        if target.path is not None:
            kind: Any = redis_async.UnixDomainSocketConnection
        else:
            kind = redis_async.Connection if target.tls is None else redis_async.SSLConnection
        options = _connection_options(target, self._protocol)
        connection = _without_introduction(kind(**options, socket_connect_timeout=seconds))
        try:
            async with asyncio.timeout(seconds):
                await connection.connect()
        except _REPLIES as error:
            await _disconnect(connection)
            return reply_error(error)
        except TimeoutError:
            await _disconnect(connection)
            return f"no connection within {seconds:.2g} s"
        except _BROKEN as error:
            await _disconnect(connection)
            # On unix sockets redis-py wraps what the server said to the login.
            said = error.__cause__
            return reply_error(said) if isinstance(said, _REPLIES) else _cause_of(error)
        except AttributeError:
            # redis-py takes it for granted that HELLO answers with a map.
            await _disconnect(connection)
            return ReplyError("NOPROTO", "the server does not speak RESP3")
        except BaseException:
            await _disconnect(connection)
            raise
        if self._protocol == 3:
            connection._parser.set_invalidation_push_handler(_as_push)  # noqa: SLF001 - there is no public way
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        return None

    async def exchange(self, commands: Iterable[tuple[Argument, ...]], seconds: float) -> Received:
        """Send commands in one write and read a reply for each; a connection that breaks is closed."""
        connection = self._connection
        if connection is None or _is_over(connection):
            await self.close()
            return Received([], "the connection was closed by the server", sent=False)
        packed = [_pack(command) for command in commands]
        replies: list[Reply | ReplyError] = []
        try:
            async with asyncio.timeout(seconds):
                await connection.send_packed_command(b"".join(packed), check_health=False)
                for _ in packed:
                    try:
                        replies.append(await connection.read_response(disconnect_on_error=False))
                    except _REPLIES as error:
                        replies.append(reply_error(error))
        except TimeoutError:
            cause = f"no reply within {seconds:.2g} s"
        except _BROKEN as error:
            cause = _cause_of(error)
        except BaseException:
            await self.close()
            raise
        else:
            return Received(replies)
        await self.close()
        return Received(replies, cause)

    async def send(self, commands: Iterable[tuple[Argument, ...]]) -> None:
        """Send commands whose replies another coroutine reads with `read`.

        Raises:
            ConnectionError: when the connection broke.
        """
        if self._connection is None:
            raise ConnectionError("the connection has been closed")
        try:
            await self._connection.send_packed_command(pack(commands), check_health=False)
        except _BROKEN as error:
            raise ConnectionError(_cause_of(error)) from None

    async def read(self) -> Reply | ReplyError | Push:
        """Wait, for as long as it takes, for the next reply or, with RESP3, the next push.

        Raises:
            ConnectionError: when the connection broke.
        """
        if self._connection is None:
            raise ConnectionError("the connection has been closed")
        try:
            return await self._connection.read_response(
                timeout=math.inf,
                disconnect_on_error=False,
                push_request=True,
            )
        except _REPLIES as error:
            return reply_error(error)
        except _BROKEN as error:
            raise ConnectionError(_cause_of(error)) from None

    async def close(self) -> None:
        """Close the connection if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await _disconnect(connection)

    def abandon(self) -> None:
        """Let go of a connection from outside its event loop, or in a child process that inherited it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        # Nothing of it may be destroyed before it is closed: the destructors in there use the loop.
        writer: asyncio.StreamWriter = connection._writer  # noqa: SLF001 - there is no public way to it
        connection._writer = connection._reader = None  # noqa: SLF001
        forked = self._pid != os.getpid()
        if not forked and self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop was closed in this very moment
                self._loop.call_soon_threadsafe(_abort, writer)
                return
        if forked:
            _kept.append(writer)
        _close_without_loop(writer.transport)


def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def _is_over(connection: Any) -> bool:
    reader: asyncio.StreamReader = connection._reader  # noqa: SLF001 - the public can_read costs a coroutine a round
    return reader.at_eof() or reader.exception() is not None


async def _disconnect(connection: Any) -> None:
    with contextlib.suppress(*_BROKEN, TimeoutError):
        await connection.disconnect(nowait=True)


_kept: Final[list[object]] = []
"""What a child process inherited and must not destroy."""


def _close_without_loop(transport: Any) -> None:
    """Close a transport's socket and nothing else.

    Its loop is closed, or is the parent's: a forked child shares the parent's epoll, and a transport that is
    closed properly, if only by the collector, would make the parent deaf.
    """
    raw = getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)
    sock = getattr(raw, "_sock", None)
    if sock is None:  # uvloop's: it was closed with its loop
        return
    raw._closing = True  # noqa: SLF001
    raw._sock = None  # noqa: SLF001
    transport._closed = True  # noqa: SLF001
    sock.close()


class BlockingConnection:
    """One connection to Redis for threads, one exchange at a time."""

    __slots__ = ("_connection", "session")

    def __init__(self) -> None:
        self.session = Session()
        self._connection: Any = None

    def open(self, target: RedisTarget, seconds: float) -> ReplyError | str | None:
        """Connect, authenticate and select the database; return None, or why it failed."""
        if target.path is not None:
            kind: Any = redis_blocking.UnixDomainSocketConnection
        else:
            kind = redis_blocking.Connection if target.tls is None else redis_blocking.SSLConnection
        options = _connection_options(target, protocol=2) | {"socket_timeout": seconds}
        connection = _without_introduction(kind(**options, socket_connect_timeout=seconds))
        try:
            connection.connect()
        except _REPLIES as error:
            connection.disconnect()
            return reply_error(error)
        except _BROKEN as error:
            connection.disconnect()
            return _cause_of(error)
        except BaseException:
            connection.disconnect()
            raise
        self._connection = connection
        return None

    def exchange(self, commands: Iterable[tuple[Argument, ...]], seconds: float) -> Received:
        """Send commands in one write and read a reply for each; a connection that breaks is closed."""
        connection = self._connection
        if connection is None or self._is_stale():
            self.close()
            return Received([], "the connection was closed by the server", sent=False)
        packed = [_pack(command) for command in commands]
        replies: list[Reply | ReplyError] = []
        try:
            connection._sock.settimeout(seconds)  # noqa: SLF001 - redis-py has one time-out for a connection's life
            connection.send_packed_command([b"".join(packed)], check_health=False)
            for _ in packed:
                try:
                    replies.append(connection.read_response(disconnect_on_error=False))
                except _REPLIES as error:
                    replies.append(reply_error(error))
        except _BROKEN as error:
            self.close()
            late = isinstance(error, RedisTimeoutError)
            return Received(replies, f"no reply within {seconds:.2g} s" if late else _cause_of(error))
        except BaseException:
            self.close()
            raise
        return Received(replies)

    def _is_stale(self) -> bool:
        try:
            return bool(self._connection.can_read(timeout=0))
        except _BROKEN:
            return True

    def close(self) -> None:
        """Close the connection if it is open; in a forked child the parent's stays as it is."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
