"""Names, numbers and scores as stored in Redis, where any program may have written something else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import MAX_TASKS
from pyasynq._redis.plan import CommandCall, Replay
from pyasynq.errors import UndecodableMessageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyasynq._redis.plan import Plan

_LONGEST_NUMBER: Final = 20


def decode_name(data: bytes) -> str:
    """Decode a name so that it can be sent back to Redis: bytes that are not UTF-8 survive the round trip."""
    return data.decode("utf-8", "surrogateescape")


def display_name(data: bytes) -> str:
    """Decode a name for display; bytes that are not UTF-8 become escapes."""
    return data.decode("utf-8", "backslashreplace")


def readable_names(names: Iterable[bytes]) -> Iterator[str]:
    """Yield the names that are UTF-8; neither pyasynq nor Go clients write others."""
    for data in names:
        try:
            yield data.decode()
        except UnicodeDecodeError:
            continue


def scan_names(key: str) -> Plan[set[bytes]]:
    """Return the members of a set, 1,000 in one call; members added or removed meanwhile may be missing."""
    cursor, names = b"0", set[bytes]()
    while True:
        command = ("SSCAN", key, cursor, "COUNT", MAX_TASKS)
        cursor, page = yield CommandCall(command, key, Replay.SAFE)
        names.update(page)
        if cursor == b"0":
            return names


def field_pairs(reply: dict[bytes, bytes] | Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """Return fields and values of an HGETALL reply, for RESP2 and RESP3."""
    if isinstance(reply, dict):
        return reply.items()
    return zip(reply[::2], reply[1::2], strict=True)


def parse_number(data: bytes | int | None) -> int:
    """Parse bytes as a 64-bit whole number; return 0 for any other value."""
    if isinstance(data, int):
        return data
    if data is None or len(data) > _LONGEST_NUMBER:
        return 0
    try:
        return int(data)
    except ValueError:
        return 0


def whole_second(score: bytes) -> int | None:
    """Return a sorted set's score in Unix seconds, rounded up to a whole one; None for an infinite one."""
    number = float(score)
    return math.ceil(number) if math.isfinite(number) else None


def check_task_id(task_id: str, message: bytes) -> None:
    """Raise `UndecodableMessageError` for an id that is not UTF-8: a server's record could not hold it."""
    if not task_id.isascii():
        try:
            task_id.encode()
        except UnicodeEncodeError:
            raise UndecodableMessageError("TaskMessage", message, "its id is not UTF-8") from None
