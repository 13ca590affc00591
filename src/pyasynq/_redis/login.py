"""The first words on a connection: who we are, which protocol we speak, which database we want."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._redis.failures import unlike_redis
from pyasynq._redis.reply_errors import WAITED_OUT, ReplyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._redis.plan import Argument
    from pyasynq._redis.steps import Received
    from pyasynq._redis.url import RedisTarget

_ROLE: Final[tuple[Argument, ...]] = ("INFO", "replication")
"""Not ROLE, for which users under access lists would need a right more. A server that refuses it is believed:
a replica says READONLY before long."""
_NOT_YET: Final = frozenset({"NOAUTH", "WRONGPASS", *WAITED_OUT})


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
