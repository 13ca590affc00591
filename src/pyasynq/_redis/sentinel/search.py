"""Sentinel: who is asked for the primary, what the answers mean, and what is tried next. It never waits.

`search` is a generator of steps; whoever performs them, for asyncio or for threads, sends back what came of
each.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyasynq._checks import whole_number_of
from pyasynq._redis.reply_errors import WAITED_OUT, ReplyError
from pyasynq._redis.steps import Received
from pyasynq.errors import ConfigurationError, PyasynqError, RedisAuthenticationError, nearest

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.plan import Argument
    from pyasynq._redis.steps import OpenAnswer
    from pyasynq._redis.url import RedisTarget

_REFUSED: Final = frozenset({"NOAUTH", "WRONGPASS", "NOPERM"})
_SHORTEST_STEP: Final = 0.001
_WHOSE_LOGIN: Final = (
    "user name and password before the hosts of the URL are for Redis, "
    "sentinel_username= and sentinel_password= are for the Sentinels"
)


class Ask(NamedTuple):
    """Ask a Sentinel, over a connection of its own. The answer is `Received`, or why there is none."""

    target: RedisTarget
    commands: Sequence[tuple[Argument, ...]]
    seconds: float


class Enter(NamedTuple):
    """Connect to what is said to be the primary. The answer is an `OpenAnswer`."""

    target: RedisTarget
    seconds: float


class Found(NamedTuple):
    """The primary, to which the caller is connected now, and the Sentinel that knew it."""

    primary: Address
    sentinel: Address


Search: TypeAlias = "Generator[Ask | Enter, Any, Found | OpenAnswer]"


def sentinel_target(target: RedisTarget, sentinel: Address) -> RedisTarget:
    """Return how to connect to one of the Sentinels of a target."""
    group = target.sentinels
    assert group is not None  # noqa: S101 - for mypy: only targets under Sentinel come here
    host, port = sentinel
    return dataclasses.replace(
        target,
        host=host,
        port=port,
        username=group.username,
        password=group.password,
        database=0,
        sentinels=None,
        found_as=target.address,
    )


def primary_target(target: RedisTarget, primary: Address) -> RedisTarget:
    """Return how to connect to the server that a Sentinel names; it must prove that it is a primary."""
    host, port = primary
    return dataclasses.replace(
        target, host=host, port=port, sentinels=None, must_be_primary=True, found_as=target.address
    )


def question(target: RedisTarget) -> tuple[Argument, ...]:
    """Return the command that asks a Sentinel where the primary is."""
    assert target.sentinels is not None  # noqa: S101 - as above
    return ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.sentinels.primary)


def address_in(reply: Any) -> Address | None:
    """Return the address that a Sentinel answered with."""
    match reply:
        case [bytes(host), bytes(port)]:
            number = whole_number_of(port.decode(errors="replace"))
            return None if number is None else (host.decode(errors="replace"), number)
    return None


def search(target: RedisTarget, sentinels: Sequence[Address], seconds: float) -> Search:
    """Find and enter the primary: ask each Sentinel until one names a server that is one.

    A Sentinel that was cut off may name a server of the past; then the next one is asked. What is left of
    the time is shared evenly by what is left to try, so that one that swallows all we send costs its share.

    Args:
        target: with the group.
        sentinels: in the order in which to ask them.
        seconds: for all of it.

    Returns:
        the primary, or why none was entered.
    """
    deadline = time.monotonic() + seconds

    left = len(sentinels) + 1

    def share() -> float:
        return max((deadline - time.monotonic()) / left, _SHORTEST_STEP)

    troubles = _Troubles()
    entered: set[Address] = set()
    for sentinel in sentinels:
        asked = sentinel_target(target, sentinel)
        answer = yield Ask(asked, [question(target)], share())
        primary = _named(answer)
        left -= 1
        if primary is None:
            if isinstance(answer, Received) and answer.replies == [None]:
                answer = _unknown(target, asked, (yield Ask(asked, [("SENTINEL", "MASTERS")], share())))
            troubles.of_sentinel(asked, answer)
            continue
        if primary in entered:
            continue
        entered.add(primary)
        candidate = primary_target(target, primary)
        opened: OpenAnswer = yield Enter(candidate, share())
        if opened is None:
            return Found(primary, sentinel)
        troubles.of_primary(candidate, opened)
    return troubles.worst()


class _Troubles:
    """Why no Sentinel led to a primary."""

    def __init__(self) -> None:
        self._primary: OpenAnswer = None
        self._fatal: PyasynqError | None = None
        self._passing: list[str] = []

    def of_sentinel(self, asked: RedisTarget, answer: Any) -> None:
        """Note what one Sentinel answered, or why it did not."""
        if isinstance(answer, Received):
            answer = _refusal(asked, answer.replies[0]) if answer.replies else answer.broken
        elif isinstance(answer, ReplyError):
            answer = _refusal(asked, answer)
        if isinstance(answer, PyasynqError):
            self._fatal = self._fatal or answer
        else:
            self._passing.append(f"{asked.address}: {answer}")

    def of_primary(self, candidate: RedisTarget, opened: OpenAnswer) -> None:
        """Note why the server that a Sentinel named could not be entered."""
        if isinstance(opened, ReplyError) and opened.code in _REFUSED:
            opened = RedisAuthenticationError(
                f"Redis at {candidate.address} refused us: {opened.message}; {_WHOSE_LOGIN}"
            )
        elif isinstance(opened, str):
            opened = f"the primary is at {candidate.address}: {opened}"
        self._primary = opened

    def worst(self) -> OpenAnswer:
        """Return what to tell.

        As long as one Sentinel names a server, what is wrong with the others does not matter. Otherwise
        what will not pass by itself comes first.
        """
        if self._primary is not None:
            return self._primary
        if self._fatal is not None:
            return self._fatal
        return (
            f"none of its Sentinels answers ({'; '.join(self._passing)}); "
            "start them, or correct their addresses, whose port is 26379 unless given"
        )


def _named(answer: object) -> Address | None:
    return address_in(answer.replies[0]) if isinstance(answer, Received) and answer.replies else None


def _unknown(target: RedisTarget, asked: RedisTarget, answer: object) -> ConfigurationError:
    assert target.sentinels is not None  # noqa: S101 - as above
    name = target.sentinels.primary
    known: list[str] = []
    if isinstance(answer, Received) and answer.replies and isinstance(answer.replies[0], list):
        # Each primary is a flat list of names and values; the first pair is its name.
        known = [fields[1].decode(errors="replace") for fields in answer.replies[0]]
    hint = nearest(name, known) or (f"; it knows {', '.join(map(repr, known))}" if known else "")
    return ConfigurationError(
        f"the Sentinel at {asked.address} knows no primary {name!r}: correct master= in the URL{hint}"
    )


def _refusal(asked: RedisTarget, reply: Any) -> PyasynqError | str:
    if not isinstance(reply, ReplyError):
        reply = ReplyError("ERR", f"a reply of type {type(reply).__name__}")
    if reply.code in _REFUSED:
        return RedisAuthenticationError(
            f"the Sentinel at {asked.address} refused us: {reply.message}; {_WHOSE_LOGIN}"
        )
    if reply.code in WAITED_OUT:
        return str(reply)
    return ConfigurationError(
        f"what answers at {asked.address} is no Sentinel ({reply}): "
        "name the Sentinels, whose usual port is 26379, or connect to Redis itself by redis://"
    )
