"""Tasks as lines of JSON, for files and other programs. Pure."""

from __future__ import annotations

import base64
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyasynq.task import TaskInfo


def export_line(task: TaskInfo) -> str:
    """Return a task as JSON in one line, as the user sees it.

    UTF-8 bytes are written as text, other bytes as Base64 in a field whose name ends in `_base64`. Timestamps
    are in ISO 8601, durations in seconds. Fields without a value are left out.
    """
    facts: dict[str, Any] = {
        "id": task.id,
        "queue": task.queue,
        "type": task.type,
        "state": task.state.value,
        **_text_or_base64("payload", task.payload),
        **({} if task.result is None else _text_or_base64("result", task.result)),
        "headers": dict(task.headers),
        "group": task.group,
        "max_retry": task.max_retry,
        "retried": task.retried,
        "crashes": task.crashes,
        "timeout": task.timeout,
        "deadline": task.deadline,
        "retention": task.retention,
        "next_process_at": task.next_process_at,
        "in_state_since": task.in_state_since,
        "completed_at": task.completed_at,
        "expires_at": task.expires_at,
        "last_failed_at": task.last_failed_at,
        "last_error": task.last_error,
        "traceback": task.traceback,
        "unique_key": task.unique_key,
    }
    kept = {name: value for name, value in facts.items() if value or value == 0 or name == "payload"}
    return json.dumps(kept, default=_encode, ensure_ascii=True, separators=(",", ":"))


def _text_or_base64(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _encode(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"no JSON for {type(value).__name__}")
