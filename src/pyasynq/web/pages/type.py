"""The page of one task type: attempts and durations over time, and its published description."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible, visible_lines
from pyasynq.web import formats
from pyasynq.web.page import Page
from pyasynq.web.pages.queue_tabs import quoted
from pyasynq.web.pages.queues import read_queues
from pyasynq.web.trends import (
    DAY,
    HOUR,
    Percentiles,
    Range,
    Trend,
    busiest,
    chosen_range,
    make_percentiles,
    read_series,
    read_trend,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.task_types import TaskTypeInfo
    from pyasynq.telemetry import AttemptSeries
    from pyasynq.web.page import PageRequest

_LONGEST_SCHEMA: Final = 20_000
_STEP: Final = 600
"""Shortest interval of the statistics that has histograms, in seconds."""


@dataclass(frozen=True, slots=True)
class TypeQueueRow:
    """The attempts of the type in one queue."""

    name: str
    href: str
    ended: int
    fail: float | None
    time: str


@dataclass(frozen=True, slots=True)
class TypeView:
    """View model of the page of one task type."""

    name: str
    summary: str
    trend: Trend
    durations: Range
    """Time range of the duration charts. For an hour the step is ten minutes: minutes have no histograms."""
    run: Percentiles
    wait: Percentiles
    queues: tuple[TypeQueueRow, ...]
    facts: tuple[tuple[str, str], ...]
    schema: str
    search: str
    failed: str
    enqueue: str


async def type_page(ask: PageRequest) -> Page:
    """Return the page `/types/{type}`."""
    name = ask.name("type")
    wanted = chosen_range(ask, DAY)
    names = busiest((one.queue, one.processed) for one in await read_queues(ask))
    series = await read_series(ask, names, wanted, (name,))
    durations, measured = wanted, series
    if wanted is HOUR:
        durations = replace(HOUR, bar=_STEP, step=_STEP)
        measured = await read_series(ask, names, durations, (name,))
    published = await ask.target.recent(ask.user, "task types", ask.operator.task_types, 30.0)
    view = TypeView(
        name=visible(name),
        summary=_summary(series, wanted),
        trend=await read_trend(ask, series, wanted),
        durations=durations,
        run=make_percentiles(ask.now, measured, durations, "run"),
        wait=make_percentiles(ask.now, measured, durations, "wait"),
        queues=_queue_rows(ask, series),
        facts=_facts(next((one for one in published if one.type == name), None)),
        schema=_schema(next((one for one in published if one.type == name), None)),
        search=ask.links.to("tasks", q=f"type:{quoted(name)}"),
        failed=ask.links.to("tasks", q=f"type:{quoted(name)} state:retry,archived"),
        enqueue=ask.links.to("enqueue", type=name),
    )
    return Page("type.html", f"{visible(name)} · Types", "types", view)


def _summary(series: Sequence[AttemptSeries], wanted: Range) -> str:
    total = sum(sum(point.counts.ended for point in one.points) for one in series)
    return f"{counted(total, 'attempt')} in the {wanted.words}"


def _queue_rows(ask: PageRequest, series: Sequence[AttemptSeries]) -> tuple[TypeQueueRow, ...]:
    rows = [
        TypeQueueRow(
            visible(one.queue),
            ask.links.to("queues", one.queue),
            counts.ended,
            counts.failure_ratio,
            formats.span(counts.run.seconds),
        )
        for one in series
        for counts in (one.total,)
    ]
    return tuple(sorted(rows, key=lambda row: (-row.ended, row.name)))


def _facts(info: TaskTypeInfo | None) -> tuple[tuple[str, str], ...]:
    if info is None:
        return ()
    options = ", ".join(f"{name} {value}" for name, value in info.options.items())
    return (
        ("What it does", visible(info.summary) or "not said"),
        ("Default queue", visible(info.queue) or "none"),
        ("Options", visible(options) or "none"),
        ("Secret fields", visible(", ".join(info.secrets)) or "none"),
        ("Version of the application", visible(info.version) or "not said"),
    )


def _schema(info: TaskTypeInfo | None) -> str:
    if info is None or info.schema is None:
        return ""
    return visible_lines(json.dumps(info.schema, indent=2, ensure_ascii=False)[:_LONGEST_SCHEMA])
