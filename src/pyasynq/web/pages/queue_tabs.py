"""Contents of the tabs of a queue's page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyasynq._human_text import counted, some
from pyasynq._visible_text import visible
from pyasynq.operations import Act
from pyasynq.operations.operation import STATES_OF_ACT
from pyasynq.task import TaskState
from pyasynq.web.page import PAGE_SIZE
from pyasynq.web.pages.bulk import act_choices
from pyasynq.web.pages.pagination import Pagination, paginate
from pyasynq.web.pages.types import STATES_WITH_STATISTICS, TypeSummary, sort_types
from pyasynq.web.pages.views import QUEUE, ViewLink, new_view_href, view_links
from pyasynq.web.shown_task import STATE_LOOKS, StateLook, TaskRow, first_line, task_row
from pyasynq.web.trends import (
    DAY,
    DAY_STEP,
    Trend,
    chosen_range,
    read_series,
    read_trend,
    totals_by_type,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import date, datetime

    from pyasynq.info import ErrorReport, QueueInfo, ServerInfo
    from pyasynq.limits import QueueLimits
    from pyasynq.web.page import PageRequest

_SCAN: Final = 1_000
_SECONDS: Final = 5.0
_HISTORY_DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class TasksTab:
    """View model of the tab with the tasks of one state."""

    look: StateLook
    rows: tuple[TaskRow, ...]
    groups: tuple[GroupRow, ...]
    """Groups to choose from, when the state is aggregating."""
    group: str
    summary: str
    first_page: str
    next_page: str
    verbs: tuple[VerbButton, ...]
    acts: tuple[tuple[str, str], ...]
    """Bulk actions for all tasks of the state: name and label."""
    filter: str
    views: tuple[ViewLink, ...]
    save_href: str
    """Address of the form that saves a new view; empty if the user may not save it."""


@dataclass(frozen=True, slots=True)
class VerbButton:
    """A button that acts on the selected tasks."""

    name: str
    label: str
    key: str = ""
    is_danger: bool = False


@dataclass(frozen=True, slots=True)
class GroupRow:
    """View model of a group of tasks."""

    name: str
    href: str
    size: int


@dataclass(frozen=True, slots=True)
class GroupsTab:
    """View model of the tab with the groups of the queue."""

    rows: tuple[GroupRow, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class TypesTab:
    """View model of the tab with the task types of the queue."""

    looks: tuple[StateLook, ...]
    rows: tuple[TypeSummary, ...]
    summary: str
    has_statistics: bool
    states: frozenset[TaskState]
    """States that have a column."""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """View model of failed tasks with equal errors."""

    signature: str
    href: str
    count: int
    types: str
    latest: datetime | None
    sample_href: str
    sample: str


@dataclass(frozen=True, slots=True)
class ErrorsTab:
    """View model of the tab with the errors of the queue."""

    rows: tuple[ErrorRow, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class LimitRow:
    """View model of limits from one source: stored limits, or limits that a server declares."""

    who: str
    note: str
    limits: str
    is_effective: bool


@dataclass(frozen=True, slots=True)
class LimitsTab:
    """View model of the tab with the limits of the queue: stored limits, and limits that servers declare."""

    rows: tuple[LimitRow, ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class DayRow:
    """View model of a row: the attempts of one day."""

    day: date
    processed: int
    failed: int
    fail: float | None


@dataclass(frozen=True, slots=True)
class HistoryTab:
    """View model of the tab with the number of attempts on each day."""

    rows: tuple[DayRow, ...]
    done: tuple[float, ...]
    failed: tuple[float, ...]
    trend: Trend


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """View model of a server that takes tasks from the queue."""

    name: str
    href: str
    status: str
    priority: str
    busy: int
    slots: int
    engine: str


@dataclass(frozen=True, slots=True)
class ConsumersTab:
    """View model of the tab with the servers that take tasks from the queue."""

    pages: Pagination[ConsumerRow]
    waiting: int


_VERBS: Final = {
    TaskState.ACTIVE: (VerbButton("cancel_task", "Cancel", "c"),),
    TaskState.PENDING: (
        VerbButton("archive_task", "Archive", "a"),
        VerbButton("delete_task", "Delete…", "#", is_danger=True),
    ),
    TaskState.COMPLETED: (
        VerbButton("run_task", "Run again", "r"),
        VerbButton("delete_task", "Delete…", "#", is_danger=True),
    ),
    TaskState.ARCHIVED: (
        VerbButton("run_task", "Run now", "r"),
        VerbButton("delete_task", "Delete…", "#", is_danger=True),
    ),
}
_WAITING_VERBS: Final = (
    VerbButton("run_task", "Run now", "r"),
    VerbButton("archive_task", "Archive", "a"),
    VerbButton("delete_task", "Delete…", "#", is_danger=True),
)


_SELECTION_VERBS: Final = (VerbButton(Act.MOVE.value, "Move…"), VerbButton(Act.EDIT.value, "Edit…"))


def selection_verbs(
    ask: PageRequest, queue: str = "", state: TaskState | None = None
) -> tuple[VerbButton, ...]:
    """Return the buttons of bulk actions that require options before they change the checked tasks.

    Args:
        ask: the request of the page with the list.
        queue: the queue of the tasks, if all are in one.
        state: the state of the tasks, if all are in one.
    """
    if not ask.may("start_operation", queue):
        return ()
    return tuple(verb for verb in _SELECTION_VERBS if state is None or state in STATES_OF_ACT[Act(verb.name)])


async def _build_tasks_tab(
    ask: PageRequest, info: QueueInfo, _: Sequence[ServerInfo], state: TaskState
) -> TasksTab:
    group = ask.query.get("group", "")
    groups: tuple[GroupRow, ...] = ()
    if state is TaskState.AGGREGATING:
        groups = (await _build_groups_tab(ask, info, (), state)).rows
        group = group or (groups[0].name if groups else "")
    cursor = ask.query.get("after", "")
    page = await ask.operator.walk_tasks(info.queue, state, group=group, cursor=cursor, page_size=PAGE_SIZE)
    tasks = page.tasks
    total = int(getattr(info, state.value))
    query = f"queue:{quoted(info.queue)} state:{state.value} "
    return TasksTab(
        look=STATE_LOOKS[state],
        rows=tuple(task_row(task, ask.links) for task in tasks),
        groups=groups,
        group=group,
        summary=f"{counted(len(tasks), 'task')} shown of {total:,}"
        if total > len(tasks)
        else counted(total, "task"),
        first_page=ask.links.here(after=None) if cursor else "",
        next_page=ask.links.here(after=page.cursor) if page.cursor else "",
        verbs=(
            *(verb for verb in _VERBS.get(state, _WAITING_VERBS) if ask.may(verb.name, info.queue)),
            *selection_verbs(ask, info.queue, state),
        ),
        acts=act_choices(ask, info.queue, state),
        filter=query,
        views=await view_links(ask, QUEUE, info.queue),
        save_href=new_view_href(ask, query, info.queue),
    )


async def _build_groups_tab(
    ask: PageRequest, info: QueueInfo, _: Sequence[ServerInfo], __: TaskState
) -> GroupsTab:
    groups = await ask.operator.groups(info.queue) if info.groups else []
    rows = tuple(
        GroupRow(
            visible(one.name), ask.links.here(tab=None, state=TaskState.AGGREGATING, group=one.name), one.size
        )
        for one in groups[:PAGE_SIZE]
    )
    return GroupsTab(rows, f"{counted(len(rows), 'group')} shown of {info.groups:,}")


async def _build_types_tab(
    ask: PageRequest, info: QueueInfo, _: Sequence[ServerInfo], __: TaskState
) -> TypesTab:
    report = await ask.target.recent(
        ask.user, ("types", info.queue), lambda: ask.operator.types(info.queue, scan=_SCAN), _SECONDS
    )
    looks = tuple(STATE_LOOKS.values())
    series = await read_series(ask, [info.queue], DAY, step=DAY_STEP) if info.processed_total else []
    statistics = totals_by_type(series)
    found = {
        one.type: TypeSummary(
            visible(one.type),
            ask.links.to("tasks", q=f"queue:{quoted(info.queue)} type:{quoted(one.type)}"),
            [one.counts.get(look.state, 0) for look in looks],
            retried=one.retried,
        )
        for one in report.types
    }
    return TypesTab(
        looks,
        sort_types(ask, found, statistics, len(looks)),
        _describe_scan(report.scanned, is_complete=report.is_complete),
        bool(statistics),
        STATES_WITH_STATISTICS if statistics else frozenset(TaskState),
    )


async def _build_errors_tab(
    ask: PageRequest, info: QueueInfo, _: Sequence[ServerInfo], __: TaskState
) -> ErrorsTab:
    reports = await ask.target.recent(
        ask.user, ("errors", info.queue), lambda: _read_errors(ask, info.queue), _SECONDS
    )
    rows = merge_errors(ask, reports)
    scanned = sum(one.scanned for one in reports)
    return ErrorsTab(rows, _describe_scan(scanned, is_complete=all(one.is_complete for one in reports)))


async def _read_errors(ask: PageRequest, queue: str) -> list[ErrorReport]:
    return [
        await ask.operator.errors(queue, state, scan=_SCAN) for state in (TaskState.ARCHIVED, TaskState.RETRY)
    ]


def merge_errors(ask: PageRequest, reports: Sequence[ErrorReport]) -> tuple[ErrorRow, ...]:
    """Return the errors of several reports, the most frequent first."""
    found: dict[str, list[Any]] = {}
    for report in reports:
        for group in report.groups:
            found.setdefault(group.signature, []).append(group)
    rows = []
    for signature, groups in found.items():
        newest = max(groups, key=lambda group: group.latest.timestamp() if group.latest else 0.0)
        types = dict.fromkeys(name for group in groups for name in group.types)
        rows.append(
            ErrorRow(
                signature=visible(signature) or "no error text",
                href=ask.links.to("tasks", q=f"state:retry,archived error:{quoted(first_words(signature))}"),
                count=sum(group.count for group in groups),
                types=some(types, 3),
                latest=newest.latest,
                sample_href=ask.links.to("queues", newest.sample.queue, "tasks", newest.sample.id),
                sample=first_line(newest.sample.last_error),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.count))


def first_words(signature: str) -> str:
    """Return the longest part of an error signature without placeholders, to search for the same errors."""
    parts = [part.strip() for part in signature.replace("<", "\x00").replace(">", "\x00").split("\x00")[::2]]
    return max(parts, key=len, default="")[:100]


async def _build_limits_tab(
    _: PageRequest, info: QueueInfo, servers: Sequence[ServerInfo], __: TaskState
) -> LimitsTab:
    rows = [
        LimitRow("Stored for the queue", "set by an operator", _limit_text(info.limits), bool(info.limits))
    ]
    rows += [
        LimitRow(
            visible(f"{server.host}:{server.pid}"),
            "asked for by a server" if server.engine else "a server in Go, which ignores limits",
            _limit_text(server.limits[info.queue]) if info.queue in server.limits else "none",
            not info.limits and info.queue in server.limits,
        )
        for server in servers
    ]
    if info.limits:
        sentence = f"Every server of pyasynq keeps to what is stored: {info.limits}."
    elif any(row.is_effective for row in rows):
        sentence = "Nothing is stored, so each server keeps to what it asks for."
    else:
        sentence = "Nothing limits this queue but the slots of its servers."
    return LimitsTab(tuple(rows), sentence)


def _limit_text(limits: QueueLimits) -> str:
    return str(limits) or "none"


async def _build_history_tab(
    ask: PageRequest, info: QueueInfo, _: Sequence[ServerInfo], __: TaskState
) -> HistoryTab:
    days = await ask.operator.history(info.queue, _HISTORY_DAYS)
    rows = tuple(
        DayRow(one.day, one.processed, one.failed, one.failed / one.processed if one.processed else None)
        for one in days
    )
    ascending = rows[::-1]
    wanted = chosen_range(ask)
    return HistoryTab(
        rows,
        tuple(float(row.processed - row.failed) for row in ascending),
        tuple(float(row.failed) for row in ascending),
        await read_trend(ask, await read_series(ask, [info.queue], wanted), wanted),
    )


async def _build_consumers_tab(
    ask: PageRequest, info: QueueInfo, servers: Sequence[ServerInfo], _: TaskState
) -> ConsumersTab:
    pages = paginate(ask, servers, counted(len(servers), "server"))
    return ConsumersTab(pages.map_rows(lambda server: _consumer_row(ask, server, info.queue)), info.pending)


def _consumer_row(ask: PageRequest, server: ServerInfo, queue: str) -> ConsumerRow:
    return ConsumerRow(
        visible(f"{server.host}:{server.pid}"),
        ask.links.to("servers", server.id),
        visible(server.status),
        _priority(server, queue),
        sum(worker.queue == queue for worker in server.active_workers),
        server.concurrency,
        visible(server.engine) or "Go",
    )


def _priority(server: ServerInfo, queue: str) -> str:
    return f"{server.queues[queue]}{', strict' if server.strict_priority else ''}"


def _describe_scan(scanned: int, *, is_complete: bool) -> str:
    if is_complete:
        return f"all of {counted(scanned, 'task')} looked at"
    return (
        f"{counted(scanned, 'task')} looked at, at most {_SCAN:,} of each state; the counts are lower bounds"
    )


def quoted(text: str) -> str:
    """Return a value for a query, in quotes unless it is a plain word."""
    if text and all(character.isalnum() or character in "-_." for character in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


READERS: Final[
    dict[str, Callable[[PageRequest, QueueInfo, Sequence[ServerInfo], TaskState], Awaitable[Any]]]
] = {
    "tasks": _build_tasks_tab,
    "types": _build_types_tab,
    "errors": _build_errors_tab,
    "groups": _build_groups_tab,
    "limits": _build_limits_tab,
    "history": _build_history_tab,
    "consumers": _build_consumers_tab,
}
"""Function that reads the content of each tab."""
