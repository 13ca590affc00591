"""JSON records of the API: those of the command line's `-o json`, and records that only the API has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyasynq._face_records.attention import FINDINGS
from pyasynq._face_records.fields import Field, Kind, View, json_value
from pyasynq._face_records.fleet import ENTRIES, ENTRY_EVENTS, SERVERS
from pyasynq._face_records.operations import EXPLANATION, OPERATIONS, describe_preview
from pyasynq._face_records.queues import GROUPS, HISTORY, QUEUES
from pyasynq._face_records.reports import AUDIT, ERRORS, EVENTS, TYPES
from pyasynq._face_records.saved_views import SAVED_VIEWS
from pyasynq._face_records.service_reports import (
    DELIVERIES,
    DELIVERY,
    DOORS,
    HOSTED_COMMAND,
    HOSTED_COMMANDS,
)
from pyasynq._face_records.statistics import LATENCY, MARKS, SERIES
from pyasynq._face_records.tasks import TASKS
from pyasynq.operations import VERBS

from .nesting import is_deeper

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.doctor import Finding
    from pyasynq.info import CancelResult, TaskResult, TypeStatistics, WorkerInfo
    from pyasynq.limits import QueueLimits
    from pyasynq.operations import Access, LimitReport, OperationPreview
    from pyasynq.operations.query import Completion


_DEEPEST_DATA: Final = 200
"""Maximum nesting depth of a payload or result that is shown as JSON; deeper JSON is shown as text."""


def _view(name: str, *fields: Field) -> View:
    return View(name, fields[0].name, fields, "")


def _text(name: str, about: str, *, is_optional: bool = False) -> Field:
    return Field(name, Kind.TEXT, about, is_optional=is_optional)


ME: Final = _view(
    "me",
    _text("user", "Name of the user."),
    _text("role", "Role of the user; it grants nothing by itself."),
    _text("login", "How the user was recognised: `token`, `password`, `proxy` and so on."),
    Field("read_only", Kind.FLAG, "Whether every change is refused."),
    Field("permissions", Kind.OBJECT, "For each permission the patterns of the queues it holds for."),
    Field("verbs", Kind.NAMES, "Methods of `Operator` that the user may call for some queue."),
)
STORED_LIMITS: Final = _view(
    "queue-limits",
    _text("queue", "Name of the queue."),
    Field("max_run", Kind.COUNT, "Tasks that run at once; null for any number.", is_optional=True),
    Field("rate", Kind.DURATION, "Starts in a period; null for any number.", is_optional=True),
    Field("period", Kind.DURATION, "Seconds of the period."),
    Field("burst", Kind.COUNT, "Starts at once after an idle time."),
    Field("ordered", Kind.FLAG, "Whether tasks run one after the other; null if unset.", is_optional=True),
    Field("asked", Kind.TEXTS, "Limits that servers ask for, by server; stored ones win."),
    Field("ignored_by", Kind.NAMES, "Servers in Go, which ignore limits."),
)
TYPE_COUNTS: Final = _view(
    "type-counts",
    _text("type", "Name of the type."),
    Field("total", Kind.COUNT, "Tasks of the type."),
    Field("counts", Kind.NUMBERS, "Tasks by state."),
    Field("retried", Kind.COUNT, "Retries that these tasks have spent."),
)
TASK_RESULTS: Final = _view(
    "task-result",
    _text("id", "Id of the task."),
    Field("done", Kind.FLAG, "Whether it was done."),
    _text("reason", "`done`, or why not."),
    _text("state", "State that forbids it; null otherwise.", is_optional=True),
)
CANCELS: Final = _view(
    "cancel",
    _text("queue", "Queue of the task."),
    _text("id", "Id of the task."),
    _text("status", "What has become of the request."),
    _text("state", "State of the task; null if it is gone.", is_optional=True),
)
ENQUEUED: Final = View(
    "enqueued-task",
    "id",
    (
        *TASKS.fields,
        _text(
            "enqueue_status", "`enqueued`, `replaced`, `existing`, or `ignored`: it was there and is gone."
        ),
    ),
    "",
)
RUNNING_SERVERS: Final = View(
    "server",
    "id",
    (
        *SERVERS.fields,
        Field("tasks", Kind.OBJECTS, "What it runs: id, queue, type, started, deadline."),
        Field(
            "blocked",
            Kind.DURATION,
            "How long its event loop is blocked; null if it is not.",
            is_optional=True,
        ),
    ),
    "",
)
SCHEDULES: Final = View(
    "schedule",
    "id",
    (
        *ENTRIES.fields,
        _text("queue", "Queue that its tasks go to."),
        _text("scheduler", "The scheduler: host, process id and a random part."),
        _text("engine", "`pyasynq`, or `asynq` for a scheduler in Go, which ignores a pause."),
        Field("paused_since", Kind.TIME, "When it was paused; null if it is not.", is_optional=True),
    ),
    "",
)
OPERATION_PREVIEW: Final = _view(
    "operation-preview",
    Field("dry_run", Kind.FLAG, "True: nothing was changed."),
    _text("act", "What would be done."),
    Field("total", Kind.COUNT, "Tasks that it would act on."),
    Field("is_exact", Kind.FLAG, "False if there may be more."),
    Field("counts", Kind.OBJECTS, "Tasks by queue, type and state."),
    Field("left_out", Kind.NUMBERS, "Tasks that it would leave out, by state."),
    Field("samples", Kind.OBJECTS, "Queue, id, type and state of the first ten."),
    Field("bytes", Kind.BYTES, "Bytes of their payloads, results and headers."),
    _text("undo", "Delete: whether and until when it can be undone."),
    Field("can_undo", Kind.FLAG, "Whether it can be undone."),
    Field("needs_reason", Kind.FLAG, "Whether `reason` is needed."),
    Field("needs_confirm", Kind.FLAG, "Whether `confirm` must be the number of tasks."),
)
REHEARSAL: Final = _view(
    "dry-run",
    Field("dry_run", Kind.FLAG, "True: nothing was changed."),
    _text("verb", "Method of `Operator` that would be called."),
    _text("summary", "What it does."),
)
EXAMINATION: Final = _view(
    "doctor-finding",
    _text("queue", "Queue; empty for damage that concerns all of Redis."),
    _text("kind", "Kind of the damage."),
    _text("severity", "Severity of the damage."),
    _text("explanation", "What it means."),
    _text("repair", "What a repair does; empty if only you can repair it."),
    Field("subjects", Kind.NAMES, "Tasks, groups, keys or servers, 100 at most."),
    Field("count", Kind.COUNT, "How many subjects there are."),
    Field("repaired", Kind.COUNT, "How many of them were repaired."),
)
COUNTS: Final = _view("count", Field("count", Kind.COUNT, "How many."))
SCALE: Final = _view(
    "scale",
    Field("value", Kind.COUNT, "Active, pending and due tasks of the queues."),
    Field("active", Kind.COUNT, "Tasks that run."),
    Field("pending", Kind.COUNT, "Tasks that wait for a worker."),
    Field("due", Kind.COUNT, "Scheduled and retry tasks that are due within `due_within`."),
    Field("paused", Kind.NAMES, "Queues that are paused; they count nothing but their active tasks."),
)
ANSWERS: Final = _view(
    "request",
    _text("id", "Id of the server or schedule."),
    _text("status", "What has become of the request."),
    Field("obeyed", Kind.FLAG, "False if what runs it is in Go and ignores such requests."),
)
COMPLETIONS: Final = _view(
    "completion",
    _text("insert", "Text to put in."),
    _text("label", "Text to show."),
    _text("detail", "What it means."),
)
REDIS: Final = _view("redis", Field("info", Kind.TEXTS, "Fields of INFO, or of CLUSTER INFO."))

COMPONENTS: Final = {
    "AuditEntry": AUDIT,
    "Cancellation": CANCELS,
    "Command": HOSTED_COMMANDS,
    "CommandDetails": HOSTED_COMMAND,
    "Completion": COMPLETIONS,
    "Count": COUNTS,
    "Delivery": DELIVERIES,
    "DeliveryDetails": DELIVERY,
    "DoctorFinding": EXAMINATION,
    "Door": DOORS,
    "DryRun": REHEARSAL,
    "EnqueuedTask": ENQUEUED,
    "ErrorGroup": ERRORS,
    "Event": EVENTS,
    "Explanation": EXPLANATION,
    "Finding": FINDINGS,
    "Group": GROUPS,
    "HistoryDay": HISTORY,
    "Latency": LATENCY,
    "Mark": MARKS,
    "Me": ME,
    "OperationPreview": OPERATION_PREVIEW,
    "OperationRecord": OPERATIONS,
    "Queue": QUEUES,
    "QueueLimits": STORED_LIMITS,
    "Redis": REDIS,
    "RequestAnswer": ANSWERS,
    "SavedView": SAVED_VIEWS,
    "Scale": SCALE,
    "Schedule": SCHEDULES,
    "ScheduleEvent": ENTRY_EVENTS,
    "SeriesPoint": SERIES,
    "Server": RUNNING_SERVERS,
    "Task": TASKS,
    "TaskResult": TASK_RESULTS,
    "TaskType": TYPES,
    "TypeCounts": TYPE_COUNTS,
}
"""Descriptions of records (`View`), by the names of their schemas in the OpenAPI document."""


def encode_record(view: View, record: Record) -> dict[str, Any]:
    """Encode a record as a JSON value."""
    return {field.name: _encode_value(field, record[field.name]) for field in view.fields}


def _encode_value(field: Field, value: Any) -> Any:
    if isinstance(value, bytes) and is_deeper(value, _DEEPEST_DATA):
        try:
            return {"text": value.decode()}
        except UnicodeDecodeError:
            pass  # it becomes Base64
    return json_value(field, value)


def describe_access(access: Access) -> Record:
    """Return the record of the request's user and permissions."""
    user = access.user
    return {
        "user": user.name,
        "role": user.role,
        "login": user.login,
        "read_only": access.read_only,
        "permissions": {str(one): list(patterns) for one, patterns in user.grants.items()},
        "verbs": [
            verb.name
            for verb in VERBS.values()
            if all(map(access.may_somewhere, verb.needed)) and not (verb.changes and access.read_only)
        ],
    }


def describe_limit_report(report: LimitReport) -> Record:
    """Return the record of the limits of a queue."""
    return {
        "queue": report.queue,
        **_describe_limits(report.stored),
        "asked": {server: str(limits) for server, limits in sorted(report.asked.items())},
        "ignored_by": sorted(report.ignored_by),
    }


def _describe_limits(limits: QueueLimits) -> Record:
    """Return the fields of stored limits."""
    return {name: getattr(limits, name) for name in ("max_run", "rate", "period", "burst", "ordered")}


def describe_type_counts(counts: TypeStatistics) -> Record:
    """Return the record of the tasks of one type."""
    return {
        "type": counts.type,
        "total": counts.total,
        "counts": {str(state): number for state, number in counts.counts.items()},
        "retried": counts.retried,
    }


def describe_task_result(result: TaskResult) -> Record:
    """Return the record of one task's result in an action on several tasks."""
    state = None if result.state is None else str(result.state)
    return {"id": result.task_id, "done": result.done, "reason": str(result), "state": state}


def describe_cancel(result: CancelResult) -> Record:
    """Return the record of the result of a cancellation request."""
    state = None if result.state is None else str(result.state)
    return {"queue": result.queue, "id": result.task_id, "status": str(result.status), "state": state}


def describe_worker(worker: WorkerInfo) -> Record:
    """Return the record of a task that a server runs, without the payload."""
    return {
        "id": worker.task_id,
        "queue": worker.queue,
        "type": worker.task_type,
        "started": worker.started,
        "deadline": worker.deadline,
    }


def describe_operation_preview(preview: OperationPreview) -> Record:
    """Return the record of an operation's preview."""
    return {
        "dry_run": True,
        "act": str(preview.act),
        "total": preview.total,
        "is_exact": preview.is_exact,
        "counts": describe_preview(preview.counts),
        "left_out": dict(preview.left_out),
        "samples": [
            {"queue": task.queue, "id": task.id, "type": task.type, "state": str(task.state)}
            for task in preview.samples
        ],
        "bytes": preview.bytes,
        "undo": preview.undo,
        "can_undo": preview.can_undo,
        "needs_reason": preview.needs_reason,
        "needs_confirm": preview.needs_number,
    }


def describe_damage(finding: Finding) -> Record:
    """Return the record of damage that the doctor has found."""
    return {
        "queue": finding.queue,
        "kind": str(finding.kind),
        "severity": str(finding.severity),
        "explanation": finding.explanation,
        "repair": finding.repair,
        "subjects": list(finding.subjects[:100]),
        "count": len(finding.subjects),
        "repaired": len(finding.repaired),
    }


def describe_completion(completion: Completion) -> Record:
    """Return the record of a completion of a query (autocomplete)."""
    return {"insert": completion.insert, "label": completion.label, "detail": completion.detail}
