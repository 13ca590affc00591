"""Face records of tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyasynq._face_records.fields import Field, Kind, View
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.task import TaskInfo


def _state_color(state: str) -> str | None:
    return {"active": "blue", "retry": "yellow", "archived": "red", "completed": "green"}.get(state)


_TASK_FIELDS: Final = (
    Field("id", Kind.TEXT, "Id of the task.", "ID"),
    Field("queue", Kind.TEXT, "Its queue.", "QUEUE", shrinks=True),
    Field("type", Kind.TEXT, "Its type.", "TYPE", shrinks=True),
    Field("state", Kind.TEXT, "Its state.", "STATE", color=_state_color),
    Field("since", Kind.TIME, "When it came into its state, where that is known.", "SINCE", is_optional=True),
    Field("due", Kind.TIME, "When it is due (scheduled, retry).", "DUE", is_optional=True),
    Field("retried", Kind.COUNT, "Failed attempts that spent a retry.", "RETRIED"),
    Field("max_retry", Kind.COUNT, "Retries that it has.", "MAX", is_wide=True),
    Field("group", Kind.TEXT, "Its group; empty for none.", "GROUP", shrinks=True, is_wide=True),
    Field("last_error", Kind.TEXT, "Error of its last failure; empty for none.", "LAST ERROR", shrinks=True),
    Field("last_failed", Kind.TIME, "When it failed last.", "LAST FAILED", is_wide=True, is_optional=True),
    Field("completed", Kind.TIME, "When it succeeded, if it is kept.", is_optional=True),
    Field("payload", Kind.DATA, 'JSON, or `{"text": …}`, or `{"base64": …}`.', "PAYLOAD", shrinks=True),
    Field("result", Kind.DATA, "Its result, as the payload; null for none.", "RESULT", True, True, True),
    Field("timeout", Kind.DURATION, "Seconds that an attempt may take; null for no limit.", is_optional=True),
    Field("deadline", Kind.TIME, "Until when it must end; null for no limit.", is_optional=True),
    Field("retention", Kind.DURATION, "Seconds for which it is kept after its success."),
    Field("headers", Kind.TEXTS, "Its headers, by name."),
    Field("server", Kind.TEXT, "Id of the server that runs it; empty if none is known."),
    Field("orphaned", Kind.FLAG, "Whether it is active without a lease.", is_wide=True),
    Field("crashes", Kind.COUNT, "Workers that died with it.", is_wide=True),
)  # fmt: skip


_STATE_COLUMNS: Final = {
    "active": ("id", "type", "server", "retried", "payload"),
    "pending": ("id", "type", "since", "retried", "payload"),
    "scheduled": ("id", "type", "due", "payload"),
    "retry": ("id", "type", "due", "retried", "last_error"),
    "archived": ("id", "type", "since", "retried", "last_error"),
    "completed": ("id", "type", "completed", "result"),
    "aggregating": ("id", "type", "group", "since", "payload"),
}


def tasks_view(state: str = "") -> View:
    """Return the view of tasks. With `state`, its table has the columns that matter for that state."""
    names = _STATE_COLUMNS.get(state, ("id", "queue", "type", "state", "retried", "last_error"))
    headings = {one.name: one.heading or one.name.upper() for one in _TASK_FIELDS}
    chosen = [one for name in names for one in _TASK_FIELDS if one.name == name]
    fields = [_replace_heading(one, headings[one.name], is_wide=False) for one in chosen]
    fields += [_replace_heading(one, one.heading, is_wide=True) for one in _TASK_FIELDS if one not in chosen]
    return View("task-list", "id", tuple(fields), "No tasks.")


def _replace_heading(field: Field, heading: str, *, is_wide: bool) -> Field:
    return replace(field, heading=heading, is_wide=is_wide)


TASKS: Final = View("task-list", "id", _TASK_FIELDS, "No tasks.")


def describe_task(info: TaskInfo) -> Record:
    """Return the face record of a task."""
    return {
        "id": info.id,
        "queue": info.queue,
        "type": info.type,
        "state": str(info.state),
        "since": info.in_state_since,
        "due": info.next_process_at if info.state in {TaskState.SCHEDULED, TaskState.RETRY} else None,
        "retried": info.retried,
        "max_retry": info.max_retry,
        "group": info.group,
        "last_error": info.last_error,
        "last_failed": info.last_failed_at,
        "completed": info.completed_at,
        "payload": info.payload,
        "result": info.result,
        "timeout": None if info.timeout is None else info.timeout.total_seconds(),
        "deadline": info.deadline,
        "retention": info.retention.total_seconds(),
        "headers": dict(info.headers),
        "server": info.server_id,
        "orphaned": info.is_orphaned,
        "crashes": info.crashes,
    }
