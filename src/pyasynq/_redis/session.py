"""Session of one connection: the steps of a driver, login, greeting, and the state that its sessions share.

The sans-I/O part of a driver yields a step; the driver performs it and sends back the answer.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyasynq._redis.failures import explain_protocol_failure
from pyasynq._redis.reply_errors import WAITED_OUT, ReplyError
from pyasynq._visible_text import visible
from pyasynq.errors import RedisUnavailableError, RedisVersionError
from pyasynq.events import RedisWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from pyasynq._clock import Clock
    from pyasynq._redis.plan import Argument, Reply
    from pyasynq._redis.url import RedisTarget
    from pyasynq.errors import PyasynqError

_log = logging.getLogger("pyasynq")
MAX_CONNECTIONS: Final = 10
"""Size of a driver's connection pool for one Redis server; further rounds wait for a connection."""
_OLDEST_VERSION: Final = (6, 2)
_FLAGS_SINCE: Final = (7, 0)
_FATAL: Final = frozenset({"NOAUTH", "WRONGPASS"})
_ROLE: Final[tuple[Argument, ...]] = ("INFO", "replication")
"""Command that shows whether the server is a primary.

ROLE would need one more ACL right. A server that refuses INFO counts as a primary: a replica will soon answer
READONLY.
"""
_NOT_YET: Final = frozenset({"NOAUTH", "WRONGPASS", *WAITED_OUT})


class Open(NamedTuple):
    """Step: connect. The answer is an `OpenAnswer`."""

    seconds: float


class Send(NamedTuple):
    """Step: send commands in one write and read a reply for each. The answer is `Received`."""

    commands: Sequence[tuple[Argument, ...]]
    seconds: float


class Pause(NamedTuple):
    """Step: wait for some seconds. It has no answer."""

    seconds: float


class Close(NamedTuple):
    """Step: close the connection if there is one. It has no answer."""


SessionStep: TypeAlias = Open | Send | Pause | Close

OpenAnswer: TypeAlias = "ReplyError | PyasynqError | str | None"
"""Outcome of connecting: None for success, the server's error reply, or the reason of the failure."""


class Received(NamedTuple):
    """Replies to the commands of one exchange: all of them, or those before the connection broke.

    Attributes:
        replies: replies in the order of the commands.
        broken: the reason if the connection broke before the last reply; otherwise None.
        sent: False if it is certain that no byte of the commands was sent.
    """

    replies: list[Reply | ReplyError]
    broken: str | None = None
    sent: bool = True


def no_time_left() -> Received:
    """Return the result of an exchange that was not begun, because connecting has used up its time."""
    return Received([], "no time was left for it", sent=False)


def log_warning(warning: RedisWarning) -> None:
    """Log a warning about Redis: the default of drivers."""
    _log.warning("%s", visible(warning.message))


@dataclass(slots=True, eq=False)
class RedisSession:
    """State of one connection: whether it is open, and what its Redis server supports.

    The function `exchange` decides by this state what to send. Each reconnection resets the state, since the
    connection may lead to another server.
    """

    is_open: bool = False
    last_used: float = 0.0
    script_flags: bool = True
    scripts_refused: bool = False


@dataclass(slots=True, eq=False)
class DriverState:
    """State shared by the sessions of one driver.

    Attributes:
        address: address of the server, without the password.
        client_name: the name of our connections in `CLIENT LIST`.
        timeout: seconds for one round, including everything that is resent.
        clock: measures `last_disconnect` and `restarts`; timeouts run in real time.
        on_warning: called once for each optional command that the server refuses.
        last_disconnect: monotonic time of the clock at which a connection last broke during a call.
        disconnects: time of the last such break for each cluster node, by address of the node.
        runs: id of the server process that the newest connection to each address has reached, if known.
        restarts: monotonic time of the clock at which this id has last changed, by address.
    """

    address: str
    client_name: str
    timeout: float
    clock: Clock
    on_warning: Callable[[RedisWarning], object]
    monotonic: Callable[[], float] = time.monotonic
    last_disconnect: float | None = None
    disconnects: dict[str, float] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    restarts: dict[str, float] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    _whole: DriverState | None = None

    def of_node(self, address: str) -> DriverState:
        """Return the state for a node of a cluster; it also reports its disconnects to this state."""
        return replace(self, address=address, _whole=self)

    def note_disconnect(self) -> None:
        """Record that a connection has just broken."""
        self.last_disconnect = self.clock.monotonic()
        if self._whole is not None:
            self._whole.last_disconnect = self.last_disconnect
            self.disconnects[self.address] = self.last_disconnect

    def note_run(self, run: str) -> None:
        """Record which server process a new connection has reached: a restart or a failover changes it."""
        before = self.runs.get(self.address, run)
        self.runs[self.address] = run
        if before != run:
            self.restarts[self.address] = self.clock.monotonic()

    def warn_once(self, code: str, message: str) -> None:
        """Report a warning, once for each code."""
        if code not in self._warned:
            self._warned.add(code)
            self.on_warning(RedisWarning(code, message))


def build_busy_error(state: DriverState) -> RedisUnavailableError:
    """Return the error for a round that got no connection within the timeout."""
    cause = f"all {MAX_CONNECTIONS} connections have been busy for {state.timeout:g} s"
    return RedisUnavailableError(state.address, cause)


def login_commands(target: RedisTarget, protocol: int) -> list[tuple[Argument, ...]]:
    """Return the commands that log a new connection in; the list may be empty."""
    commands: list[tuple[Argument, ...]] = []
    if target.username is not None:
        commands.append(("AUTH", target.username, target.password or ""))
    elif target.password is not None:
        commands.append(("AUTH", target.password))
    if protocol == 3:
        # HELLO has no credentials, and AUTH comes before it: a server that does not know HELLO then says so.
        commands.append(("HELLO", 3))
    if target.database:
        commands.append(("SELECT", target.database))
    if target.must_be_primary:
        commands.append(_ROLE)
    if target.sends_readonly:
        commands.append(("READONLY",))
    return commands


def login_refusal(commands: Sequence[tuple[Argument, ...]], received: Received) -> ReplyError | str | None:
    """Return why the server refuses the connection, or None."""
    if received.broken is not None:
        return explain_protocol_failure(received.broken)
    for command, reply in zip(commands, received.replies, strict=True):
        if command is _ROLE:
            if isinstance(reply, ReplyError) and reply.code in _NOT_YET:
                return reply
            if not isinstance(reply, ReplyError) and b"role:master" not in reply.splitlines():
                return "it is a replica; the failover is still running, or was not made by the Sentinels"
        elif isinstance(reply, ReplyError):
            if command[0] == "AUTH" and reply.code not in WAITED_OUT:
                # A server that requires no password answers AUTH with ERR.
                return ReplyError("WRONGPASS", reply.message)
            return reply
    return None


def greet(
    session: RedisSession,
    state: DriverState,
    seconds: float,
) -> Generator[SessionStep, Any, OpenAnswer]:
    """Name the connection and learn the server's version; return None, or why it cannot be used.

    Managed servers and proxies may refuse either command. Then one warning is given, and the server counts
    as a Redis 7 until it cannot read a script's flags line.
    """
    commands: list[tuple[Argument, ...]] = [("CLIENT", "SETNAME", state.client_name), ("INFO", "server")]
    received: Received = yield Send(commands, seconds)
    if received.broken is not None:
        return explain_protocol_failure(received.broken)
    session.last_used = state.monotonic()
    session.scripts_refused = False
    session.script_flags = True
    refused = []
    for command, reply in zip(commands, received.replies, strict=True):
        if not isinstance(reply, ReplyError):
            continue
        if reply.code in _FATAL or reply.code in WAITED_OUT:
            return reply
        refused.append(f"{command[0]!s} {command[1]!s}" if command[0] == "CLIENT" else f"{command[0]!s}")
    if refused:
        names = " and ".join(refused)
        state.warn_once(
            "command_refused",
            f"Redis at {state.address} refuses {names}: without CLIENT, connections have no name; "
            "without INFO the server counts as a Redis 7, and eviction of tasks goes unnoticed",
        )
    info = received.replies[1]
    if isinstance(info, ReplyError):
        state.note_run("")
        return None
    state.note_run(_find_field(info, b"run_id") or "")
    version = redis_version(info)
    numbers = version_numbers(version)
    if numbers and numbers < _OLDEST_VERSION:
        return RedisVersionError(version)
    session.script_flags = not numbers or numbers >= _FLAGS_SINCE
    return None


def redis_version(info: bytes) -> str:
    """Return `redis_version` of an INFO reply: the Redis version with which the server is compatible."""
    version = _find_field(info, b"redis_version")
    return "7.0" if version is None else version  # a compatible server may not report one


def _find_field(info: bytes, wanted: bytes) -> str | None:
    """Return a field of an INFO reply, or None."""
    for line in info.splitlines():
        name, _, value = line.partition(b":")
        if name == wanted:
            return value.decode("utf-8", "replace").strip()
    return None


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (7, 2, 4) for `7.2.4-rc1`."""
    numbers = []
    for part in version.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
