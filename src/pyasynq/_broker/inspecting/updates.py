"""Changes of scheduled, retry and archived tasks: payload and due time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.inspecting.actions import raise_refusal
from pyasynq._broker.inspecting.by_ids import reschedule_tasks
from pyasynq._broker.inspecting.tasks import get_task
from pyasynq._broker.locks import find_holder
from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.scripts import INSPECT_REWRITE
from pyasynq._checks import parse_instant
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import decode_task_message, encode_task_message
from pyasynq.errors import DuplicateTaskError, InvalidOptionError, PayloadChangedError

if TYPE_CHECKING:
    from datetime import datetime

    from pyasynq._clock import Instant

_DONE = "done"
_CHANGED = "changed"
_LOCKED = "locked"


def update_payload(
    queue: str, task_id: str, payload: bytes | None, *, relock: bool, expected: bytes | None = None
) -> Plan[None]:
    """Replace the payload of a scheduled, retry or archived task.

    The uniqueness lock stays that of the old payload, as in Asynq. With `relock` it becomes that of the new
    payload, and expires when the old one would have. An expired lock is not taken again. A lock made of a
    `unique_key` does not change.

    Raises:
        TaskNotFoundError: when there is no such task.
        TaskStateError: when it is in another state.
        DuplicateTaskError: when another task holds the lock of the new payload; nothing was changed.
        PayloadChangedError: when the stored payload is not `expected`; nothing was changed.
        UndecodableMessageError: when its message cannot be decoded.
    """
    if not isinstance(payload, bytes | None):
        raise InvalidOptionError("payload", payload, "must be bytes; encode text or JSON first")
    yield from require_queue(queue)
    keys = queue_keys(queue)
    outcome = _CHANGED
    # Another program may change the task between the read and the write; then it is read again.
    while outcome == _CHANGED:
        seen = (yield from get_task(queue, task_id)).message
        message = decode_task_message(seen)
        if expected is not None and message.payload != expected:
            raise PayloadChangedError(queue, task_id)
        message.payload = payload or b""
        unique_key = ""
        lock = message.unique_key
        # A key outside the queue is not a lock. A lock that the user named does not depend on the payload.
        if relock and lock.startswith(keys.prefix) and not lock.startswith(keys.own_unique_prefix):
            unique_key = message.unique_key = keys.unique(message.type, payload)
        args = (task_id, seen, encode_task_message(message), unique_key)
        reply = yield ScriptCall(INSPECT_REWRITE, (keys.task(task_id),), args, Replay.SAFE)
        outcome = reply.decode("utf-8", "replace")
    if outcome == _LOCKED:
        raise DuplicateTaskError(queue, unique_key, (yield from find_holder(unique_key)))
    if outcome != _DONE:
        raise_refusal("update the payload of", queue, task_id, outcome)


def update_process_at(queue: str, task_id: str, process_at: datetime, *, now: Instant) -> Plan[None]:
    """Set when a scheduled or retry task is due; an archived one becomes scheduled.

    A uniqueness lock that the task owns is prolonged by the time that the task waits longer.

    Raises:
        TaskNotFoundError: when there is no such task.
        TaskStateError: when it is in another state.
    """
    due = parse_instant("process_at", process_at)
    yield from require_queue(queue)
    refused = yield from reschedule_tasks(queue, [(task_id, due.ceiling)], now=now)
    if reason := refused.get(task_id):
        raise_refusal("reschedule", queue, task_id, reason)
