"""Pages of schedules: the periodic tasks of running schedulers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.web import formats
from pyasynq.web.page import Page
from pyasynq.web.pages.pagination import Pagination, paginate, read_filter
from pyasynq.web.problems import NextStep, Trouble, trouble_page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyasynq.info import SchedulerEntryInfo
    from pyasynq.operations import Presentation
    from pyasynq.web.page import PageRequest

_EVENTS: Final = 30
_SORTS: Final = ("next", "-next", "type", "-type", "spec", "-spec", "queue", "-queue")


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """View model of a periodic task in the list."""

    key: str
    type: str
    href: str
    spec: str
    words: str
    queue: str
    queue_href: str
    next: datetime | None
    previous: datetime | None


@dataclass(frozen=True, slots=True)
class SchedulesView:
    """View model of the list of schedules."""

    total: int
    summary: str
    filter: str
    sort: str
    descending: bool
    pages: Pagination[ScheduleRow]


@dataclass(frozen=True, slots=True)
class EventRow:
    """View model of a row: a task that the schedule enqueued."""

    id: str
    href: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """View model of the page of one periodic task."""

    row: ScheduleRow
    options: tuple[str, ...]
    payload: Presentation
    events: tuple[EventRow, ...]
    first_page: str
    next_page: str
    paused_since: datetime | None
    verbs: tuple[tuple[str, str], ...]
    """Label of each action, and address of its confirmation form."""


async def schedules_page(ask: PageRequest) -> Page:
    """Return the page `/schedules`."""
    entries = await _read_entries(ask)
    ask.target.note_count(ask.user, "schedules", formats.number(len(entries)) if entries else "")
    text = read_filter(ask).lower()
    rows = [_row(ask, entry) for entry in entries]
    found = [row for row in rows if text in f"{row.type} {row.spec} {row.queue}".lower()]
    sort = ask.choice("sort", _SORTS)
    name = sort.removeprefix("-")
    found.sort(key=lambda row: (row.type, row.key))
    if name == "next":
        found.sort(
            key=lambda row: row.next.timestamp() if row.next else float("inf"), reverse=sort.startswith("-")
        )
    else:
        found.sort(key=lambda row: str(getattr(row, name)), reverse=sort.startswith("-"))
    view = SchedulesView(
        total=len(rows),
        summary=f"{counted(len(rows), 'entry', 'entries')} of running schedulers",
        filter=text,
        sort=name,
        descending=sort.startswith("-"),
        pages=paginate(ask, found, counted(len(found), "entry", "entries")),
    )
    return Page("schedules.html", f"({len(rows):,}) Schedules", "schedules", view, is_live=True)


async def schedule_page(ask: PageRequest) -> Page:
    """Return the page of one periodic task, with its enqueue history."""
    entry_id = ask.name("entry")
    entry = next((one for one in await _read_entries(ask) if one.id == entry_id), None)
    if entry is None:
        text = "Its scheduler has stopped, or it is not in the scheduler's list any more."
        actions = (NextStep("All schedules", ask.links.to("schedules")),)
        return trouble_page(404, Trouble("This schedule is gone", text, actions))
    row = _row(ask, entry)
    page = ask.number("page", 1, 1_000)
    events = await ask.operator.schedule_events(entry_id, page, _EVENTS)
    view = ScheduleView(
        row=row,
        options=tuple(visible(option) for option in entry.options),
        payload=ask.operator.present(entry.task.type, entry.task.payload, ask.query.get("as", "")),
        events=tuple(
            EventRow(
                visible(event.task_id),
                ask.links.to("queues", _queue(entry), "tasks", event.task_id),
                event.enqueued_at,
            )
            for event in events
        ),
        first_page=ask.links.here(page=None) if page > 1 else "",
        next_page=ask.links.here(page=page + 1) if len(events) == _EVENTS else "",
        paused_since=entry.paused_since,
        verbs=tuple(
            (label, ask.links.to("schedules", entry_id, verb))
            for label, verb in (
                ("Run now…", "run_schedule"),
                ("Resume…", "resume_schedule") if entry.paused_since else ("Pause…", "pause_schedule"),
            )
            if ask.may(verb, _queue(entry))
        ),
    )
    return Page("schedule.html", f"{row.type} {row.spec}", "schedules", view)


async def _read_entries(ask: PageRequest) -> Sequence[SchedulerEntryInfo]:
    return await ask.target.recent(ask.user, "schedules", ask.operator.schedules)


def _row(ask: PageRequest, entry: SchedulerEntryInfo) -> ScheduleRow:
    queue = _queue(entry)
    return ScheduleRow(
        key=entry.id,
        type=visible(entry.task.type),
        href=ask.links.to("schedules", entry.id),
        spec=visible(entry.spec),
        words=describe_spec(entry.spec),
        queue=visible(queue),
        queue_href=ask.links.to("queues", queue),
        next=entry.next_enqueue_at,
        previous=entry.previous_enqueue_at,
    )


def _queue(entry: SchedulerEntryInfo) -> str:
    return str(entry.task.options.get("queue") or "default")


_WORDS: Final = {
    "@yearly": "once a year",
    "@annually": "once a year",
    "@monthly": "once a month",
    "@weekly": "once a week",
    "@daily": "once a day, at midnight",
    "@midnight": "once a day, at midnight",
    "@hourly": "once an hour",
}
_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LONGEST_SPEC: Final = 100
_FIELDS: Final = 5


def describe_spec(spec: str) -> str:
    """Describe a cron expression in words; empty if it has no short description."""
    text = spec.strip()
    if len(text) > _LONGEST_SPEC:
        return ""
    if text.startswith("@every "):
        return f"every {visible(text.removeprefix('@every ').strip())}"
    if text in _WORDS:
        return _WORDS[text]
    zone = ""
    if text.startswith(("TZ=", "CRON_TZ=")):
        first, _, text = text.partition(" ")
        zone = f", {visible(first.partition('=')[2])}"
    fields = text.split()
    return _describe_fields(fields) + zone if len(fields) == _FIELDS and _describe_fields(fields) else ""


def _describe_fields(fields: Sequence[str]) -> str:
    minute, hour, day, month, weekday = fields
    if month not in {"*", "?"}:
        return ""
    if (day, weekday) == ("*", "*"):
        return _describe_time(minute, hour)
    days = _describe_days(day, weekday)
    is_clock = minute.isdecimal() and hour.isdecimal()
    return f"{days} at {int(hour):02}:{int(minute):02}" if days and is_clock else ""


def _describe_days(day: str, weekday: str) -> str:
    if day == "*" and weekday == "1-5":
        return "Monday to Friday"
    if day == "*" and weekday.isdecimal() and int(weekday) < len(_DAYS):
        return f"every {_DAYS[int(weekday)]}"
    return f"on day {int(day)} of each month" if weekday == "*" and day.isdecimal() else ""


def _describe_time(minute: str, hour: str) -> str:
    if hour == "*":
        return _describe_minute(minute)
    if not minute.isdecimal():
        return ""
    if hour.isdecimal():
        return f"every day at {int(hour):02}:{int(minute):02}"
    every = hour.removeprefix("*/")
    if hour.startswith("*/") and every.isdecimal():
        return f"every {counted(int(every), 'hour')} at minute {int(minute)}"
    return ""


def _describe_minute(minute: str) -> str:
    every = minute.removeprefix("*/")
    if minute in {"*", "*/1"}:
        return "every minute"
    if minute.isdecimal():
        return f"every hour at minute {int(minute)}"
    return f"every {counted(int(every), 'minute')}" if minute.startswith("*/") and every.isdecimal() else ""
