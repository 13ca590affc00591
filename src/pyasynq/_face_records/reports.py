"""Face records of error groups, task types, events and the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._error_signature import signature_id
from pyasynq._face_records.fields import Field, Kind, View

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.info import ErrorGroup, TaskEvent
    from pyasynq.operations import AuditEntry
    from pyasynq.task_types import TaskTypeInfo


_OUTCOME_COLORS: Final = {
    "succeeded": "green",
    "done": "green",
    "retried": "yellow",
    "archived": "red",
    "failed": "red",
    "refused": "red",
}


ERRORS: Final = View(
    "errors",
    "id",
    (
        Field("id", Kind.TEXT, "Eight digits that stand for the signature: `error:sig:` takes them.", "SIG"),
        Field("count", Kind.COUNT, "Tasks that failed alike.", "TASKS"),
        Field(
            "earliest", Kind.TIME, "When the first of them failed.", "FIRST", gives_way=True, is_optional=True
        ),
        Field("latest", Kind.TIME, "When the last of them failed.", "LATEST", is_optional=True),
        Field("queue", Kind.TEXT, "Queue of the tasks.", "QUEUE", shrinks=True),
        Field("types", Kind.NUMBERS, "Tasks by type.", "TYPES", shrinks=True, gives_way=True),
        Field(
            "signature",
            Kind.TEXT,
            "First line of the error, without what differs.",
            "ERROR",
            shrinks=True,
            readable=40,
        ),
        Field("sample", Kind.TEXT, "Id of the task that failed last.", "SAMPLE", is_wide=True),
    ),
    "No failed tasks.",
)


def describe_error(queue: str, group: ErrorGroup) -> Record:
    """Return the face record of a group of failed tasks whose errors have the same signature."""
    return {
        "id": signature_id(group.signature),
        "queue": queue,
        "count": group.count,
        "earliest": group.earliest,
        "latest": group.latest,
        "types": dict(group.types),
        "signature": group.signature,
        "sample": group.sample.id,
    }


TYPES: Final = View(
    "types",
    "type",
    (
        Field("type", Kind.TEXT, "Name of the type.", "TYPE"),
        Field("queue", Kind.TEXT, "Where its tasks go; empty if the handler does not say.", "QUEUE"),
        Field("summary", Kind.TEXT, "First line of the handler's docstring.", "SUMMARY", shrinks=True),
        Field("seen", Kind.TIME, "When a worker named it last.", "SEEN", is_optional=True),
        Field("version", Kind.TEXT, "Version of the application.", "VERSION", is_wide=True),
        Field(
            "is_prefix", Kind.FLAG, "Whether it stands for all types that begin so.", "PREFIX", is_wide=True
        ),
        Field("secrets", Kind.NAMES, "Fields of the payload that no tool shows.", "SECRETS", is_wide=True),
        Field("options", Kind.OBJECT, "Declared options."),
        Field(
            "schema",
            Kind.OBJECT,
            "JSON Schema of the payload; null if any bytes are right.",
            is_optional=True,
        ),
    ),
    "No worker has described its task types within 30 days.",
)


def describe_type(info: TaskTypeInfo) -> Record:
    """Return the face record of a task type."""
    return {
        "type": info.type,
        "queue": info.queue,
        "summary": info.summary,
        "seen": info.seen,
        "version": info.version,
        "is_prefix": info.is_prefix,
        "secrets": list(info.secrets),
        "options": dict(info.options),
        "schema": None if info.schema is None else dict(info.schema),
    }


EVENTS: Final = View(
    "events",
    "position",
    (
        Field("at", Kind.TIME, "When it happened.", "WHEN"),
        Field("kind", Kind.TEXT, "What happened.", "EVENT", color=_OUTCOME_COLORS.get),
        Field("queue", Kind.TEXT, "The queue.", "QUEUE", shrinks=True),
        Field("type", Kind.TEXT, "Type of the task.", "TYPE", shrinks=True),
        Field("task_id", Kind.TEXT, "Id of the task.", "TASK"),
        Field("seconds", Kind.DURATION, "How long the attempt took.", "TOOK"),
        Field(
            "waited",
            Kind.DURATION,
            "How long the task was pending.",
            "WAITED",
            is_wide=True,
            is_optional=True,
        ),
        Field("error", Kind.TEXT, "Error of the attempt; empty for none.", "ERROR", shrinks=True),
        Field("retried", Kind.COUNT, "Retries spent before.", is_wide=True),
        Field("server", Kind.TEXT, "Id of the server that published it."),
        Field("count", Kind.COUNT, "Tasks, crashes or dropped events that it stands for."),
        Field("position", Kind.TEXT, "Where it is in the stream of its queue."),
    ),
    "No events.",
)


def describe_event(event: TaskEvent) -> Record:
    """Return the face record of a task event."""
    return {
        "at": event.at,
        "kind": event.kind,
        "queue": event.queue,
        "type": event.type,
        "task_id": event.task_id,
        "seconds": event.seconds,
        "waited": event.waited,
        "error": event.error,
        "retried": event.retried,
        "server": event.server_id,
        "count": event.count,
        "position": event.position,
    }


AUDIT: Final = View(
    "audit",
    "position",
    (
        Field("at", Kind.TIME, "When it began.", "WHEN"),
        Field("user", Kind.TEXT, "The user who did it.", "USER", shrinks=True),
        Field("verb", Kind.TEXT, "What was done.", "VERB"),
        Field("queues", Kind.NAMES, "Queues that it concerns.", "QUEUES", shrinks=True),
        Field(
            "outcome",
            Kind.TEXT,
            "`started`, `done`, `failed` or `refused`.",
            "OUTCOME",
            color=_OUTCOME_COLORS.get,
        ),
        Field("reason", Kind.TEXT, "Why, in the user's words.", "REASON", shrinks=True),
        Field("details", Kind.TEXTS, "Arguments, without secrets.", "DETAILS", is_wide=True, shrinks=True),
        Field("error", Kind.TEXT, "Why it failed or was refused.", "ERROR", is_wide=True, shrinks=True),
        Field("counts", Kind.NUMBERS, "Result in numbers.", "COUNTS", is_wide=True),
        Field("role", Kind.TEXT, "Role of the user.", is_wide=True),
        Field("login", Kind.TEXT, "How the user signed in.", is_wide=True),
        Field("address", Kind.TEXT, "From where."),
        Field("operation", Kind.TEXT, "Id of the operation that it belongs to."),
        Field("before", Kind.TEXT, "Content before an edit, without secrets."),
        Field("after", Kind.TEXT, "Content after it."),
        Field("seconds", Kind.DURATION, "How long it took.", is_optional=True),
        Field("more", Kind.COUNT, "Further refused calls that it stands for."),
        Field("position", Kind.TEXT, "Where it is in the audit."),
    ),
    "No entries.",
)


def describe_audit_entry(entry: AuditEntry) -> Record:
    """Return the face record of an entry of the audit log."""
    return {
        "at": entry.at,
        "user": entry.user,
        "verb": entry.verb,
        "queues": list(entry.queues),
        "outcome": entry.outcome,
        "reason": entry.reason,
        "details": dict(entry.details),
        "error": entry.error,
        "counts": dict(entry.counts),
        "role": entry.role,
        "login": entry.login,
        "address": entry.address,
        "operation": entry.operation,
        "before": entry.before,
        "after": entry.after,
        "seconds": entry.seconds,
        "more": entry.more,
        "position": entry.position,
    }
