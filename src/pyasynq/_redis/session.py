"""The session of one connection: its steps, login and greeting, and the state that a driver's sessions share.

A step is what the pure part of a driver asks for; its answer is what it is told in return.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyasynq._redis.failures import unlike_redis
from pyasynq._redis.reply_errors import WAITED_OUT, ReplyError
from pyasynq._visible_text import visible
from pyasynq.errors import RedisUnavailableError, RedisVersionError
from pyasynq.events import ServerWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from pyasynq._clock import Clock
    from pyasynq._redis.plan import Argument, Reply
    from pyasynq._redis.url import RedisTarget
    from pyasynq.errors import PyasynqError

_log = logging.getLogger("pyasynq")
MAX_CONNECTIONS: Final = 10
"""The connections of a driver to one server, so the most rounds that are under way there."""
_OLDEST_VERSION: Final = (6, 2)
_FLAGS_SINCE: Final = (7, 0)
_FATAL: Final = frozenset({"NOAUTH", "WRONGPASS"})
_ROLE: Final[tuple[Argument, ...]] = ("INFO", "replication")
"""Not ROLE, for which users under access lists would need a right more. A server that refuses it is believed:
a replica says READONLY before long."""
_NOT_YET: Final = frozenset({"NOAUTH", "WRONGPASS", *WAITED_OUT})


class Open(NamedTuple):
    """Connect. The answer is an `OpenAnswer`."""

    seconds: float


class Send(NamedTuple):
    """Send commands in one write and read a reply for each. The answer is `Received`."""

    commands: Sequence[tuple[Argument, ...]]
    seconds: float


class Pause(NamedTuple):
    """Wait. No answer."""

    seconds: float


class Close(NamedTuple):
    """Drop the connection if there is one. No answer."""


Step: TypeAlias = Open | Send | Pause | Close

OpenAnswer: TypeAlias = "ReplyError | PyasynqError | str | None"
"""None if there is a connection. Otherwise the answer of the server, or the error that broke it."""


class Received(NamedTuple):
    """The replies up to the point where the connection broke, if it did.

    Attributes:
        replies: in the order of the commands.
        broken: why there are fewer replies than commands; None when there are not.
        sent: False when it is certain that not one byte of the commands left.
    """

    replies: list[Reply | ReplyError]
    broken: str | None = None
    sent: bool = True


def no_time() -> Received:
    """Return what comes of an exchange when connecting has taken all the time."""
    return Received([], "no time was left for it", sent=False)


def log_warning(warning: ServerWarning) -> None:
    """Log a warning about the server, as drivers do unless told otherwise."""
    _log.warning("%s", visible(warning.message))


@dataclass(slots=True, eq=False)
class Session:
    """One connection as the decisions see it. After a reconnection it may lead to another server."""

    is_open: bool = False
    last_used: float = 0.0
    script_flags: bool = True
    scripts_refused: bool = False


@dataclass(slots=True, eq=False)
class DriverState:
    """What the sessions of one driver share.

    Attributes:
        address: of the server, without the password.
        client_name: what `CLIENT LIST` shows for our connections.
        timeout: seconds for one round, with everything that is sent again.
        clock: for `last_disconnect`; the time-outs themselves run in real time.
        on_warning: told once of each thing that the server refuses and that we can do without.
        last_disconnect: when a connection broke under a call, on the clock's monotonic scale.
        disconnects: the same for each node of a cluster that this has happened to, by its address.
    """

    address: str
    client_name: str
    timeout: float
    clock: Clock
    on_warning: Callable[[ServerWarning], object]
    monotonic: Callable[[], float] = time.monotonic
    last_disconnect: float | None = None
    disconnects: dict[str, float] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    _whole: DriverState | None = None

    def of_node(self, address: str) -> DriverState:
        """Return the state for one node of a cluster, which tells this one what it meets."""
        return replace(self, address=address, _whole=self)

    def note_disconnect(self) -> None:
        """Remember that a connection broke just now."""
        self.last_disconnect = self.clock.monotonic()
        if self._whole is not None:
            self._whole.last_disconnect = self.last_disconnect
            self.disconnects[self.address] = self.last_disconnect

    def warn_once(self, code: str, message: str) -> None:
        """Report something, unless a warning of this code has been given before."""
        if code not in self._warned:
            self._warned.add(code)
            self.on_warning(ServerWarning(code, message))


def all_busy(state: DriverState) -> RedisUnavailableError:
    """Return the error for a round that got no connection."""
    cause = f"all {MAX_CONNECTIONS} connections have been busy for {state.timeout:g} s"
    return RedisUnavailableError(state.address, cause)


def login_commands(target: RedisTarget, protocol: int) -> list[tuple[Argument, ...]]:
    """Return the commands that a new connection begins with; there may be none."""
    commands: list[tuple[Argument, ...]] = []
    if target.username is not None:
        commands.append(("AUTH", target.username, target.password or ""))
    elif target.password is not None:
        commands.append(("AUTH", target.password))
    if protocol == 3:
        # Without the login: a server that does not know HELLO would only say that we are not logged in.
        commands.append(("HELLO", 3))
    if target.database:
        commands.append(("SELECT", target.database))
    if target.must_be_primary:
        commands.append(_ROLE)
    return commands


def login_refusal(commands: Sequence[tuple[Argument, ...]], received: Received) -> ReplyError | str | None:
    """Return why the server does not let us in, or None."""
    if received.broken is not None:
        return unlike_redis(received.broken)
    for command, reply in zip(commands, received.replies, strict=True):
        if command is _ROLE:
            if isinstance(reply, ReplyError) and reply.code in _NOT_YET:
                return reply
            if not isinstance(reply, ReplyError) and b"role:master" not in reply.splitlines():
                return "it is a replica; the fail-over is not over, or was not made by the Sentinels"
        elif isinstance(reply, ReplyError):
            if command[0] == "AUTH" and reply.code not in WAITED_OUT:
                # A server that has no passwords answers ERR to one.
                return ReplyError("WRONGPASS", reply.message)
            return reply
    return None


def greet(
    session: Session,
    state: DriverState,
    seconds: float,
) -> Generator[Step, Any, OpenAnswer]:
    """Name the connection and learn the server's version; return None, or why it cannot be used.

    Managed servers and proxies may refuse either command: then one warning is given, and the server is
    taken for a Redis 7 until it cannot read a script's flags.
    """
    commands: list[tuple[Argument, ...]] = [("CLIENT", "SETNAME", state.client_name), ("INFO", "server")]
    received: Received = yield Send(commands, seconds)
    if received.broken is not None:
        return unlike_redis(received.broken)
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
            f"Redis at {state.address} refuses {names}: where CLIENT is refused, connections have no name; "
            "without INFO the server is taken for a Redis 7, and nobody sees whether it evicts tasks",
        )
    info = received.replies[1]
    if isinstance(info, ReplyError):
        return None
    version = redis_version(info)
    numbers = version_numbers(version)
    if numbers and numbers < _OLDEST_VERSION:
        return RedisVersionError(version)
    session.script_flags = not numbers or numbers >= _FLAGS_SINCE
    return None


def redis_version(info: bytes) -> str:
    """Return `redis_version` of an INFO reply; other servers set it to what they are compatible with."""
    for line in info.splitlines():
        name, _, value = line.partition(b":")
        if name == b"redis_version":
            return value.decode("utf-8", "replace").strip()
    return "7.0"  # a compatible server that keeps its version to itself


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (7, 2, 4) for `7.2.4-rc1`."""
    numbers = []
    for part in version.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
