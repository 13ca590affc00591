"""The steps that the pure part of a driver asks for, and what it is told in return."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._redis.plan import Argument, Reply
    from pyasynq._redis.reply_errors import ReplyError
    from pyasynq.errors import PyasynqError


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
"""None, or why there is no connection: what the server said, why none can be started, what broke."""


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
