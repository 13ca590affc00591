"""Face records of servers and of the entries of schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._face_records.fields import Field, Kind, View

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.info import SchedulerEntryInfo, SchedulerEvent, ServerInfo


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
        Field(
            "version",
            Kind.TEXT,
            "Version of its application; empty if it tells none.",
            "VERSION",
            is_wide=True,
        ),
        Field(
            "engine_version",
            Kind.TEXT,
            "Version of pyasynq; empty for a server in Go.",
            "ENGINE VERSION",
            is_wide=True,
        ),
        Field("started", Kind.TIME, "When it started.", "STARTED", is_optional=True),
    ),
    "No running servers; start one with  pyasynq worker MODULE:APP",
)


def describe_server(info: ServerInfo) -> Record:
    """Return the face record of a server; its queues by priority."""
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
        "version": info.version,
        "engine_version": info.engine_version,
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
    """Return the face record of a scheduler entry."""
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
    """Return the face record of a task that an entry enqueued."""
    return {"entry": entry, "task_id": event.task_id, "enqueued": event.enqueued_at}
