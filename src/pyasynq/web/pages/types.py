"""The page of task types: number of tasks by queue and state, and published descriptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted, some
from pyasynq._visible_text import visible
from pyasynq.task import TaskState
from pyasynq.telemetry import NO_ATTEMPTS, AttemptCounts
from pyasynq.web import formats
from pyasynq.web.page import Page
from pyasynq.web.pages.pagination import read_filter
from pyasynq.web.pages.queues import read_queue_reports, read_queues
from pyasynq.web.shown_task import STATE_LOOKS, StateLook
from pyasynq.web.trends import DAY, DAY_STEP, busiest, read_series, totals_by_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.info import QueueInfo, TypeReport
    from pyasynq.web.page import PageRequest

_MOST_QUEUES: Final = 20
_SCAN: Final = 500
_SECONDS: Final = 10.0
_SHOWN: Final = 200
STATES_WITH_STATISTICS: Final = frozenset({TaskState.PENDING, TaskState.RETRY, TaskState.ARCHIVED})
"""Task states that have a column if statistics are shown: only three, to leave room for the statistics."""


@dataclass(slots=True)
class TypeSummary:
    """Number of tasks of one type in all queues, with its statistics."""

    name: str
    href: str
    counts: list[int]
    queues: list[str] = field(default_factory=list)
    ended: AttemptCounts = NO_ATTEMPTS
    """Counts of attempts that ended since yesterday, from workers that keep statistics."""
    share: float | None = None
    """The type's share of the total time of all attempts, from 0 to 1."""
    retried: int = 0
    """Number of retries spent by tasks of the type."""

    @property
    def run(self) -> str:
        """95th percentile of attempt duration, as text."""
        return formats.span(self.ended.run.quantile(0.95))

    @property
    def wait(self) -> str:
        """95th percentile of the time spent pending, as text."""
        return formats.span(self.ended.wait.quantile(0.95))

    @property
    def total(self) -> int:
        """Number of tasks in all states."""
        return sum(self.counts)

    @property
    def where(self) -> str:
        """Names of the first three queues, as text."""
        return some(self.queues, 3)


@dataclass(frozen=True, slots=True)
class TypesView:
    """View model of the page of task types."""

    looks: tuple[StateLook, ...]
    rows: tuple[TypeSummary, ...]
    has_statistics: bool
    states: frozenset[TaskState]
    """Task states that have a column; only three if statistics are shown."""
    total: int
    summary: str
    filter: str


async def types_page(ask: PageRequest) -> Page:
    """Return the page `/types`."""
    infos = sorted((one for one in await read_queues(ask) if one.size), key=lambda one: -one.size)
    reports = await ask.target.recent(
        ask.user, "type reports", lambda: _read(ask, infos[:_MOST_QUEUES]), _SECONDS
    )
    looks = tuple(STATE_LOOKS.values())
    found: dict[str, TypeSummary] = {}
    for queue, report in reports:
        for one in report.types:
            row = found.setdefault(one.type, _empty_row(ask, one.type, len(looks)))
            row.queues.append(queue)
            for at, look in enumerate(looks):
                row.counts[at] += one.counts.get(look.state, 0)
    statistics = await _read_statistics(ask, infos)
    text = read_filter(ask)
    rows = [row for row in sort_types(ask, found, statistics, len(looks)) if text.lower() in row.name.lower()]
    is_complete = all(report.is_complete for _, report in reports) and len(infos) <= _MOST_QUEUES
    looked = (
        "all tasks looked at"
        if is_complete
        else f"at most {_SCAN:,} tasks of each state looked at; lower bounds"
    )
    view = TypesView(
        looks,
        tuple(rows[:_SHOWN]),
        bool(statistics),
        STATES_WITH_STATISTICS if statistics else frozenset(TaskState),
        len(found),
        f"{counted(len(found), 'type')}; {looked}",
        text,
    )
    return Page("types.html", f"({len(found):,}) Types", "types", view)


def sort_types(
    ask: PageRequest, found: dict[str, TypeSummary], statistics: Mapping[str, AttemptCounts], states: int
) -> tuple[TypeSummary, ...]:
    """Return the types with their statistics, those with the most time spent first.

    Args:
        ask: the request of the page.
        found: types by name; types that only the statistics contain are added.
        statistics: the attempts of each type.
        states: number of task states that have a column.
    """
    seconds = sum(one.run.seconds for one in statistics.values())
    for name, ended in statistics.items():
        row = found.setdefault(name, _empty_row(ask, name, states))
        row.ended, row.share = ended, ended.run.seconds / seconds if seconds else None
    return tuple(sorted(found.values(), key=lambda row: (-(row.share or 0.0), -row.total, row.name)))


def _empty_row(ask: PageRequest, name: str, states: int) -> TypeSummary:
    return TypeSummary(visible(name), ask.links.to("types", name) if name else "", [0] * states)


async def _read_statistics(ask: PageRequest, infos: list[QueueInfo]) -> dict[str, AttemptCounts]:
    """Return the attempts of each type since yesterday, in the queues with the most attempts."""
    names = busiest((one.queue, one.processed) for one in await read_queues(ask))
    return totals_by_type(await read_series(ask, names, DAY, step=DAY_STEP)) if infos or names else {}


async def _read(ask: PageRequest, infos: list[QueueInfo]) -> list[tuple[str, TypeReport]]:
    """Return the type reports of queues, except queues that have just been deleted."""
    found = await read_queue_reports([partial(ask.operator.types, info.queue, scan=_SCAN) for info in infos])
    return [(info.queue, report) for info, report in zip(infos, found, strict=True) if report is not None]
