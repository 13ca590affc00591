"""Fields that handlers write into their task while they run: its result and its progress."""

from __future__ import annotations

from pyasynq._broker.scripts import TASK_WRITE_FIELD
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys


def write_result(
    queue: str,
    task_id: str,
    token: str,
    data: bytes,
    *,
    lease_score: int,
) -> Plan[bool]:
    """Write a task's result; the last one written wins.

    Return False, with nothing written, when the task is gone or is not run by the attempt with this token.
    `lease_score` is the latest lease end that the attempt has requested. A later one in Redis belongs to a Go
    worker, which does not overwrite the token of an earlier attempt.
    """
    return (yield from _write_field(queue, task_id, token, lease_score, "result", data))


def write_progress(
    queue: str,
    task_id: str,
    token: str,
    data: bytes,
    *,
    lease_score: int,
) -> Plan[bool]:
    """Write a task's progress, as `write_result` writes its result."""
    return (yield from _write_field(queue, task_id, token, lease_score, "x:progress", data))


def _write_field(
    queue: str, task_id: str, token: str, lease_score: int, field: str, value: bytes
) -> Plan[bool]:
    keys = queue_keys(queue)
    written = yield ScriptCall(
        TASK_WRITE_FIELD,
        (keys.task(task_id), keys.lease),
        (task_id, token, lease_score, field, value),
        Replay.SAFE,
    )
    return bool(written)
