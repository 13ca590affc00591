"""What we take from redis-py: its connections, kept from doing anything by themselves.

Name resolution, TCP and unix sockets are redis-py's, and for asyncio sending and parsing. Login, retries,
health checks, names and time-outs of whole rounds are ours, so its own are switched off. Beside what it
documents we use `connect` and what that calls, `disconnect` and, in the two modules that use this one, the
sockets, streams and parsers inside. Contract tests hold all of it to what it says here.
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

# redis-py makes these error replies a ConnectionError; here the connection is as good as before.
REPLIES: Final = (ResponseError, AuthenticationError, BusyLoadingError)
BROKEN: Final = (RedisError, OSError)
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
# CLIENT SETINFO costs a round trip, and some refuse it. To find out what to say costs half a millisecond
# for each connection, and leaves garbage. Which argument stops it depends on the version.
_NO_INTRODUCTION: Final[dict[str, None]] = (
    {"driver_info": None}
    if "driver_info" in inspect.signature(redis_async.AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)
_INCOMPLETE: Final = object()
_pack: Callable[[tuple[Argument, ...]], bytes] = cast("Any", hiredis.pack_command)


def _without_ints(command: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Return a command whose numbers are text.

    For a number hiredis asks for its `repr`, which runs signal handlers. If one of them raises, hiredis uses
    what it did not get, and the interpreter crashes.
    """
    # The calls of a drain have none, and this look costs a third of the conversion.
    if int not in map(type, command):
        return command
    return tuple([str(one) if type(one) is int else one for one in command])


def pack_command(commands: Iterable[tuple[Argument, ...]]) -> bytes:
    """Return the commands as the bytes that Redis reads; names that came from there as they were."""
    return b"".join([_pack_kept(one) if type(one) is PackedCommand else _pack_one(one) for one in commands])


def _pack_kept(command: PackedCommand) -> bytes:
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
    """Return the whole replies in what a server sent before it closed the connection.

    It closes one that is too large for it before it has read all, so that sending fails: only the last of
    its replies says why.
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
        ConfigurationError: when the files of TLS cannot be used, or unix sockets do not exist here.
        ForeignRedisError: when a test kit is in use that has another server.
    """
    check(target)
    options = _options(target, protocol, seconds)
    if target.tls is not None:
        return _without_cycle(_AsyncTLS(target.tls, options))
    return _without_cycle((_AsyncTCP if target.path is None else _AsyncUnix)(**options))


def blocking_connection(target: RedisTarget, seconds: float) -> Any:
    """Make a connection of redis-py for threads; the caller calls `connect` and logs in.

    Raises:
        ConfigurationError: when the files of TLS cannot be used, or unix sockets do not exist here.
        ForeignRedisError: when a test kit is in use that has another server.
    """
    check(target)
    options = _options(target, 2, seconds) | {"socket_timeout": seconds}
    if target.tls is not None:
        return _without_cycle(_BlockingTLS(target.tls, options))
    # To mypy the one for unix sockets is abstract: redis-py gives it no `host`.
    kind: Any = _BlockingTCP if target.path is None else _BlockingUnix
    return _without_cycle(kind(**options))


class _AsyncSilent:
    """Says nothing by itself once it is connected; `redis_connect_func` does not see to that everywhere."""

    _parser: Any

    async def on_connect(self) -> None:
        self._parser.on_connect(self)

    async def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - redis-py's
        del check_health
        self._parser.on_connect(self)


class _BlockingSilent:
    """As `_AsyncSilent`; what is received is parsed elsewhere."""

    def on_connect(self) -> None:
        pass

    def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - as above
        del check_health


class _AsyncTCP(_AsyncSilent, redis_async.Connection):
    pass


class _AsyncUnix(_AsyncSilent, redis_async.UnixDomainSocketConnection):
    pass


class _AsyncTLS(_AsyncTCP):
    """TLS with a context of ours: redis-py's cannot be told the server's name."""

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
    """As `_AsyncTLS`."""

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
    # A parser that holds a method of its own is freed by the garbage collector alone, and with it 64 KB or a
    # stream; in a worker, which leaves no other cycles, the collector hardly ever runs.
    connection._parser.set_pubsub_push_handler(_passed_on)  # noqa: SLF001 - there is no public way to it
    return connection


async def _passed_on(push: object) -> object:
    return push
