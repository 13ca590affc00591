"""Search for the primary through Sentinels, sans I/O.

`find_primary` is a generator of steps; the performer, for asyncio or for threads, sends back each answer.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyasynq._checks import parse_whole_number
from pyasynq._redis.addresses import format_address
from pyasynq._redis.reply_errors import WAITED_OUT, ReplyError
from pyasynq._redis.session import Received
from pyasynq.errors import ConfigurationError, PyasynqError, RedisAuthenticationError, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.plan import Argument
    from pyasynq._redis.session import OpenAnswer
    from pyasynq._redis.url import RedisTarget

_REFUSED: Final = frozenset({"NOAUTH", "WRONGPASS", "NOPERM"})
_SHORTEST_STEP: Final = 0.001
_WHOSE_LOGIN: Final = (
    "user name and password before the hosts of the URL are for Redis, "
    "sentinel_username= and sentinel_password= are for the Sentinels"
)


class AskSentinel(NamedTuple):
    """Step: ask a Sentinel, over a connection of its own.

    The answer is `Received`, or the reason why there is none.
    """

    target: RedisTarget
    commands: Sequence[tuple[Argument, ...]]
    seconds: float


class Enter(NamedTuple):
    """Step: connect to the server that should be the primary. The answer is an `OpenAnswer`."""

    target: RedisTarget
    seconds: float


class Named(NamedTuple):
    """The primary that a Sentinel has named in its answer.

    Attributes:
        primary: the address of the primary.
        epoch: configuration epoch of the primary, which each failover increases; None if the Sentinel does
            not report it.
    """

    primary: Address
    epoch: int | None


class FoundPrimary(NamedTuple):
    """The primary, to which the caller is now connected.

    Attributes:
        named: the primary and its epoch.
        heard: Sentinels that named a primary.
        silent: Sentinels that were asked and named none.
    """

    named: Named
    heard: frozenset[Address]
    silent: frozenset[Address]


Search: TypeAlias = "Generator[AskSentinel | Enter, Any, FoundPrimary | OpenAnswer]"


def sentinel_target(target: RedisTarget, sentinel: Address) -> RedisTarget:
    """Return the target of one of the Sentinels."""
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
    """Return the target of the server that a Sentinel names; connecting checks that it is a primary."""
    host, port = primary
    return dataclasses.replace(
        target, host=host, port=port, sentinels=None, must_be_primary=True, found_as=target.address
    )


def questions(target: RedisTarget) -> list[tuple[Argument, ...]]:
    """Return the commands that ask a Sentinel for the primary's address and epoch."""
    assert target.sentinels is not None  # noqa: S101 - as above
    # During a failover the first command knows the new address earlier than the second one.
    name = target.sentinels.primary
    return [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name), ("SENTINEL", "MASTER", name)]


def read_named(answer: object) -> Named | None:
    """Parse a Sentinel's answer to `questions`; None if it names no primary.

    A user may lack the right to the second command; then the epoch is unknown.
    """
    if not isinstance(answer, Received):
        return None
    match answer.replies:
        case [[bytes(host), bytes(port)], *more]:
            number = parse_whole_number(port.decode(errors="replace"))
            if number is not None:
                return Named((host.decode(errors="replace"), number), _read_epoch(*more))
    return None


def _read_epoch(fields: object = None) -> int | None:
    if not isinstance(fields, list) or b"config-epoch" not in fields[:-1]:
        return None
    value = fields[fields.index(b"config-epoch") + 1]
    return parse_whole_number(value.decode(errors="replace")) if isinstance(value, bytes) else None


def rank(named: Mapping[Address, Named], known: Named | None, sentinels: int) -> list[Named]:
    """Return the credible primaries among those that Sentinels name, the best one first.

    The highest epoch wins, as among Sentinels. Primaries with a lower epoch are left out, because writes to
    them are lost. If epochs are equal or unknown, the majority of Sentinels wins, then the known primary.

    Args:
        named: primary that each Sentinel names.
        known: the primary believed before. A lower epoch is accepted only if a majority of the Sentinels has
            answered, since they may all have been set up again.
        sentinels: number of Sentinels.
    """
    highest = max((_order(one) for one in named.values()), default=-1)
    if highest >= 0 and known is not None and highest < _order(known) and 2 * len(named) <= sentinels:
        return []
    votes = Counter(one.primary for one in named.values())
    possible = [one for one in dict.fromkeys(named.values()) if _order(one) in {highest, -1}]
    primary = None if known is None else known.primary
    return sorted(possible, key=lambda one: (-_order(one), -votes[one.primary], one.primary != primary))


def _order(named: Named) -> int:
    return -1 if named.epoch is None else named.epoch


def _is_settled(named: Mapping[Address, Named], known: Named | None, sentinels: int) -> bool:
    """Return whether a majority of the Sentinels names the same primary, whose epoch is not outdated."""
    [(best, count)] = Counter(named.values()).most_common(1)
    return 2 * count > sentinels and (known is None or _order(best) >= _order(known))


def find_primary(
    target: RedisTarget,
    sentinels: Sequence[Address],
    seconds: float,
    *,
    known: Named | None = None,
    silent: Collection[Address] = (),
) -> Search:
    """Find the primary and connect to it.

    Sentinels are asked one after the other until a majority agrees; if they do not, all are asked, and the
    highest epoch is believed. The remaining time is divided evenly among the remaining attempts, so a
    Sentinel that silently drops packets costs only its share.

    Args:
        target: the target; its `sentinels` is the group.
        sentinels: Sentinels in the order in which to ask them.
        seconds: time limit of the whole search.
        known: the primary believed before.
        silent: Sentinels that did not answer the last time, at the end of `sentinels`. They are asked only if
            the others do not lead to a primary.

    Returns:
        the primary, or why no connection to it was made.
    """
    deadline = time.monotonic() + seconds

    def share(left: int) -> float:
        return max((deadline - time.monotonic()) / left, _SHORTEST_STEP)

    troubles = _Troubles()
    named: dict[Address, Named] = {}
    entered: set[Address] = set()
    for place, sentinel in enumerate(sentinels):
        waiting = sentinels[place + 1 :]
        asked = sentinel_target(target, sentinel)
        answer = yield AskSentinel(asked, questions(target), share(len(waiting) + 2))
        if (found := read_named(answer)) is not None:
            named[sentinel] = found
        else:
            if isinstance(answer, Received) and answer.replies[:1] == [None]:
                names = yield AskSentinel(asked, [("SENTINEL", "MASTERS")], share(len(waiting) + 1))
                answer = _explain_unknown_primary(target, asked, names)
            troubles.note_sentinel(asked, answer)
        if waiting and not (named and (waiting[0] in silent or _is_settled(named, known, len(sentinels)))):
            continue
        candidates = [one for one in rank(named, known, len(sentinels)) if one.primary not in entered]
        for number, candidate in enumerate(candidates):
            entered.add(candidate.primary)
            server = primary_target(target, candidate.primary)
            opened: OpenAnswer = yield Enter(server, share(len(waiting) + len(candidates) - number))
            if opened is None:
                heard = frozenset(named)
                return FoundPrimary(candidate, heard, frozenset(sentinels[: place + 1]) - heard)
            troubles.note_primary(server, opened)
    if named and known is not None and not entered:
        return f"the Sentinels that answer name a primary from before {format_address(known.primary)}"
    return troubles.get_error()


class _Troubles:
    """Failures of a search for the primary, and the choice of the one to report."""

    def __init__(self) -> None:
        self._primary: OpenAnswer = None
        self._fatal: PyasynqError | None = None
        self._passing: list[str] = []

    def note_sentinel(self, asked: RedisTarget, answer: Any) -> None:
        """Record that a Sentinel named no primary, or why it did not answer."""
        if isinstance(answer, Received):
            answer = _refusal(asked, answer.replies[0]) if answer.replies else answer.broken
        elif isinstance(answer, ReplyError):
            answer = _refusal(asked, answer)
        if isinstance(answer, PyasynqError):
            self._fatal = self._fatal or answer
        else:
            self._passing.append(f"{asked.address}: {answer}")

    def note_primary(self, candidate: RedisTarget, opened: OpenAnswer) -> None:
        """Record why connecting to the server that a Sentinel named failed."""
        if isinstance(opened, ReplyError) and opened.code in _REFUSED:
            opened = RedisAuthenticationError(
                f"Redis at {candidate.address} refused us: {opened.message}; {_WHOSE_LOGIN}"
            )
        elif isinstance(opened, str):
            opened = f"the primary is at {candidate.address}: {opened}"
        self._primary = opened

    def get_error(self) -> OpenAnswer:
        """Return the error to report.

        A failure to connect to a server that a Sentinel named comes first. Then come permanent errors of
        Sentinels, then their temporary failures.
        """
        if self._primary is not None:
            return self._primary
        if self._fatal is not None:
            return self._fatal
        return (
            f"none of its Sentinels answers ({'; '.join(self._passing)}); "
            "start them, or correct their addresses, whose port is 26379 unless given"
        )


def _explain_unknown_primary(target: RedisTarget, asked: RedisTarget, answer: object) -> ConfigurationError:
    assert target.sentinels is not None  # noqa: S101 - as above
    name = target.sentinels.primary
    known: list[str] = []
    if isinstance(answer, Received) and answer.replies and isinstance(answer.replies[0], list):
        # Each primary is a flat list of names and values; the first pair is its name.
        known = [fields[1].decode(errors="replace") for fields in answer.replies[0]]
    hint = nearest(name, known) or (f"; it knows {', '.join(map(repr, known))}" if known else "")
    return ConfigurationError(
        f"the Sentinel at {asked.address} does not know primary {name!r}: correct master= in the URL{hint}"
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
        f"the server at {asked.address} is not a Sentinel ({reply}): "
        "name the Sentinels, whose usual port is 26379, or connect to Redis itself by redis://"
    )
