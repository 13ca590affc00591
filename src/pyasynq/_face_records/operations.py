"""Face records of bulk operations (on many tasks), and of query plans (explained searches)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._face_records.fields import Field, Kind, View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq._face_records.fields import Record
    from pyasynq.operations import OperationInfo
    from pyasynq.operations.query import Explanation


_STATE_COLORS: Final = {
    "running": "blue",
    "ready": "yellow",
    "paused": "yellow",
    "orphaned": "yellow",
    "stopped": "yellow",
    "done": "green",
    "failed": "red",
}


OPERATIONS: Final = View(
    "operation-list",
    "operation",
    (
        Field("operation", Kind.TEXT, "Id of the operation.", "OPERATION"),
        Field("act", Kind.TEXT, "What is done with the tasks.", "ACT"),
        Field(
            "state",
            Kind.TEXT,
            "`running`, `paused`, `done`, `stopped`, `failed`, or `orphaned`: no process goes on with it.",
            "STATE",
            color=_STATE_COLORS.get,
        ),
        Field("done", Kind.COUNT, "Tasks that were acted on.", "DONE"),
        Field("total", Kind.COUNT, "Tasks that it is to act on.", "TOTAL"),
        Field("skipped", Kind.COUNT, "Tasks that were left as they were.", "LEFT"),
        Field("created", Kind.TIME, "When it was started.", "STARTED"),
        Field("user", Kind.TEXT, "The user who started it.", "USER", shrinks=True),
        Field("reason", Kind.TEXT, "Why.", "REASON", shrinks=True),
        Field("undo_until", Kind.TIME, "Until when it can be undone.", "UNDO UNTIL", True, False, True),
        Field("query", Kind.TEXT, "The query that found its tasks; empty for ids.", "QUERY", True, True),
        Field("queues", Kind.NAMES, "Queues of its tasks.", "QUEUES", is_wide=True, shrinks=True),
        Field("error", Kind.TEXT, "Why it failed; empty for none.", "ERROR", is_wide=True, shrinks=True),
        Field("undoable", Kind.COUNT, "Deleted tasks that can be put back."),
        Field("undoes", Kind.TEXT, "Id of the operation that it undoes; empty for others."),
        Field("trimmed", Kind.COUNT, "Older archived tasks that went to make room."),
        Field(
            "refused",
            Kind.OBJECTS,
            "The first 1,000 tasks that were left as they were: queue, id, reason.",
        ),
    ),
    "No operations within 30 days.",
)


def describe_operation(info: OperationInfo) -> Record:
    """Return the face record of a bulk operation."""
    return {
        "operation": info.operation,
        "act": str(info.act),
        "state": "orphaned" if info.is_orphaned else str(info.state),
        "done": info.done,
        "total": info.total,
        "skipped": info.skipped,
        "created": info.created,
        "user": info.user,
        "reason": info.reason,
        "undo_until": info.undo_until,
        "query": info.query,
        "queues": list(info.queues),
        "error": info.error,
        "undoable": info.undoable,
        "undoes": info.undoes,
        "trimmed": info.trimmed,
        "refused": [
            {"queue": queue, "id": task_id, "reason": reason} for queue, task_id, reason in info.refused
        ],
    }


PREVIEW: Final = View(
    "task-counts",
    "queue",
    (
        Field("queue", Kind.TEXT, "Queue of the tasks.", "QUEUE", shrinks=True),
        Field("type", Kind.TEXT, "Their type.", "TYPE", shrinks=True),
        Field("state", Kind.TEXT, "Their state.", "STATE"),
        Field("tasks", Kind.COUNT, "How many there are.", "TASKS"),
    ),
    "No tasks.",
)


def describe_preview(counts: Mapping[tuple[str, str, str], int]) -> list[Record]:
    """Return a face record for each queue, type and state, the most frequent first."""
    return [
        {"queue": queue, "type": task_type, "state": state, "tasks": number}
        for (queue, task_type, state), number in sorted(counts.items(), key=lambda one: -one[1])
    ]


EXPLANATION: Final = View(
    "search-explanation",
    "query",
    (
        Field("query", Kind.TEXT, "The query.", "QUERY", shrinks=True),
        Field("positions", Kind.COUNT, "Tasks to look at.", "LOOKS AT"),
        Field("size", Kind.COUNT, "Tasks in these collections.", "OF"),
        Field("collections", Kind.COUNT, "Collections to go through.", "COLLECTIONS"),
        Field("look_ups", Kind.COUNT, "Ids to look up in all queues; no collection then.", "LOOK-UPS"),
        Field("is_bounded", Kind.FLAG, "Whether times bound each collection.", "BOUNDED"),
        Field("seconds", Kind.DURATION, "How long it may take, estimated.", "TAKES"),
    ),
    "",
)


def describe_explanation(explanation: Explanation) -> Record:
    """Return the face record of a query plan: what a search would examine, and its estimated cost."""
    return {
        "query": explanation.query,
        "positions": explanation.positions,
        "size": explanation.size,
        "collections": len(explanation.collections),
        "look_ups": explanation.look_ups,
        "is_bounded": explanation.is_bounded,
        "seconds": explanation.seconds,
    }
