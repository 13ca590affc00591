"""The steps that the pure part of a driver asks for, and what it is told in return."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._broker.plan import Argument, Reply
    from pyasynq._broker.reply_errors import ReplyError
    from pyasynq.errors import PyasynqError


class Unfit(NamedTuple):
    """Why a connection cannot be used until somebody changes something: trying again is of no use.

    Attributes:
        error: makes the error; each call that meets it gets its own.
    """

    error: Callable[[], PyasynqError]


class Open(NamedTuple):
    """Connect. The answer is None, or why not: what the server said, or what happened on the way to it."""

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


Refusal: TypeAlias = "ReplyError | Unfit | str"
"""Why there is no connection: what the server said, what has to be changed, or what happened on the way."""
Step: TypeAlias = Open | Send | Pause | Close


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
