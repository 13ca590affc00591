"""redis-py's connections, without their automatic behaviour: handshake, retries and health checks.

redis-py does name resolution, TCP and unix sockets, and for asyncio also sending and parsing. pyasynq does
login, retries, health checks, connection names and timeouts of whole rounds. Besides redis-py's documented
API it uses `connect` and what that calls, and `disconnect`. The two modules that use this one also use the
sockets, streams and parsers inside. Contract tests check that redis-py behaves as described here.
"""

from __future__ import annotations

import contextlib
import inspect
import socket
from typing import TYPE_CHECKING, Any, Final, cast

import hiredis
import redis.asyncio.connection as redis_async
import redis.connection as redis_blocking
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from pyasynq._redis.guard import check
from pyasynq._redis.plan import PackedCommand
from pyasynq._redis.reply_errors import read_reply_error
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq._redis.plan import Argument
    from pyasynq._redis.tls import TLSOptions
    from pyasynq._redis.url import RedisTarget

# redis-py raises these error replies as a ConnectionError, although the connection is intact.
REPLIES: Final = (ResponseError, AuthenticationError, BusyLoadingError)
BROKEN: Final = (RedisError, OSError)
# TCP keep-alive: seconds until the first probe, seconds between probes, unanswered probes until it breaks.
# Linux and macOS name the first option differently. If a name is missing, the system's default applies.
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
# CLIENT SETINFO costs a round trip, and some servers refuse it. Building its text costs half a millisecond
# for each connection, and leaves garbage. The argument that switches it off depends on the version.
_NO_INTRODUCTION: Final[dict[str, None]] = (
    {"driver_info": None}
    if "driver_info" in inspect.signature(redis_async.AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)
_INCOMPLETE: Final = object()
_pack: Callable[[tuple[Argument, ...]], bytes] = cast("Any", hiredis.pack_command)


_INT: Final = frozenset({int})


def _without_ints(command: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Return a command with its integers converted to strings.

    hiredis calls `repr` on a number, which runs signal handlers. If a handler raises, hiredis goes on without
    the result, and the interpreter crashes.
    """
    if type(command[-1]) is str:
        # Calls that settle many tasks have only string arguments. `join` checks that with a quarter of the
        # instructions of the check below.
        try:
            "".join(command)  # type: ignore[arg-type]
        except TypeError:
            pass
        else:
            return command
    if _INT.isdisjoint(map(type, command)):
        return command
    return tuple([str(one) if type(one) is int else one for one in command])


def pack_command(commands: Iterable[tuple[Argument, ...]]) -> bytes:
    """Encode commands in the Redis protocol (RESP); surrogate escapes become their original bytes again."""
    return b"".join([_pack_once(one) if type(one) is PackedCommand else _pack_one(one) for one in commands])


def _pack_once(command: PackedCommand) -> bytes:
    if not command.packed:
        command.packed = _pack_one(command)
    return command.packed


def _pack_one(command: tuple[Argument, ...]) -> bytes:
    arguments = _without_ints(command)
    try:
        return _pack(arguments)
    except UnicodeEncodeError:
        return _pack(tuple(map(_as_bytes, arguments)))


def read_replies(data: bytes | bytearray, most: int) -> list[Any]:
    """Return up to `most` complete replies that a server sent before it closed the connection.

    A server that gets an oversized command closes the connection before it has read the whole command, so
    sending fails. Only the last of its replies names the reason.
    """
    reader = hiredis.Reader(replyError=read_reply_error, notEnoughData=_INCOMPLETE)
    reader.feed(bytes(data))
    replies: list[Any] = []
    with contextlib.suppress(hiredis.ProtocolError):
        while len(replies) < most and (reply := reader.gets()) is not _INCOMPLETE:
            replies.append(reply)
    return replies


def _as_bytes(argument: Argument) -> Argument:
    return argument.encode("utf-8", "surrogateescape") if isinstance(argument, str) else argument


def async_connection(target: RedisTarget, protocol: int, seconds: float) -> Any:
    """Make a connection of redis-py for asyncio; the caller calls `connect` and logs in.

    Raises:
        ConfigurationError: when the TLS files cannot be used, or this platform has no unix sockets.
        ForeignRedisError: when a test kit with another server is in use.
    """
    check(target)
    options = _options(target, protocol, seconds)
    if target.tls is not None:
        return _without_cycle(_AsyncTLS(target.tls, options))
    return _without_cycle((_AsyncTCP if target.path is None else _AsyncUnix)(**options))


def blocking_connection(target: RedisTarget, seconds: float) -> Any:
    """Make a connection of redis-py for threads; the caller calls `connect` and logs in.

    Raises:
        ConfigurationError: when the TLS files cannot be used, or this platform has no unix sockets.
        ForeignRedisError: when a test kit with another server is in use.
    """
    check(target)
    options = _options(target, 2, seconds) | {"socket_timeout": seconds}
    if target.tls is not None:
        return _without_cycle(_BlockingTLS(target.tls, options))
    # mypy believes that the class for unix sockets is abstract, because redis-py gives it no `host`.
    kind: Any = _BlockingTCP if target.path is None else _BlockingUnix
    return _without_cycle(kind(**options))


class _AsyncSilent:
    """Mixin for connections that send nothing by themselves after connecting.

    redis-py's option `redis_connect_func` does not prevent that everywhere.
    """

    _parser: Any

    async def on_connect(self) -> None:
        self._parser.on_connect(self)

    async def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - redis-py's
        del check_health
        self._parser.on_connect(self)


class _BlockingSilent:
    """Blocking counterpart of `_AsyncSilent`; `connection_blocking` parses the replies."""

    def on_connect(self) -> None:
        pass

    def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - as above
        del check_health


class _AsyncTCP(_AsyncSilent, redis_async.Connection):
    pass


class _AsyncUnix(_AsyncSilent, redis_async.UnixDomainSocketConnection):
    pass


class _AsyncTLS(_AsyncTCP):
    """TLS connection with our own SSL context and server name (SNI), which redis-py cannot be given."""

    def __init__(self, tls: TLSOptions, options: dict[str, Any]) -> None:
        super().__init__(**options)
        self._tls = {"ssl": tls.context(), "server_hostname": tls.server_hostname or options["host"]}

    def _connection_arguments(self) -> Any:
        return {**super()._connection_arguments(), **self._tls}


class _BlockingTCP(_BlockingSilent, redis_blocking.Connection):
    pass


class _BlockingUnix(_BlockingSilent, redis_blocking.UnixDomainSocketConnection):
    pass


class _BlockingTLS(_BlockingTCP):
    """Blocking counterpart of `_AsyncTLS`."""

    def __init__(self, tls: TLSOptions, options: dict[str, Any]) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._context = tls.context()
        self._server_hostname = tls.server_hostname or options["host"]

    def _connect(self) -> Any:
        plain = super()._connect()  # type: ignore[no-untyped-call]
        try:
            return self._context.wrap_socket(plain, server_hostname=self._server_hostname)
        except BaseException:
            plain.close()
            raise


def _options(target: RedisTarget, protocol: int, seconds: float) -> dict[str, Any]:
    options: dict[str, Any] = {
        "db": target.database,
        "username": target.username,
        "password": target.password,
        "protocol": protocol,
        "socket_timeout": None,
        "socket_connect_timeout": seconds,
        "health_check_interval": 0,
        **_NO_INTRODUCTION,
    }
    if target.path is not None:
        if not hasattr(socket, "AF_UNIX"):
            raise ConfigurationError(
                f"{target.path}: Python knows no unix sockets on this platform; connect by redis://"
            )
        return options | {"path": target.path}
    options |= {"host": target.host, "port": target.port}
    return options | {"socket_keepalive": True, "socket_keepalive_options": _KEEP_ALIVE}


def _without_cycle(connection: Any) -> Any:
    # A parser that refers to its own bound method is a reference cycle. Only the garbage collector frees it,
    # with 64 KB or a stream. In a worker, which leaves no other cycles, the collector hardly ever runs.
    connection._parser.set_pubsub_push_handler(_return_push)  # noqa: SLF001 - there is no public way to it
    return connection


async def _return_push(push: object) -> object:
    return push
