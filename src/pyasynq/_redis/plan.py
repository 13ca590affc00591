"""Plans: sans-I/O generators that hold every decision of the broker.

A plan is a generator that yields Redis calls and is sent their replies; its return value is the
operation's result. It never waits, so the same plan serves the asyncio driver, the blocking driver,
batches of plans and tests without Redis:

    def enqueue(...) -> Plan[None]:
        reply = yield ScriptCall(TASK_ENQUEUE, keys=(...), args=(...), replay=Replay.BY_TOKEN)

An error of a call is thrown into its own plan at the `yield`, as one of the classes of
:mod:`pyasynq.errors`, and touches no other plan of the batch.
"""

from __future__ import annotations

import enum
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from pyasynq._redis.script import Script

_T = TypeVar("_T")

Argument: TypeAlias = str | bytes | int
"""Arguments of a call. Floats are not allowed: scores and times on the wire are integers."""

Reply: TypeAlias = Any
"""A Redis reply: int, bytes, None, or a list of replies."""


Place: TypeAlias = int | None
"""Routing target of a command: a hash slot, for its primary; None for any node, or for a single server."""


class Replay(enum.Enum):
    """Whether a driver may resend a call when the connection broke after it had been sent (idempotence)."""

    SAFE = "safe"
    """The call may be resent: running it twice has the same effect as running it once."""

    BY_TOKEN = "by_token"  # noqa: S105 - not a password
    """The call may be resent with ARGV[1] set to 1: the script recognises its first run by id or token."""

    NEVER = "never"
    """The call is never resent: `ReplyLostError` is thrown into the plan."""


class ScriptCall(NamedTuple):
    """One run of a Lua script. All keys carry the same `{queue}` hash tag."""

    script: Script
    keys: tuple[str, ...]
    args: tuple[Argument, ...]
    replay: Replay


class PackedCommand(tuple[Argument, ...]):  # noqa: SLOT001 - a tuple has no slots for attributes
    """A command that is sent many times, but encoded in the Redis protocol only once.

    Attributes:
        packed: bytes of the encoded command; written when it is first sent, empty before that.
    """

    packed: bytes = b""


class CommandCall(NamedTuple):
    """One plain Redis command. `key` routes it in a cluster: it is the name of a key, or a `Place`."""

    command: tuple[Argument, ...]
    key: str | Place
    replay: Replay


PlainCall: TypeAlias = ScriptCall | CommandCall


class DurableCall(NamedTuple):
    """A write after which the driver waits for replicas (Redis' WAIT); the reply is a `Confirmed`.

    Attributes:
        call: the write.
        marker: key on the same node that is written after the write.
        replicas: number of replicas that are to have the write.
    """

    call: PlainCall
    marker: str
    replicas: int

    @property
    def key(self) -> str:
        """The key that routes this call in a cluster."""
        return self.marker

    @property
    def replay(self) -> Replay:
        """The `Replay` of the write."""
        return self.call.replay


Call: TypeAlias = PlainCall | DurableCall
Plan: TypeAlias = Generator[Call, Reply, _T]


def ask(call: Call) -> Plan[Reply]:
    """Return a plan that makes one call and returns its reply."""
    return (yield call)
