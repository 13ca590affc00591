"""The page of errors: failed tasks of all queues, grouped by error signature."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq.task import TaskState
from pyasynq.web.page import Page
from pyasynq.web.pages.pagination import read_filter
from pyasynq.web.pages.queue_tabs import ErrorRow, merge_errors
from pyasynq.web.pages.queues import read_queue_reports, read_queues

if TYPE_CHECKING:
    from pyasynq.info import ErrorReport, QueueInfo
    from pyasynq.web.page import PageRequest

_MOST_QUEUES: Final = 20
_SCAN: Final = 500
_SECONDS: Final = 10.0
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class ErrorsView:
    """View model of the errors page."""

    rows: tuple[ErrorRow, ...]
    total: int
    summary: str
    filter: str


async def errors_page(ask: PageRequest) -> Page:
    """Return the page `/errors`."""
    infos = await read_queues(ask)
    failed = sorted(
        (one for one in infos if one.retry + one.archived), key=lambda one: -(one.retry + one.archived)
    )
    reports = await ask.target.recent(ask.user, "errors", lambda: _read(ask, failed[:_MOST_QUEUES]), _SECONDS)
    rows = merge_errors(ask, reports)
    ask.target.note_count(ask.user, "errors", f"{len(rows):,}" if rows else "")
    text = read_filter(ask)
    found = tuple(row for row in rows if text.lower() in f"{row.signature} {row.types}".lower())
    view = ErrorsView(found[:_SHOWN], len(rows), _summary(rows, reports, failed), text)
    return Page("errors.html", f"({len(rows):,}) Errors", "errors", view)


async def _read(ask: PageRequest, queues: list[QueueInfo]) -> list[ErrorReport]:
    """Return the error reports of queues, except queues that have just been deleted."""
    wanted = [
        (info.queue, state)
        for info in queues
        for state in (TaskState.ARCHIVED, TaskState.RETRY)
        if getattr(info, state.value)
    ]
    found = await read_queue_reports([partial(ask.operator.errors, *one, scan=_SCAN) for one in wanted])
    return [report for report in found if report is not None]


def _summary(rows: tuple[ErrorRow, ...], reports: list[ErrorReport], failed: list[QueueInfo]) -> str:
    tasks = counted(sum(row.count for row in rows), "failed task")
    kinds = counted(len(rows), "kind")
    if all(one.is_complete for one in reports) and len(failed) <= _MOST_QUEUES:
        return f"{tasks} in {kinds}; all retry and archived tasks looked at"
    queues = f" of the {_MOST_QUEUES} queues with the most" if len(failed) > _MOST_QUEUES else ""
    return f"at least {tasks} in {kinds}; at most {_SCAN:,} tasks of each state{queues} looked at"
