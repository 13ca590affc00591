"""Moves of tasks to another queue, which is in another hash slot of a cluster.

A task is written into the target queue and held there: its hash is in no list, so nothing runs it. Then it is
removed from its source queue if it is unchanged (compare-and-delete), and then the copy is released. So both
copies can never run. A process that dies in between leaves a held copy. The operation's next process goes on
with it; without one, the doctor finds it as an orphan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.inspecting.actions import MISSING
from pyasynq._broker.scripts import OPERATE_HOLD, OPERATE_RELEASE, OPERATE_TAKE
from pyasynq._broker.stored import decode_name, field_pairs
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import QueueKeys, queue_keys
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message, encode_task_message
from pyasynq.errors import RedisReplyError

from .acts import ActStep, Stepped, stepped, take_step
from .periods import OPERATION_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq._redis.plan import Argument

_SETS: Final = ("scheduled", "retry", "archived")
_TAKEN: Final = "taken:"
_CALLBACK: Final = b"x:finished"

PLACE: Final = "place"
AGAIN: Final = "again"
DROP: Final = "drop"


class Move(NamedTuple):
    """Result of moving one task.

    Attributes:
        fate: treatment of the copy by `release_step`: `place` releases it; `again` releases it, too, after it
            may have been held for long; `drop` deletes it because the task stays in its own queue.
        reason: why the task stays in its queue; empty if it was moved.
    """

    fate: str
    reason: str = ""


class _Seen(NamedTuple):
    """Snapshot of a task in its source queue, before the move.

    Attributes:
        fields: fields of the task's hash.
        state: state of the task.
        score: score in the sorted set of its state; empty for a pending task.
        lock: key of the task's uniqueness lock; empty if it has none.
        left: TTL of the lock in milliseconds, -1 for none; empty unless the task owns the lock.
    """

    fields: dict[bytes, bytes]
    state: str
    score: str
    lock: str
    left: str


def hold_and_take(
    operation: str, source: str, target: str, task_id: str, from_state: str, *, is_wanted: bool = True
) -> Plan[Move]:
    """Copy a task into another queue, in no list there ("held"), and remove it from its own queue.

    Args:
        operation: id of the operation.
        source: queue of the task.
        target: queue to move the task to.
        task_id: id of the task in both queues.
        from_state: the state that it must be in; empty for any that can be moved.
        is_wanted: False starts no new move, but finishes a move whose task was removed before.
    """
    keys, others = queue_keys(source), queue_keys(target)
    ledger = keys.step(operation)
    if (yield CommandCall(("HEXISTS", ledger, _TAKEN + task_id), ledger, Replay.SAFE)):
        # A process has removed the task and died before its release; a task with this id is a different one.
        return Move(AGAIN)
    seen = (yield from _read(keys, task_id, from_state)) if is_wanted else Move(DROP, "changed")
    args = _hold_arguments(operation, task_id, seen, keys, others) if isinstance(seen, _Seen) else None
    if args is None or not isinstance(seen, _Seen):
        return seen if isinstance(seen, Move) else Move(DROP, "undecodable")
    if _CALLBACK in seen.fields:
        # Scripts of the other queue look for callbacks only if it has this key.
        yield CommandCall(("SET", others.callbacks, "1"), others.callbacks, Replay.SAFE)
    held: bytes = yield ScriptCall(OPERATE_HOLD, (others.task(task_id),), args, Replay.SAFE)
    if held not in {b"held", b"again"}:
        return Move(DROP, held.decode("utf-8", "replace"))
    call_keys = (keys.pending, keys.scheduled, keys.retry, keys.archived, keys.task(task_id), ledger)
    args = (task_id, seen.fields[b"msg"], seen.state, seen.score, seen.lock, OPERATION_SECONDS)
    taken: bytes = yield ScriptCall(OPERATE_TAKE, call_keys, args, Replay.SAFE)
    if taken != b"done":
        return Move(DROP, taken.decode("utf-8", "replace"))
    return Move(AGAIN if held == b"again" else PLACE)


def release_step(step: ActStep, target: str, fates: Mapping[str, str]) -> Plan[Stepped]:
    """Put held tasks into the lists of their states; delete the held copies of tasks that were not moved."""
    keys = queue_keys(target)
    pairs: list[Argument] = [argument for pair in fates.items() for argument in pair]
    call_keys = (keys.pending, keys.scheduled, keys.retry, keys.archived)
    args: tuple[Argument, ...] = (keys.task_prefix, step.operation, *pairs)
    mark, reply = yield from take_step(step, keys, OPERATE_RELEASE, call_keys, args)
    return stepped(mark, *reply)


def forget_taken(operation: str, source: str, ids: Sequence[str]) -> Plan[None]:
    """Delete the records that tasks were removed from their source queue; their copies are released."""
    ledger = queue_keys(source).step(operation)
    yield CommandCall(("HDEL", ledger, *(_TAKEN + task_id for task_id in ids)), ledger, Replay.SAFE)


def _read(keys: QueueKeys, task_id: str, from_state: str) -> Plan[_Seen | Move]:
    """Return a snapshot of the task, or the reason why it cannot be moved."""
    task = keys.task(task_id)
    fields = dict(field_pairs((yield CommandCall(("HGETALL", task), task, Replay.SAFE))))
    state = decode_name(fields.get(b"state", b""))
    if b"msg" not in fields or not state:
        return Move(DROP, MISSING)
    if state not in {"pending", *_SETS} or (from_state and state != from_state):
        return Move(DROP, state)
    score = ""
    if state in _SETS:
        place = str(getattr(keys, state))
        found: bytes | float | None = yield CommandCall(("ZSCORE", place, task_id), place, Replay.SAFE)
        if found is None:
            return Move(DROP, "changed")
        score = f"{float(found):.17g}"
    lock = decode_name(fields.get(b"unique_key", b""))
    if not lock.startswith(keys.prefix):
        return _Seen(fields, state, score, "", "")
    left = yield from _read_lock(lock, task_id)
    return _Seen(fields, state, score, lock, left)


def _read_lock(lock: str, task_id: str) -> Plan[str]:
    """Return the TTL of a lock in milliseconds, -1 for none; empty if the task does not own the lock."""
    try:
        owner = yield CommandCall(("GET", lock), lock, Replay.SAFE)
    except RedisReplyError:  # a key of another type is not a lock
        return ""
    if owner is None or decode_name(owner) != task_id:
        return ""
    left: int = yield CommandCall(("PTTL", lock), lock, Replay.SAFE)
    return "" if left in {-2, 0} else str(left)


def _hold_arguments(
    operation: str, task_id: str, seen: _Seen, keys: QueueKeys, others: QueueKeys
) -> tuple[Argument, ...] | None:
    """Return the arguments of the script `operate/hold`, for a copy of the task; None if undecodable."""
    try:
        message = decode_task_message(seen.fields[b"msg"])
    except UndecodableMessageError:
        return None
    message.queue = others.queue
    if message.unique_key.startswith(keys.prefix):
        message.unique_key = others.prefix + message.unique_key.removeprefix(keys.prefix)
    copied = {**seen.fields, b"msg": encode_task_message(message)}
    lock = others.prefix + seen.lock.removeprefix(keys.prefix) if seen.lock else ""
    if lock:
        copied[b"unique_key"] = lock.encode("utf-8", "surrogateescape")
    place = f"{operation} {seen.state} {seen.score}"
    head = (task_id, operation, place, lock if seen.left else "", seen.left or "0")
    return (*head, *(part for pair in copied.items() for part in pair if pair[0] != b"x:held"))
