"""Results that handlers write while they run."""

from __future__ import annotations

from pyasynq._broker.plan import Plan, Replay, ScriptCall
from pyasynq._broker.scripts import TASK_WRITE_RESULT
from pyasynq._wire.keys import queue_keys


def write_result(queue: str, task_id: str, token: str, data: bytes) -> Plan[bool]:
    """Write a task's result; the last one written wins.

    Return False, with nothing written, when the task is gone or is not run by the attempt with this token.
    """
    keys = queue_keys(queue)
    written = yield ScriptCall(TASK_WRITE_RESULT, (keys.task(task_id),), (token, data), Replay.SAFE)
    return bool(written)
