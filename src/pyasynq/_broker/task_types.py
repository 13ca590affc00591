"""The task types that workers publish: descriptions that tools need without importing the app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyasynq._broker.arguments import chunks, time_arguments
from pyasynq._broker.scripts import TYPE_PUBLISH, TYPE_RENEW
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import TASK_TYPES_KEY
from pyasynq._wire.task_type_text import decode_task_type, encode_task_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant
    from pyasynq.task_types import TaskTypeInfo

KEPT_SECONDS: Final = 30 * 86_400
"""Seconds for which a description is kept after a worker named the type last."""
MAX_PUBLISHED_TYPES: Final = 2_000
"""Maximum number of task types whose descriptions Redis keeps."""
_SAMPLE: Final = 20
"""Number of random types that each call checks for expiry, as Redis' active expiry does with keys."""
_PAGE: Final = 200
"""Number of fields that one call of a reader requests: at most 6.5 MB, and a few hundred KB in practice."""


def publish_types(types: Sequence[TaskTypeInfo], now: Instant | None = None) -> Plan[list[str]]:
    """Write descriptions; return the types left out because they are too large or too many."""
    encoded = [(one.type, encode_task_type(one)) for one in types]
    refused = [name for name, data in encoded if data is None]
    pairs = [(name, data) for name, data in encoded if data is not None]
    for some in chunks(pairs, width=2, size_of=_size):
        tail = [argument for pair in some for argument in pair]
        args = (*time_arguments(now), KEPT_SECONDS, MAX_PUBLISHED_TYPES, _SAMPLE, *tail)
        names = yield ScriptCall(TYPE_PUBLISH, (TASK_TYPES_KEY,), args, Replay.SAFE)
        refused += [name.decode("utf-8", "replace") for name in names]
    return refused


def renew_types(types: Sequence[str], now: Instant | None = None) -> Plan[list[str]]:
    """Record that a worker still serves these types; return the types that have no description in Redis."""
    missing: list[str] = []
    for some in chunks(types):
        args = (*time_arguments(now), KEPT_SECONDS, *some)
        names = yield ScriptCall(TYPE_RENEW, (TASK_TYPES_KEY,), args, Replay.SAFE)
        missing += [name.decode("utf-8", "replace") for name in names]
    return missing


def read_types(now: Instant) -> Plan[list[TaskTypeInfo]]:
    """Return the types that a worker has named within 30 days, by name; leave out unreadable ones."""
    cursor: Any = b"0"
    found: dict[str, TaskTypeInfo] = {}
    while True:
        command = ("HSCAN", TASK_TYPES_KEY, cursor, "COUNT", _PAGE)
        cursor, fields = yield CommandCall(command, TASK_TYPES_KEY, Replay.SAFE)
        for name, value in zip(fields[::2], fields[1::2], strict=True):
            info = _readable(name, value)
            if info is not None and info.seen and info.seen.timestamp() >= now.seconds - KEPT_SECONDS:
                found[info.type] = info
        if cursor == b"0":
            return [found[name] for name in sorted(found)]


def _readable(name: bytes, value: bytes) -> TaskTypeInfo | None:
    try:
        return decode_task_type(name.decode(), value)
    except UnicodeDecodeError:
        return None


def _size(pair: tuple[str, bytes]) -> int:
    return len(pair[0]) + len(pair[1])
