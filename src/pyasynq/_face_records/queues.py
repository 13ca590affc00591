"""Face records of queues, of their daily statistics and of their groups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyasynq._face_records.fields import Field, Kind, View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq._face_records.fields import Record
    from pyasynq.info import DailyStatistics, GroupInfo, QueueInfo
    from pyasynq.limits import QueueLimits


LIMIT_ABOUT: Final = (
    "How many tasks may run at once: the stored limit, or else the largest that all servers declare."
)


def _color_if_any(color: str) -> Any:
    return lambda value: color if value else None


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
        Field("max_run", Kind.COUNT, "Stored limit of tasks that run at once.", is_optional=True),
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

_LIMIT: Final = Field("limit", Kind.COUNT, LIMIT_ABOUT, "LIMIT", is_optional=True)
_LIMIT_AT: Final = [field.name for field in QUEUES.fields].index("max_run")
LISTED_QUEUES: Final = replace(
    QUEUES, fields=(*QUEUES.fields[:_LIMIT_AT], _LIMIT, *QUEUES.fields[_LIMIT_AT:])
)
"""Queues as commands list them, with the limit that holds now."""


def describe_load(info: QueueInfo) -> Record:
    """Return the part of a queue's face record that `queue list` and `top` share: state, counts, latency."""
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
    """Return the stored limits of a queue as fields that `queue list` and `limits` share."""
    return {
        "max_run": limits.max_run,
        "rate": describe_rate(limits),
        "ordered": bool(limits.ordered),
    }


def describe_queue(info: QueueInfo) -> Record:
    """Return the face record of a queue."""
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


def describe_listed_queue(info: QueueInfo, declared: Mapping[str, int]) -> Record:
    """Return the face record of a queue with the limit that holds now; `declared` is by servers."""
    return {**describe_queue(info), "limit": info.limits.max_run or declared.get(info.queue)}


def error_rate(processed: int, failed: int) -> float | None:
    """Return the share of failed attempts, at most 1; None if no attempt has ended."""
    return min(1.0, failed / processed) if processed else None


def describe_rate(limits: QueueLimits) -> str | None:
    """Return a rate in the notation of the command line's options: `50/s+10`; None without a rate."""
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
    """Return the face record of a queue's statistics of one day: ended and failed attempts."""
    return {
        "queue": day.queue,
        "day": day.day.isoformat(),
        "processed": day.processed,
        "failed": day.failed,
        "error_rate": error_rate(day.processed, day.failed),
    }


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
    """Return the face record of a group of tasks that are to be aggregated."""
    return {"queue": queue, "group": info.name, "size": info.size}
