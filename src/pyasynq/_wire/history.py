"""JSON of the hash fields `x:attempts` (attempt history) and `x:progress`."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, NewType

from pyasynq.task import AttemptInfo, TaskProgress

HistoryEntry = NewType("HistoryEntry", bytes)
"""JSON of one attempt, for `x:attempts`; a type of its own, so that other bytes cannot be passed."""
ProgressJson = NewType("ProgressJson", bytes)
"""JSON of a handler's progress, for `x:progress`."""
NO_HISTORY: Final = HistoryEntry(b"")
NO_PROGRESS: Final = ProgressJson(b"")


def encode_attempt(
    outcome: str, error: str, *, server: str, started_at: float | None, ended_at: float
) -> HistoryEntry:
    """Return one attempt as a line of JSON; times are Unix seconds, None if unknown."""
    fields = {
        "start": None if started_at is None else round(started_at, 3),
        "end": round(ended_at, 3),
        "server": server,
        "outcome": outcome,
        "error": error,
    }
    return HistoryEntry(_compact(fields))


def decode_attempts(data: bytes | None) -> tuple[AttemptInfo, ...]:
    """Return the attempts of a task, oldest first; none if they cannot be parsed (not written by pyasynq)."""
    if not data:
        return ()
    try:
        return tuple(_attempt(one) for one in reversed(json.loads(data)))
    except (ValueError, TypeError, LookupError, OverflowError, OSError, RecursionError):
        return ()


class ProgressReport(NamedTuple):
    """Progress as a handler reported it. A plain value: a handler may report often.

    Attributes:
        said_at: monotonic time of the report.
    """

    done: float
    total: float | None
    note: str
    said_at: float


def encode_progress(progress: TaskProgress) -> ProgressJson:
    """Return progress as JSON, without unset fields."""
    fields: dict[str, Any] = {"done": progress.done, "at": round(progress.at.timestamp(), 3)}
    if progress.total is not None:
        fields["total"] = progress.total
    if progress.note:
        fields["note"] = progress.note
    return ProgressJson(_compact(fields))


def decode_progress(data: bytes | None) -> TaskProgress | None:
    """Return the progress of a task; None if it cannot be parsed (not written by pyasynq)."""
    if not data:
        return None
    try:
        fields = json.loads(data)
        total = fields.get("total")
        return TaskProgress(
            done=_number(fields["done"]),
            total=None if total is None else _number(total),
            note=str(fields.get("note", "")),
            at=_time(fields["at"]),
        )
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, OSError, RecursionError):
        return None


def _compact(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _attempt(fields: dict[str, Any]) -> AttemptInfo:
    start = fields["start"]
    return AttemptInfo(
        started_at=None if start is None else _time(start),
        ended_at=_time(fields["end"]),
        server_id=str(fields["server"]),
        outcome=str(fields["outcome"]),
        error=str(fields["error"]),
    )


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("not a number")
    return value


def _time(value: Any) -> datetime:
    return datetime.fromtimestamp(_number(value), UTC)
