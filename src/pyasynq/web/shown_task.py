"""Row of a task in a list, with strings that are shortened and safe to show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._visible_text import visible
from pyasynq.operations import Withheld
from pyasynq.task import TaskState
from pyasynq.web import formats
from pyasynq.web.locations import to_task_key

if TYPE_CHECKING:
    from datetime import datetime

    from pyasynq.task import AttemptInfo, TaskInfo
    from pyasynq.web.locations import Links

_UUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORT_ID: Final = 8
_LONGEST_TEXT: Final = 200
_LONGEST_HEX: Final = 24


@dataclass(frozen=True, slots=True)
class StateLook:
    """Appearance of a task state: symbol, color tone and word."""

    state: TaskState
    word: str
    tone: str
    time_label: str
    """Meaning of the time that is shown for a task in this state."""


STATE_LOOKS: Final = {
    look.state: look
    for look in (
        StateLook(TaskState.ACTIVE, "Active", "busy", "Runs"),
        StateLook(TaskState.PENDING, "Pending", "", "Waits"),
        StateLook(TaskState.AGGREGATING, "Grouped", "", "Joined"),
        StateLook(TaskState.SCHEDULED, "Scheduled", "", "Due"),
        StateLook(TaskState.RETRY, "Retry", "warn", "Due"),
        StateLook(TaskState.ARCHIVED, "Archived", "bad", "Archived"),
        StateLook(TaskState.COMPLETED, "Completed", "good", "Completed"),
    )
}
"""Appearance of all states, in display order."""


class OutcomeLook(NamedTuple):
    """Appearance of an attempt's outcome, or of another event of a task."""

    word: str
    symbol: str
    tone: str


_OUTCOME_LOOKS: Final = {
    "retried": OutcomeLook("Failed, retried", "retry", "warn"),
    "snoozed": OutcomeLook("Put off", "scheduled", ""),
    "archived": OutcomeLook("Failed, archived", "archived", "bad"),
    "crashed": OutcomeLook("Worker lost", "lost", "bad"),
}

_EVENT_LOOKS: Final = {
    **_OUTCOME_LOOKS,
    "enqueued": OutcomeLook("Enqueued", "pending", ""),
    "started": OutcomeLook("Started", "active", "busy"),
    "succeeded": OutcomeLook("Succeeded", "completed", "good"),
    "revoked": OutcomeLook("Revoked", "completed", ""),
    "requeued": OutcomeLook("Put back", "pending", ""),
    "aggregated": OutcomeLook("Aggregated", "aggregating", ""),
    "lost": OutcomeLook("Result discarded", "lost", "warn"),
    "recovered": OutcomeLook("Recovered", "retry", "warn"),
    "poisoned": OutcomeLook("Poison, archived", "danger", "bad"),
    "dropped": OutcomeLook("Not published", "warning", "warn"),
}


def look_of_event(kind: str) -> OutcomeLook:
    """Return the appearance of an event; an unknown kind is labelled with its name."""
    return _EVENT_LOOKS.get(kind, OutcomeLook(visible(kind[:40]).capitalize(), "info", ""))


def look_of_outcome(attempt: AttemptInfo) -> OutcomeLook:
    """Return the appearance of an attempt's outcome; an unknown outcome is labelled with its name."""
    unknown = OutcomeLook(visible(attempt.outcome).capitalize(), "info", "")
    return _OUTCOME_LOOKS.get(attempt.outcome, unknown)


@dataclass(frozen=True, slots=True)
class TaskRow:
    """View model of a task in a list."""

    key: str
    id: str
    short_id: str
    href: str
    type: str
    queue: str
    queue_href: str
    look: StateLook
    payload: str
    is_binary: bool
    error: str
    attempts: str
    lasted: str
    """Duration of the last attempt, as text."""
    when: datetime | None
    note: str
    """Remark on the task: that it is orphaned, or has crashed its worker; empty for none."""


def task_row(task: TaskInfo, links: Links) -> TaskRow:
    """Return the row of a task."""
    payload, is_binary = payload_line(task.payload)
    return TaskRow(
        key=to_task_key(task.queue, task.id),
        id=visible(task.id),
        short_id=short_id(task.id),
        href=links.to("queues", task.queue, "tasks", task.id),
        type=visible(task.type)[:_LONGEST_TEXT],
        queue=visible(task.queue),
        queue_href=links.to("queues", task.queue),
        look=STATE_LOOKS[task.state],
        payload=payload,
        is_binary=is_binary,
        error=first_line(task.last_error),
        attempts=_attempts(task),
        lasted=_describe_run_time(task),
        when=when_of(task),
        note=_note(task),
    )


def short_id(task_id: str) -> str:
    """Return the first characters of a generated id; a chosen id is cut only if it is too long."""
    return task_id[:_SHORT_ID] if _UUID.fullmatch(task_id) else visible(task_id[:40])


def first_line(text: str) -> str:
    """Return the first line of an error, shortened."""
    line = text.strip().partition("\n")[0]
    return visible(line[:_LONGEST_TEXT])


def payload_line(data: bytes) -> tuple[str, bool]:
    """Return a payload as one short line, and whether it is binary, shown in hex."""
    if isinstance(data, Withheld):
        return data.decode(), False
    head = data[: _LONGEST_TEXT * 4]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return data[:_LONGEST_HEX].hex(" "), True
        text = head[: error.start].decode()
    if "\x00" in text:
        return data[:_LONGEST_HEX].hex(" "), True
    return visible(text[:_LONGEST_TEXT]), False


def when_of(task: TaskInfo) -> datetime | None:
    """Return the time to show for a task in its state, such as when it is due or failed."""
    match task.state:
        case TaskState.SCHEDULED | TaskState.RETRY:
            return task.next_process_at
        case TaskState.COMPLETED:
            return task.completed_at
        case TaskState.ARCHIVED:
            return task.in_state_since or task.last_failed_at
        case _:
            return task.in_state_since


def _attempts(task: TaskInfo) -> str:
    # Number of attempts so far: the retries, and the attempt that runs or was the last.
    begun = task.retried + (task.state in {TaskState.ACTIVE, TaskState.ARCHIVED, TaskState.COMPLETED})
    return f"{formats.number(begun)} of {formats.number(task.max_retry + 1)}"


def _describe_run_time(task: TaskInfo) -> str:
    last = task.attempts[-1] if task.attempts else None
    return formats.span(last.ended_at - last.started_at if last is not None and last.started_at else None)


def _note(task: TaskInfo) -> str:
    if task.is_orphaned:
        return "orphaned"
    return "crashed its worker" if task.crashes else ""
