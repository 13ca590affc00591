"""The views of operator commands, and the records made of what the operator tells."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyasynq.cli.output.fields import Field, Kind, View
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from pyasynq.info import (
        DailyStatistics,
        GroupInfo,
        QueueInfo,
        SchedulerEntryInfo,
        SchedulerEvent,
        ServerInfo,
    )
    from pyasynq.limits import QueueLimits
    from pyasynq.task import TaskInfo

Record = dict[str, Any]


def _color_if_any(color: str) -> Any:
    return lambda value: color if value else None


def _state_color(state: str) -> str | None:
    return {"active": "blue", "retry": "yellow", "archived": "red", "completed": "green"}.get(state)


QUEUES: Final = View(
    "queue-list",
    "queue",
    (
        Field("queue", Kind.TEXT, "Name of the queue.", "QUEUE", shrinks=True),
        Field(
            "state",
            Kind.TEXT,
            "`running` or `paused`.",
            "STATE",
            color=lambda state: "yellow" if state == "paused" else None,
        ),
        Field("pending", Kind.COUNT, "Tasks that wait for a worker.", "PENDING"),
        Field(
            "latency",
            Kind.DURATION,
            "Seconds that the oldest pending task has waited; null for none.",
            "OLDEST",
            is_optional=True,
        ),
        Field("active", Kind.COUNT, "Tasks that run.", "ACTIVE"),
        Field("max_run", Kind.COUNT, "Stored limit of tasks that run at once.", "LIMIT", is_optional=True),
        Field("scheduled", Kind.COUNT, "Tasks that wait for their time.", "SCHED"),
        Field(
            "retry",
            Kind.COUNT,
            "Failed tasks that wait for another try.",
            "RETRY",
            color=_color_if_any("yellow"),
        ),
        Field("archived", Kind.COUNT, "Tasks that have failed for good.", "ARCH", color=_color_if_any("red")),
        Field("completed", Kind.COUNT, "Tasks that are kept after their success.", "DONE"),
        Field("aggregating", Kind.COUNT, "Tasks that wait in groups.", "GROUPED", is_wide=True),
        Field("groups", Kind.COUNT, "Groups.", "GROUPS", is_wide=True),
        Field(
            "processed",
            Kind.COUNT,
            "Attempts that ended today (UTC), failed ones included.",
            "TODAY",
            is_wide=True,
        ),
        Field(
            "failed",
            Kind.COUNT,
            "Attempts that failed today (UTC).",
            "FAILED",
            is_wide=True,
            color=_color_if_any("red"),
        ),
        Field(
            "error_rate",
            Kind.SHARE,
            "Failed attempts of those that ended today.",
            "ERRORS",
            is_wide=True,
            is_optional=True,
        ),
        Field("rate", Kind.TEXT, "Stored limit of starts in a time.", "RATE", is_wide=True, is_optional=True),
        Field(
            "ordered", Kind.FLAG, "Whether tasks run strictly one after the other.", "ORDERED", is_wide=True
        ),
        Field(
            "paused_until",
            Kind.TIME,
            "When the pause ends by itself.",
            "PAUSED UNTIL",
            is_wide=True,
            is_optional=True,
        ),
        Field("processed_total", Kind.COUNT, "Attempts that ended since the queue was made."),
        Field("failed_total", Kind.COUNT, "Attempts that failed since the queue was made."),
        Field("size", Kind.COUNT, "Tasks in all states."),
        Field("memory_usage", Kind.BYTES, "Estimated memory, if it was asked for.", is_optional=True),
        Field("timestamp", Kind.TIME, "When Redis was asked."),
    ),
    "No queues: nothing was enqueued here yet.",
)


def describe_load(info: QueueInfo) -> Record:
    """Return the part of a queue's record that `queue list` and `top` share: its state and its work."""
    return {
        "queue": info.queue,
        "state": "paused" if info.paused else "running",
        "pending": info.pending,
        "latency": info.latency.total_seconds() if info.pending else None,
        "active": info.active,
        "retry": info.retry,
        "archived": info.archived,
    }


def describe_stored_limits(limits: QueueLimits) -> Record:
    """Return the part of a queue's record that `queue list` and `limits` share: its stored limits."""
    return {
        "max_run": limits.max_run,
        "rate": describe_rate(limits),
        "ordered": bool(limits.ordered),
    }


def describe_queue(info: QueueInfo) -> Record:
    """Return the record of a queue."""
    return {
        **describe_load(info),
        **describe_stored_limits(info.limits),
        "scheduled": info.scheduled,
        "completed": info.completed,
        "aggregating": info.aggregating,
        "groups": info.groups,
        "processed": info.processed,
        "failed": info.failed,
        "error_rate": error_rate(info.processed, info.failed),
        "paused_until": info.paused_until,
        "processed_total": info.processed_total,
        "failed_total": info.failed_total,
        "size": info.size,
        "memory_usage": info.memory_usage,
        "timestamp": info.timestamp,
    }


def error_rate(processed: int, failed: int) -> float | None:
    """Return the share of failures, or None if nothing ended; more failures than ends count as all."""
    return min(1.0, failed / processed) if processed else None


def describe_rate(limits: QueueLimits) -> str | None:
    """Return a rate as the flags of workers write it: `50/s+10`."""
    if limits.rate is None:
        return None
    period = {1.0: "s", 60.0: "m", 3_600.0: "h"}.get(limits.period, f"{limits.period:g}s")
    return f"{limits.rate:g}/{period}" + (f"+{limits.burst}" if limits.burst > 1 else "")


HISTORY: Final = View(
    "queue-history",
    "day",
    (
        Field("queue", Kind.TEXT, "Name of the queue.", "QUEUE", shrinks=True),
        Field("day", Kind.TEXT, "Day in UTC, `YYYY-MM-DD`.", "DAY (UTC)"),
        Field("processed", Kind.COUNT, "Attempts that ended, failed ones included.", "PROCESSED"),
        Field("failed", Kind.COUNT, "Attempts that failed.", "FAILED", color=_color_if_any("red")),
        Field("error_rate", Kind.SHARE, "Failed attempts of those that ended.", "ERRORS", is_optional=True),
    ),
    "Nothing was processed.",
)


def describe_day(day: DailyStatistics) -> Record:
    """Return the record of a day."""
    return {
        "queue": day.queue,
        "day": day.day.isoformat(),
        "processed": day.processed,
        "failed": day.failed,
        "error_rate": error_rate(day.processed, day.failed),
    }


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
    """Return the view of tasks: with a state, its table has what matters in that state."""
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
    """Return the record of a task."""
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


SERVERS: Final = View(
    "server-list",
    "id",
    (
        Field("id", Kind.TEXT, "Id of the server.", is_wide=True),
        Field("host", Kind.TEXT, "Its host.", "HOST", shrinks=True),
        Field("pid", Kind.NUMBER, "Its process id.", "PID"),
        Field(
            "state",
            Kind.TEXT,
            "`active`, or `stopped` when it takes no more tasks.",
            "STATE",
            color=lambda state: "yellow" if state != "active" else None,
        ),
        Field("running", Kind.COUNT, "Tasks that it runs.", "RUNNING"),
        Field("slots", Kind.COUNT, "Tasks that it runs at most.", "SLOTS"),
        Field("queues", Kind.NUMBERS, "Its queues with their priorities.", "QUEUES", shrinks=True),
        Field(
            "strict",
            Kind.FLAG,
            "Whether it serves a queue only while those of higher priority are empty.",
            "STRICT",
            is_wide=True,
        ),
        Field("engine", Kind.TEXT, "`pyasynq`, or `asynq` for a server in Go.", "ENGINE"),
        Field("started", Kind.TIME, "When it started.", "STARTED", is_optional=True),
    ),
    "No running servers; start one with  pyasynq worker MODULE:APP",
)


def describe_server(info: ServerInfo) -> Record:
    """Return the record of a server; its queues by priority."""
    return {
        "id": info.id,
        "host": info.host,
        "pid": info.pid,
        "state": info.status,
        "running": len(info.active_workers),
        "slots": info.concurrency,
        "queues": dict(sorted(info.queues.items(), key=lambda one: (-one[1], one[0]))),
        "strict": info.strict_priority,
        "engine": info.engine or "asynq",
        "started": info.started,
    }


ENTRIES: Final = View(
    "cron-list",
    "id",
    (
        Field("id", Kind.TEXT, "Id of the entry.", "ENTRY"),
        Field("spec", Kind.TEXT, "Cron expression or interval.", "SPEC"),
        Field("type", Kind.TEXT, "Type of its tasks.", "TYPE", shrinks=True),
        Field("next", Kind.TIME, "When it enqueues next.", "NEXT", is_optional=True),
        Field("previous", Kind.TIME, "When it enqueued last.", "PREVIOUS", is_optional=True),
        Field("options", Kind.NAMES, "Options of its tasks, as Go writes them.", "OPTIONS", is_wide=True),
        Field(
            "payload",
            Kind.DATA,
            "Payload of its tasks.",
            "PAYLOAD",
            is_wide=True,
            shrinks=True,
            is_optional=True,
        ),
    ),
    "No scheduler entries: no scheduler is running.",
)


def describe_entry(info: SchedulerEntryInfo) -> Record:
    """Return the record of a scheduler entry."""
    return {
        "id": info.id,
        "spec": info.spec,
        "type": info.task.type,
        "next": info.next_enqueue_at,
        "previous": info.previous_enqueue_at,
        "options": list(info.options),
        "payload": info.task.payload,
    }


ENTRY_EVENTS: Final = View(
    "cron-history",
    "task_id",
    (
        Field("enqueued", Kind.TIME, "When.", "ENQUEUED", is_optional=True),
        Field("task_id", Kind.TEXT, "Id of the task that it enqueued.", "TASK"),
        Field("entry", Kind.TEXT, "Id of the entry.", "ENTRY"),
    ),
    "Nothing was enqueued by this entry.",
)


def describe_entry_event(entry: str, event: SchedulerEvent) -> Record:
    """Return the record of a task that an entry enqueued."""
    return {"entry": entry, "task_id": event.task_id, "enqueued": event.enqueued_at}


GROUPS: Final = View(
    "group-list",
    "group",
    (
        Field("queue", Kind.TEXT, "Name of the queue.", "QUEUE", shrinks=True),
        Field("group", Kind.TEXT, "Name of the group.", "GROUP"),
        Field("size", Kind.COUNT, "Tasks in it.", "TASKS"),
    ),
    "No groups.",
)


def describe_group(queue: str, info: GroupInfo) -> Record:
    """Return the record of a group."""
    return {"queue": queue, "group": info.name, "size": info.size}
