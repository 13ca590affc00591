"""Names, numbers and scores as stored in Redis, where any program may have written something else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import MAX_TASKS
from pyasynq._redis.plan import CommandCall, Replay
from pyasynq.errors import UndecodableMessageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyasynq._redis.plan import Plan

_LONGEST_NUMBER: Final = 20


def decode_name(data: bytes) -> str:
    """Return a name that is sent back to Redis: bytes in it that are no UTF-8 come out as they were."""
    return data.decode("utf-8", "surrogateescape")


def shown(data: bytes) -> str:
    """Return a name for people, who see bytes that are no UTF-8 as escapes."""
    return data.decode("utf-8", "backslashreplace")


def readable_names(names: Iterable[bytes]) -> Iterator[str]:
    """Yield the names that are UTF-8; no client of ours or in Go makes others."""
    for data in names:
        try:
            yield data.decode()
        except UnicodeDecodeError:
            continue


def scan_names(key: str) -> Plan[set[bytes]]:
    """Return the members of a set, 1,000 in one call; those that come or go meanwhile may be missing."""
    cursor, names = b"0", set[bytes]()
    while True:
        command = ("SSCAN", key, cursor, "COUNT", MAX_TASKS)
        cursor, page = yield CommandCall(command, key, Replay.SAFE)
        names.update(page)
        if cursor == b"0":
            return names


def number_of(data: bytes | int | None) -> int:
    """Return a whole number of 64 bits, and 0 for what is none."""
    if isinstance(data, int):
        return data
    if data is None or len(data) > _LONGEST_NUMBER:
        return 0
    try:
        return int(data)
    except ValueError:
        return 0


def whole_second(score: bytes) -> int | None:
    """Return the score of a sorted set, Unix seconds, rounded up to a whole one; None for an infinite one."""
    number = float(score)
    return math.ceil(number) if math.isfinite(number) else None


def check_task_id(task_id: str, message: bytes) -> None:
    """Raise `UndecodableMessageError` for an id that is no UTF-8, which no record could name."""
    if not task_id.isascii():
        try:
            task_id.encode()
        except UnicodeEncodeError:
            raise UndecodableMessageError("TaskMessage", message, "its id is no UTF-8") from None
