"""JSON objects of asynqmon, built from results of the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq.task import TaskState

from .go_texts import format_data, format_latency, format_set_time, format_time, seconds_left

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from pyasynq.info import (
        DailyStatistics,
        GroupInfo,
        QueueInfo,
        SchedulerEntryInfo,
        SchedulerEvent,
        ServerInfo,
        WorkerInfo,
    )
    from pyasynq.task import TaskInfo

_NO_TIME: Final = "-"
"""Placeholder for start and deadline of an active task that is in no server's record."""


class TextLimits(NamedTuple):
    """Maximum length, in characters, of payloads and of results in responses; None is unlimited."""

    payload: int | None = None
    result: int | None = None


def describe_queue_snapshot(info: QueueInfo, memory: int) -> dict[str, Any]:
    """Return the task counts and state of a queue, and the last estimate of its memory in bytes."""
    return {
        "queue": info.queue,
        "memory_usage_bytes": memory,
        "size": info.size,
        "groups": info.groups,
        "latency_msec": _milliseconds(info.latency),
        "display_latency": format_latency(info.latency),
        "active": info.active,
        "pending": info.pending,
        "aggregating": info.aggregating,
        "scheduled": info.scheduled,
        "retry": info.retry,
        "archived": info.archived,
        "completed": info.completed,
        "processed": info.processed,
        "succeeded": info.processed - info.failed,
        "failed": info.failed,
        "paused": info.paused,
        "timestamp": format_time(info.timestamp, fraction=True),
    }


def describe_daily_statistics(days: Iterable[DailyStatistics]) -> list[dict[str, Any]]:
    """Return daily counts of a queue: processed and failed attempts."""
    return [
        {
            "queue": day.queue,
            "processed": day.processed,
            "succeeded": day.processed - day.failed,
            "failed": day.failed,
            "date": day.day.isoformat(),
        }
        for day in days
    ]


def describe_group_sizes(groups: Iterable[GroupInfo]) -> list[dict[str, Any]]:
    """Return groups with the number of their tasks."""
    return [{"group": group.name, "size": group.size} for group in groups]


def describe_listed_task(
    task: TaskInfo, limits: TextLimits, workers: Mapping[str, WorkerInfo]
) -> dict[str, Any]:
    """Return a task of a list, with the fields of its state.

    Args:
        task: the task.
        limits: limits of payload and result.
        workers: servers' records of active tasks, by task id.
    """
    shape = {
        "id": task.id,
        "type": task.type,
        "payload": format_data(task.payload, limits.payload),
        "queue": task.queue,
        "max_retry": task.max_retry,
        "retried": task.retried,
        "error_message": task.last_error,
    }
    match task.state:
        case TaskState.ACTIVE:
            worker = workers.get(task.id)
            shape["start_time"] = format_time(worker.started) if worker else _NO_TIME
            shape["deadline"] = format_time(worker.deadline) if worker else _NO_TIME
            shape["is_orphaned"] = task.is_orphaned
        case TaskState.AGGREGATING:
            shape["group"] = task.group
        case TaskState.SCHEDULED | TaskState.RETRY:
            shape["next_process_at"] = format_time(task.next_process_at, fraction=True)
        case TaskState.ARCHIVED:
            shape["last_failed_at"] = format_time(task.last_failed_at, fraction=True)
        case TaskState.COMPLETED:
            shape["completed_at"] = format_time(task.completed_at, fraction=True)
            shape["result"] = format_data(task.result or b"", limits.result)
            shape["ttl_seconds"] = _seconds_kept(task)
    return shape


def describe_whole_task(task: TaskInfo, limits: TextLimits) -> dict[str, Any]:
    """Return all known facts about a task."""
    return {
        "id": task.id,
        "queue": task.queue,
        "type": task.type,
        "payload": format_data(task.payload, limits.payload),
        "state": task.state.value,
        "max_retry": task.max_retry,
        "retried": task.retried,
        "error_message": task.last_error,
        "last_failed_at": format_set_time(task.last_failed_at),
        "timeout_seconds": int(task.timeout.total_seconds()) if task.timeout else 0,
        "deadline": format_set_time(task.deadline),
        "next_process_at": format_set_time(task.next_process_at),
        "completed_at": format_set_time(task.completed_at),
        "result": format_data(task.result or b"", limits.result),
        "ttl_seconds": _seconds_kept(task),
    }


def describe_running_server(info: ServerInfo, limits: TextLimits) -> dict[str, Any]:
    """Return a server with its running tasks."""
    return {
        "id": info.id,
        "host": info.host,
        "pid": info.pid,
        "concurrency": info.concurrency,
        "queue_priorities": dict(sorted(info.queues.items())),
        "strict_priority_enabled": info.strict_priority,
        "start_time": format_time(info.started),
        "status": info.status,
        "active_workers": [
            {
                "task_id": worker.task_id,
                "queue": worker.queue,
                "task_type": worker.task_type,
                "task_payload": format_data(worker.payload, limits.payload),
                "start_time": format_time(worker.started),
            }
            for worker in info.active_workers
        ],
    }


def describe_scheduler_entry(entry: SchedulerEntryInfo, limits: TextLimits) -> dict[str, Any]:
    """Return an entry of a scheduler; the time of the previous enqueue is left out if there was none."""
    shape = {
        "id": entry.id,
        "spec": entry.spec,
        "task_type": entry.task.type,
        "task_payload": format_data(entry.task.payload or b"", limits.payload),
        "options": list(entry.options),
        "next_enqueue_at": format_time(entry.next_enqueue_at),
    }
    if entry.previous_enqueue_at is not None:
        shape["prev_enqueue_at"] = format_time(entry.previous_enqueue_at)
    return shape


def describe_enqueue_event(event: SchedulerEvent) -> dict[str, Any]:
    """Return the task id and time of one enqueue by a scheduler entry."""
    return {"task_id": event.task_id, "enqueued_at": format_time(event.enqueued_at)}


def _seconds_kept(task: TaskInfo) -> int:
    if task.state is not TaskState.COMPLETED or task.completed_at is None:
        return 0
    return seconds_left(task.completed_at + task.retention)


def _milliseconds(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1_000)
