"""Records of operations on many tasks: creator, owner (lease and fencing number) and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import time_arguments
from pyasynq._broker.operating.periods import OPERATION_SECONDS
from pyasynq._broker.scripts import OPERATION_ADVANCE, OPERATION_CREATE, OPERATION_SET_STATE, OPERATION_TAKE
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import OPERATIONS_KEY, operation_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Argument

OPERATION_LEASE_SECONDS: Final = 15
"""Seconds without a step after which another process may take over an operation."""
MOST_OPERATIONS: Final = 1_000
"""Largest number of listed operations."""

_TASKS: Final = "tasks:"
_FIELDS: Final = (
    *("act", "state", "user", "reason", "created", "queues", "total", "query", "options", "undoes"),
    *("request", "owner", "lease", "fence", "step", "position", "below", "done", "skipped", "trimmed"),
    *("kept", "undoable", "undo_until", "refused", "error"),
)
LOST: Final = "lost"
"""Result of `advance_operation` if another process has taken the operation over."""


def create_operation(operation: str, fields: Mapping[str, Argument], *, now: Instant) -> Plan[bool]:
    """Store an operation, and add it to the list; return False if it was there already."""
    pairs = [part for pair in fields.items() for part in pair]
    args = (OPERATION_SECONDS, *pairs)
    created = yield ScriptCall(OPERATION_CREATE, (operation_key(operation),), args, Replay.SAFE)
    # The list is in another slot. An operation that is not listed still runs and is in the audit.
    listed = ("ZADD", OPERATIONS_KEY, "NX", now.seconds, operation)
    yield CommandCall(listed, OPERATIONS_KEY, Replay.SAFE)
    yield CommandCall(
        ("ZREMRANGEBYRANK", OPERATIONS_KEY, 0, -MOST_OPERATIONS - 1), OPERATIONS_KEY, Replay.SAFE
    )
    return bool(created)


def take_operation(operation: str, owner: str, *, now: Instant | None) -> Plan[int]:
    """Become the owner of a running operation, unless another process has a valid lease on it.

    Return the fencing number of this owner; 0 if the operation was not taken.
    """
    args = (owner, OPERATION_LEASE_SECONDS, OPERATION_SECONDS, *time_arguments(now))
    fence: int = yield ScriptCall(OPERATION_TAKE, (operation_key(operation),), args, Replay.SAFE)
    return fence


def advance_operation(
    operation: str, fence: int, fields: Mapping[str, Argument], *, state: str = "", now: Instant | None
) -> Plan[str]:
    """Store the progress of an operation and renew its lease; return its current state, or `LOST`.

    `state` is the final state that it has reached; empty while it runs.
    """
    pairs: list[Argument] = [part for pair in fields.items() for part in pair]
    args: tuple[Argument, ...] = (
        fence,
        OPERATION_LEASE_SECONDS,
        OPERATION_SECONDS,
        *time_arguments(now),
        state,
        *pairs,
    )
    reply: bytes = yield ScriptCall(OPERATION_ADVANCE, (operation_key(operation),), args, Replay.SAFE)
    return reply.decode()


def set_operation_state(operation: str, state: str, before: Sequence[str]) -> Plan[str]:
    """Change an operation's state if it is one of `before` (compare-and-set); return the current state."""
    args: tuple[Argument, ...] = (state, OPERATION_SECONDS, *before)
    reply: bytes = yield ScriptCall(OPERATION_SET_STATE, (operation_key(operation),), args, Replay.SAFE)
    return reply.decode("utf-8", "replace")


def write_tasks(operation: str, first: int, parts: Sequence[bytes]) -> Plan[None]:
    """Store parts of an operation's list of tasks; `first` is the number of the first part."""
    key = operation_key(operation)
    for number, part in enumerate(parts, first):
        yield CommandCall(("HSET", key, f"{_TASKS}{number}", part), key, Replay.SAFE)


def read_operation_tasks(operation: str, parts: int) -> Plan[list[bytes]]:
    """Return the stored parts of an operation's list of tasks."""
    key = operation_key(operation)
    found: list[bytes] = []
    for number in range(parts):
        # One at a time: together they may be 12 MB.
        part = yield CommandCall(("HGET", key, f"{_TASKS}{number}"), key, Replay.SAFE)
        found.append(part or b"[]")
    return found


def forget_tasks(operation: str, parts: int) -> Plan[None]:
    """Delete the stored list of tasks of an ended operation; the tasks themselves and its counts stay."""
    if parts:
        key = operation_key(operation)
        yield CommandCall(("HDEL", key, *(f"{_TASKS}{part}" for part in range(parts))), key, Replay.SAFE)


def read_operation(operation: str) -> Plan[dict[str, bytes]]:
    """Return the fields of an operation except its list of tasks; empty if it does not exist."""
    key = operation_key(operation)
    values = yield CommandCall(("HMGET", key, *_FIELDS), key, Replay.SAFE)
    return {name: value for name, value in zip(_FIELDS, values, strict=True) if value is not None}


def list_operations() -> Plan[list[str]]:
    """Return the ids of the operations that are listed, the newest first."""
    command = ("ZREVRANGE", OPERATIONS_KEY, 0, MOST_OPERATIONS - 1)
    return [decode_name(name) for name in (yield CommandCall(command, OPERATIONS_KEY, Replay.SAFE))]
