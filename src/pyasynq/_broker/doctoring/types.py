"""Expected and actual types of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import chunks
from pyasynq._broker.scripts import DOCTOR_READ_TYPES
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import (
    ALL_QUEUES,
    API_KEYS_KEY,
    AUDIT_KEY,
    COMMANDS_KEY,
    CONFIGURATIONS_KEY,
    DELIVERIES_KEY,
    DOORS_KEY,
    HOST_GATE_PREFIX,
    LEASE_WORKERS_KEY,
    LIST_PREFIX,
    MARKS_KEY,
    OPERATIONS_KEY,
    REFUSED_KEY,
    SCHEDULERS_KEY,
    SERVERS_KEY,
    SIGNED_OUT_KEY,
    SNOOZED_KEY,
    TASK_TYPES_KEY,
    VIEWS_KEY,
    WORKERS_KEY,
    api_key_bucket_key,
    configuration_versions_key,
    operation_key,
    queue_keys,
    scheduler_history_key,
    server_request_key,
)

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
    b"x:objectives": b"hash",
    b"x:bucket": b"hash",
    b"x:ticks": b"hash",
    b"x:events": b"stream",
    b"x:outbox": b"hash",
    b"x:callbacks": b"string",
    b"x:verdicts": b"zset",
}
FIXED_NAMES: Final = tuple(_OF_NAMES)
"""Names of the keys that each queue has once, without the prefix."""

_OF_PREFIXES: Final = (
    (b"t:", b"hash"),
    (b"g:", b"zset"),
    (b"unique:", b"string"),
    (b"x:unique:", b"string"),
    (b"x:once:", b"string"),
    (b"x:gone:", b"hash"),
    (b"x:step:", b"hash"),
    (b"x:stats:", b"hash"),
    (b"processed:", b"string"),
    (b"failed:", b"string"),
)
_OF_GLOBAL_PREFIXES: Final = (
    (f"{SERVERS_KEY}:".encode(), b"string"),
    (f"{WORKERS_KEY}:".encode(), b"hash"),
    (f"{SCHEDULERS_KEY}:".encode(), b"list"),
    (scheduler_history_key("").encode(), b"zset"),
    (server_request_key("").encode(), b"hash"),
    (operation_key("").encode(), b"hash"),
    (configuration_versions_key("").encode(), b"zset"),
    (api_key_bucket_key("").encode(), b"hash"),
    (HOST_GATE_PREFIX.encode(), b"hash"),
)
_OF_LISTS: Final = (
    (b":workers", b"set"),
    (b":leases", b"hash"),
    (b":alive:", b"string"),
    (b"", b"list"),
)
"""Types of the keys of worker lists (workers that only speak Redis), by the text after the hash tag."""
INDEX_TYPES: Final = {ALL_QUEUES: b"set", SERVERS_KEY: b"zset", WORKERS_KEY: b"zset", SCHEDULERS_KEY: b"zset"}
"""Expected types of the global keys that other checks read; a wrong type would make these checks fail."""
GLOBAL_TYPES: Final = {
    **INDEX_TYPES,
    TASK_TYPES_KEY: b"hash",
    CONFIGURATIONS_KEY: b"hash",
    API_KEYS_KEY: b"hash",
    LEASE_WORKERS_KEY: b"hash",
    DELIVERIES_KEY: b"hash",
    DOORS_KEY: b"hash",
    COMMANDS_KEY: b"hash",
    AUDIT_KEY: b"stream",
    REFUSED_KEY: b"stream",
    VIEWS_KEY: b"hash",
    OPERATIONS_KEY: b"zset",
    MARKS_KEY: b"zset",
    SNOOZED_KEY: b"zset",
    SIGNED_OUT_KEY: b"zset",
}
"""Expected types of the keys that do not belong to one queue, server or scheduler."""

GONE: Final = b"none"


def find_type(name: bytes) -> bytes | None:
    """Return the expected Redis type of a queue's key, by its name without the prefix; None for any type."""
    for prefix, kind in _OF_PREFIXES:
        if name.startswith(prefix):
            return kind
    return _OF_NAMES.get(name)


def is_in_the_way(name: bytes) -> bool:
    """Return whether other checks read this key, so that a wrong type would make them fail."""
    apart = (b"unique:", b"x:unique:", b"processed", b"failed", b"x:")
    return not name.startswith(apart) or name == b"x:limits"


def find_wrong_types(queue: str, names: Sequence[bytes]) -> Plan[dict[bytes, bytes]]:
    """Return the keys of a queue whose Redis type is wrong, with that type; names are without the prefix."""
    keys = queue_keys(queue)
    prefix = keys.prefix.encode()
    found: dict[bytes, bytes] = {}
    known = [name for name in names if find_type(name)]
    for chunk in chunks(known):
        args = [prefix + name for name in chunk]
        types = yield ScriptCall(DOCTOR_READ_TYPES, (keys.pending,), (*args,), Replay.SAFE)
        pairs = zip(chunk, types, strict=True)
        found |= {name: kind for name, kind in pairs if kind not in {GONE, find_type(name)}}
    return found


def wrong_type(key: bytes) -> Plan[bytes | None]:
    """Return the Redis type of a key that belongs to no queue, if the type is wrong; None if it is right."""
    expected = GLOBAL_TYPES.get(decode_name(key))
    for prefix, kind in _OF_GLOBAL_PREFIXES:
        if key.startswith(prefix):
            expected = kind
    if key.startswith(LIST_PREFIX.encode()):
        name = key.partition(b"}")[2]
        expected = next(kind for start, kind in _OF_LISTS if name.startswith(start))
    found = yield CommandCall(("TYPE", key), decode_name(key), Replay.SAFE)
    kind = found.encode() if isinstance(found, str) else bytes(found)
    return None if expected is None or kind in {GONE, expected} else kind
