"""Face records of task service reports: requests to hosts, commands, and protocol gateways (doors)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyasynq._face_records.fields import Field, Kind, View, json_value

if TYPE_CHECKING:
    from datetime import datetime

    from pyasynq._face_records.fields import Record
    from pyasynq.operations import FailedExchange, HostDeliveries, HostedCommand, ServiceDoor

_COLORS: Final = {
    "failing": "red",
    "throttled": "yellow",
    "running": "blue",
    "done": "green",
    "retried": "yellow",
    "archived": "red",
    "lost": "red",
    "open": "green",
}

_DELIVERY_FIELDS: Final = (
    Field("id", Kind.TEXT, "Id of the host and the type together.", is_wide=True),
    Field("host", Kind.TEXT, "The host, with its port unless it is 80 or 443.", "HOST", shrinks=True),
    Field("type", Kind.TEXT, "Type of the tasks, and their queue.", "TYPE", shrinks=True),
    Field(
        "state",
        Kind.TEXT,
        "`called`, `idle`, `throttled`, or `failing` if half of the requests got no 2xx answer.",
        "STATE",
        color=_COLORS.get,
    ),
    Field("requests", Kind.COUNT, "Requests of the last hour.", "REQUESTS"),
    Field("good", Kind.COUNT, "Requests with a 2xx answer.", "2XX"),
    Field(
        "statuses",
        Kind.NUMBERS,
        "Requests by class of status; `none` is for no answer.",
        "STATUSES",
        is_wide=True,
    ),
    Field("p50", Kind.DURATION, "Median of their durations; null without any.", "P50", is_optional=True),
    Field("p99", Kind.DURATION, "Their 99th percentile; null without any.", "P99", is_optional=True),
    Field(
        "throttled_since",
        Kind.TIME,
        "Since when the host asks to be left alone; null if it does not.",
        is_optional=True,
    ),
    Field(
        "throttled_until",
        Kind.TIME,
        "Until when it is left alone; null if it is not.",
        "THROTTLED UNTIL",
        is_wide=True,
        is_optional=True,
    ),
    Field(
        "gone",
        Kind.TIME,
        "When it last answered 410, which pauses the queue; null if it has not.",
        "GONE",
        is_wide=True,
        is_optional=True,
    ),
    Field("seen", Kind.TIME, "When a request last ended.", "SEEN"),
)
DELIVERIES: Final = View(
    "delivery-list",
    "id",
    _DELIVERY_FIELDS,
    "The task service has sent no requests within the last hour.",
)
DELIVERY: Final = View(
    "delivery",
    "id",
    (
        *_DELIVERY_FIELDS,
        Field(
            "failed",
            Kind.OBJECT,
            "The newest request whose attempt failed, with its answer; null if there is none.",
            is_optional=True,
        ),
    ),
    DELIVERIES.empty,
)

_COMMAND_FIELDS: Final = (
    Field("id", Kind.TEXT, "Id of the run.", "ID"),
    Field("type", Kind.TEXT, "Type of the task, and its queue.", "TYPE", shrinks=True),
    Field("task", Kind.TEXT, "Id of the task.", "TASK", shrinks=True),
    Field("attempt", Kind.COUNT, "Number of the attempt.", "ATTEMPT", is_wide=True),
    Field(
        "state",
        Kind.TEXT,
        "`running`, `done`, `retried`, `archived`, `snoozed`, `stopped` or `lost`.",
        "STATE",
        color=_COLORS.get,
    ),
    Field("end", Kind.TEXT, "How it ended; empty while it runs.", "END", shrinks=True),
    Field("reason", Kind.TEXT, "Error of the attempt; empty for none.", "REASON", is_wide=True),
    Field("ran", Kind.DURATION, "How long it ran, so far.", "RAN"),
    Field(
        "cpu",
        Kind.DURATION,
        "CPU time of its processes; null while it runs.",
        "CPU",
        is_optional=True,
        gives_way=True,
    ),
    Field(
        "memory",
        Kind.BYTES,
        "Memory of the largest one; null while it runs.",
        "MEMORY",
        is_optional=True,
        gives_way=True,
    ),
    Field("output", Kind.BYTES, "Bytes of both output streams.", "OUTPUT", is_wide=True),
    Field("program", Kind.TEXT, "Path of the program.", "PROGRAM", is_wide=True),
    Field("host", Kind.TEXT, "The machine.", "HOST", shrinks=True, is_wide=True),
    Field("started", Kind.TIME, "When it was started.", "STARTED", is_wide=True),
    Field("ended", Kind.TIME, "When it ended; null while it runs.", "ENDED", is_wide=True, is_optional=True),
)
HOSTED_COMMANDS: Final = View(
    "command-list",
    "id",
    _COMMAND_FIELDS,
    "The task service has run no commands within 10 minutes.",
)
HOSTED_COMMAND: Final = View(
    "command",
    "id",
    (
        *_COMMAND_FIELDS,
        Field("out", Kind.TEXT, "The end of its standard output, 3,000 bytes at most."),
        Field("out_bytes", Kind.BYTES, "Bytes of its standard output."),
        Field("err", Kind.TEXT, "The end of its standard error, 3,000 bytes at most."),
        Field("err_bytes", Kind.BYTES, "Bytes of its standard error."),
    ),
    HOSTED_COMMANDS.empty,
)

DOORS: Final = View(
    "door-list",
    "id",
    (
        Field("id", Kind.TEXT, "Id of the door.", is_wide=True),
        Field("address", Kind.TEXT, "Host and port on which it listens.", "ADDRESS"),
        Field("protocol", Kind.TEXT, "`gearman`.", "PROTOCOL"),
        Field("host", Kind.TEXT, "The machine of the instance.", "HOST", shrinks=True),
        Field("state", Kind.TEXT, "`open`, `closed` or `lost`.", "STATE", color=_COLORS.get),
        Field("workers", Kind.COUNT, "Connections that can run a function.", "WORKERS"),
        Field("clients", Kind.COUNT, "The other connections.", "CLIENTS"),
        Field("jobs", Kind.COUNT, "Jobs that its workers run.", "JOBS"),
        Field("functions", Kind.NUMBERS, "Workers by function.", "FUNCTIONS", shrinks=True),
        Field("opened", Kind.TIME, "When it was opened.", "OPENED", is_wide=True),
    ),
    "No instance of the task service has opened a door within 10 minutes.",
)


def describe_delivery(one: HostDeliveries) -> Record:
    """Return the face record of the requests of one task type to one host."""
    # Imported late: the help of commands needs no Redis.
    from pyasynq.operations import find_duration, make_delivery_id  # noqa: PLC0415 - as above

    return {
        "id": make_delivery_id(one.host, one.queue),
        "host": one.host,
        "type": one.queue,
        "state": one.state,
        "requests": one.calls,
        "good": one.statuses.get("2xx", 0),
        "statuses": dict(sorted(one.statuses.items())),
        "p50": find_duration(one.times, 0.5),
        "p99": find_duration(one.times, 0.99),
        "throttled_since": one.throttled_since,
        "throttled_until": one.throttled_until,
        "gone": one.gone_at,
        "seen": one.seen,
        "failed": None if one.failed is None else _describe_exchange(one.failed),
    }


def _describe_exchange(one: FailedExchange) -> dict[str, Any]:
    return {
        "task": one.task_id,
        "attempt": one.attempt,
        "at": json_value(DELIVERIES.fields[-1], one.at),
        "seconds": one.seconds,
        "reason": one.reason,
        "method": one.method,
        "url": one.url,
        "headers": _describe_headers(one.headers),
        "status": one.status,
        "answer_headers": _describe_headers(one.answer_headers),
        "answer": one.answer_body.decode("utf-8", "replace"),
    }


def _describe_headers(headers: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    """Return HTTP headers in their order; a name may occur twice."""
    return [{"name": name, "value": value} for name, value in headers]


def describe_hosted_command(command: HostedCommand, now: datetime) -> Record:
    """Return the face record of a command that an instance runs, or has run."""
    return {
        "id": command.id,
        "type": command.queue,
        "task": command.task_id,
        "attempt": command.attempt,
        "state": command.state,
        "end": command.end,
        "reason": command.reason,
        "ran": max(0.0, ((command.ended or now) - command.started).total_seconds()),
        "cpu": command.cpu,
        "memory": command.memory,
        "output": command.out_bytes + command.err_bytes,
        "program": command.program,
        "host": command.host,
        "started": command.started,
        "ended": command.ended,
        "out": command.out.decode("utf-8", "replace"),
        "out_bytes": command.out_bytes,
        "err": command.err.decode("utf-8", "replace"),
        "err_bytes": command.err_bytes,
    }


def describe_door(door: ServiceDoor) -> Record:
    """Return the face record of a door of the task service."""
    return {
        "id": door.id,
        "address": door.address,
        "protocol": door.protocol,
        "host": door.host,
        "state": door.state,
        "workers": door.workers,
        "clients": door.clients,
        "jobs": door.running,
        "functions": dict(sorted(door.functions.items())),
        "opened": door.opened,
    }
