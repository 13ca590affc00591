"""The audit log in two streams: calls of operators that changed something, and refused calls."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import FIRST_SEND
from pyasynq._broker.scripts import AUDIT_REFUSE, AUDIT_WRITE
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import AUDIT_KEY, REFUSED_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

AUDIT_LENGTH: Final = 100_000
"""Approximate number of entries that the audit keeps: about 40 MB."""
REFUSED_LENGTH: Final = 10_000
"""Approximate number of refused calls that are kept."""
REFUSED_PER_MINUTE: Final = 10
"""Largest number of entries of one user and address in a minute; further calls are only counted.

So one user cannot push the entries of others out of the stream.
"""

_FIELDS_OF_ENTRY: Final = 4
_FIELDS_OF_REFUSAL: Final = 6


class Written(NamedTuple):
    """An entry of the audit log, as stored in its stream.

    Attributes:
        position: position in the stream, `MILLISECONDS-NUMBER`.
        entry: the entry as JSON.
        more: how many further refused calls the entry counts.
    """

    position: str
    entry: bytes
    more: int = 0


def write_audit(entry: bytes, *, intent: str = "") -> Plan[str]:
    """Append an entry and return its position. It replaces the entry at `intent`, which announced it."""
    args = (FIRST_SEND, AUDIT_LENGTH, secrets.token_hex(8), intent, entry)
    position: bytes = yield ScriptCall(AUDIT_WRITE, (AUDIT_KEY,), args, Replay.BY_TOKEN)
    return position.decode()


def write_refusal(entry: bytes, who: str) -> Plan[int]:
    """Record a refused call of `who`, a user and address.

    It becomes an entry, or is counted in the newest entry of `who` if there are too many (rate limit).

    Return the number of further refused calls that the newest entry of `who` counts.
    """
    args = (REFUSED_LENGTH, REFUSED_PER_MINUTE, who, entry)
    # A resent call counts twice: a number that is one too high does no harm.
    more: int = yield ScriptCall(AUDIT_REFUSE, (REFUSED_KEY,), args, Replay.SAFE)
    return more


def read_audit(before: str, count: int) -> Plan[list[Written]]:
    """Return up to `count` entries of the audit that are older than a position, newest first."""
    replies = yield from _read(AUDIT_KEY, before, count)
    return [
        Written(position.decode(), fields[3])
        for position, fields in replies
        if len(fields) == _FIELDS_OF_ENTRY
    ]


def read_refused(before: str, count: int) -> Plan[list[Written]]:
    """Return refused calls, paged like the entries of `read_audit`."""
    replies = yield from _read(REFUSED_KEY, before, count)
    return [
        Written(position.decode(), fields[5], int(fields[3]))
        for position, fields in replies
        if len(fields) == _FIELDS_OF_REFUSAL and fields[3].isdigit()
    ]


def _read(key: str, before: str, count: int) -> Plan[Sequence[tuple[bytes, Sequence[bytes]]]]:
    newest = f"({before}" if before else "+"
    command = ("XREVRANGE", key, newest, "-", "COUNT", count)
    replies: Sequence[tuple[bytes, Sequence[bytes]]] = yield CommandCall(command, key, Replay.SAFE)
    return replies
