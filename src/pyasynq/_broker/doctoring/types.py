"""Which type each key is to have, and which it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import chunks
from pyasynq._broker.scripts import DOCTOR_READ_TYPES
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import ALL_QUEUES, SCHEDULERS, SERVERS, WORKERS, queue_keys, scheduler_history_key

if TYPE_CHECKING:
    from collections.abc import Sequence

_OF_NAMES: Final = {
    b"pending": b"list",
    b"active": b"list",
    b"lease": b"zset",
    b"scheduled": b"zset",
    b"retry": b"zset",
    b"archived": b"zset",
    b"completed": b"zset",
    b"aggregation_sets": b"zset",
    b"groups": b"set",
    b"processed": b"string",
    b"failed": b"string",
    b"x:cancel": b"hash",
    b"x:limits": b"hash",
    b"x:bucket": b"hash",
    b"x:ticks": b"hash",
    b"x:events": b"stream",
    b"x:verdicts": b"zset",
}
FIXED_NAMES: Final = tuple(_OF_NAMES)
"""Names of the keys that a queue has once, without the prefix."""

_OF_PREFIXES: Final = (
    (b"t:", b"hash"),
    (b"g:", b"zset"),
    (b"unique:", b"string"),
    (b"x:unique:", b"string"),
    (b"processed:", b"string"),
    (b"failed:", b"string"),
)
_OF_GLOBAL_PREFIXES: Final = (
    (f"{SERVERS}:".encode(), b"string"),
    (f"{WORKERS}:".encode(), b"hash"),
    (f"{SCHEDULERS}:".encode(), b"list"),
    (scheduler_history_key("").encode(), b"zset"),
)
GLOBAL_TYPES: Final = {ALL_QUEUES: b"set", SERVERS: b"zset", WORKERS: b"zset", SCHEDULERS: b"zset"}
"""Keys that do not belong to one queue, server or scheduler."""

GONE: Final = b"none"


def type_of_name(name: bytes) -> bytes | None:
    """Return the type that a key of a queue is to have, by its name without the prefix; None for any."""
    for prefix, kind in _OF_PREFIXES:
        if name.startswith(prefix):
            return kind
    return _OF_NAMES.get(name)


def is_in_the_way(name: bytes) -> bool:
    """Return whether checks of other keys meet this one, so that they fail if its type is wrong."""
    apart = (b"unique:", b"x:unique:", b"processed", b"failed", b"x:")
    return not name.startswith(apart) or name == b"x:limits"


def wrong_types(queue: str, names: Sequence[bytes]) -> Plan[dict[bytes, bytes]]:
    """Return which of these keys of a queue, given without the prefix, have a wrong type, and which type."""
    keys = queue_keys(queue)
    prefix = keys.prefix.encode()
    found: dict[bytes, bytes] = {}
    known = [name for name in names if type_of_name(name)]
    for chunk in chunks(known):
        args = [prefix + name for name in chunk]
        types = yield ScriptCall(DOCTOR_READ_TYPES, (keys.pending,), (*args,), Replay.SAFE)
        pairs = zip(chunk, types, strict=True)
        found |= {name: kind for name, kind in pairs if kind not in {GONE, type_of_name(name)}}
    return found


def wrong_type(key: bytes) -> Plan[bytes | None]:
    """Return the type of a key of no queue if it is wrong."""
    expected = GLOBAL_TYPES.get(decode_name(key))
    for prefix, kind in _OF_GLOBAL_PREFIXES:
        if key.startswith(prefix):
            expected = kind
    found = yield CommandCall(("TYPE", key), decode_name(key), Replay.SAFE)
    kind = found.encode() if isinstance(found, str) else bytes(found)
    return None if expected is None or kind in {GONE, expected} else kind
