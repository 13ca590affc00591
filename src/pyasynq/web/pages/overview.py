"""The overview: six key figures, attention findings, longest waits, most failures."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.web import formats
from pyasynq.web.page import Page
from pyasynq.web.pages.attention import FindingRow, finding_rows, read_attention
from pyasynq.web.pages.operations import OperationRow, operation_row, read_operations
from pyasynq.web.pages.queues import QueueRow, queue_rows, read_capacities, read_queues, read_servers
from pyasynq.web.trends import (
    HOUR,
    Trend,
    busiest,
    chosen_range,
    count_bars,
    first_second,
    read_series,
    read_trend,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyasynq.info import QueueInfo, ServerInfo
    from pyasynq.telemetry import AttemptSeries
    from pyasynq.web.page import PageRequest
    from pyasynq.web.pages.queues import QueueCapacity

_LISTED: Final = 5
_MOST_FINDINGS: Final = 8
_TREND_MINUTES: Final = 30
_RATE_MINUTES: Final = 5
"""Number of whole minutes over which the throughput is averaged."""


@dataclass(frozen=True, slots=True)
class Figure:
    """View model of a key figure of the overview: a number, its label, and a comparison."""

    name: str
    word: str
    value: str
    note: str
    tone: str = ""
    trend: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionRow:
    """View model of a row: servers with the same engine version, their running tasks and slots."""

    engine: str
    servers: int
    busy: int
    slots: int


@dataclass(frozen=True, slots=True)
class TimeRow:
    """View model of a row: a task type with the total run time of its attempts."""

    name: str
    href: str
    seconds: float
    share: float
    mean: str
    ended: int


@dataclass(frozen=True, slots=True)
class OverviewView:
    """View model of the overview."""

    summary: str
    is_empty: bool
    figures: tuple[Figure, ...]
    findings: tuple[FindingRow, ...]
    more_findings: int
    snoozed: int
    """Number of snoozed findings."""
    attention_href: str
    longest: tuple[QueueRow, ...]
    failing: tuple[QueueRow, ...]
    largest: tuple[QueueRow, ...]
    versions: tuple[VersionRow, ...]
    operations: tuple[OperationRow, ...]
    trend: Trend
    types: tuple[TimeRow, ...]


async def overview_page(ask: PageRequest) -> Page:
    """Return the page `/`."""
    infos = await read_queues(ask)
    servers = await read_servers(ask)
    capacities = await read_capacities(ask)
    names = busiest((one.queue, one.processed) for one in infos)
    wanted = chosen_range(ask)
    hour = await read_series(ask, names, HOUR)
    chart = hour if wanted is HOUR else await read_series(ask, names, wanted)
    operations = [one for one in await read_operations(ask) if not one.has_ended]
    attention = await read_attention(ask)
    findings = attention.findings
    view = OverviewView(
        summary=f"{counted(len(infos), 'queue')}, {counted(len(servers), 'server')}",
        is_empty=not infos and not servers,
        figures=_figures(infos, servers, count_bars(hour, HOUR, first_second(ask.now, HOUR))),
        findings=finding_rows(ask, findings[:_MOST_FINDINGS]),
        more_findings=max(len(findings) - _MOST_FINDINGS, 0),
        snoozed=len(attention.snoozed),
        attention_href=ask.links.to("attention"),
        longest=_top_rows(ask, (one for one in infos if one.pending), capacities, "latency"),
        failing=_top_rows(ask, (one for one in infos if one.failed), capacities, "failed"),
        largest=_top_rows(ask, (one for one in infos if one.size), capacities, "size"),
        versions=_versions(servers),
        operations=tuple(operation_row(ask, one) for one in operations[:_LISTED]),
        trend=await read_trend(ask, chart, wanted),
        types=_time_rows(ask, hour),
    )
    return Page(
        "overview.html",
        f"({len(findings)}) Overview" if findings else "Overview",
        "overview",
        view,
        is_live=True,
    )


def _time_rows(ask: PageRequest, series: Sequence[AttemptSeries]) -> tuple[TimeRow, ...]:
    """Return the types whose attempts took the most time."""
    seconds: dict[str, float] = {}
    ended: dict[str, int] = {}
    for one in series:
        for point in one.points:
            seconds[one.type] = seconds.get(one.type, 0.0) + point.counts.run.seconds
            ended[one.type] = ended.get(one.type, 0) + point.counts.ended
    whole = sum(seconds.values())
    most = sorted(seconds, key=lambda name: -seconds[name])[:_LISTED]
    return tuple(
        TimeRow(
            name=visible(name) or "no type",
            href=ask.links.to("types", name),
            seconds=seconds[name],
            share=seconds[name] / whole,
            mean=formats.span(seconds[name] / ended[name]) if ended[name] else formats.NOT_KNOWN,
            ended=ended[name],
        )
        for name in most
        if whole
    )


def _throughput(processed: int, bars: Sequence[Sequence[int]]) -> Figure:
    """Return the throughput: attempts a second if workers keep statistics, else attempts today."""
    minutes = [sum(numbers) for numbers in zip(*bars, strict=True)]
    if not any(minutes):
        return Figure("processed", "Attempts today", formats.number(processed), "since midnight, UTC")
    whole = minutes[-1 - _RATE_MINUTES : -1]
    return Figure(
        "processed",
        "Attempts a second",
        formats.significant(sum(whole) / len(whole) / 60),
        f"{processed:,} today, UTC",
        trend=tuple(map(float, minutes[-1 - _TREND_MINUTES : -1])),
    )


def _figures(
    infos: Sequence[QueueInfo], servers: Sequence[ServerInfo], bars: Sequence[Sequence[int]]
) -> tuple[Figure, ...]:
    processed = sum(one.processed for one in infos)
    failed = sum(one.failed for one in infos)
    pending = sum(one.pending for one in infos)
    active = sum(one.active for one in infos)
    slots = sum(server.concurrency for server in servers)
    oldest = max((one.latency for one in infos if one.pending), default=None)
    fail = failed / processed if processed else None
    return (
        _throughput(processed, bars),
        Figure(
            "fail",
            "Failing today",
            formats.share(fail),
            f"{failed:,} failed",
            "bad" if fail and fail > 0.1 else "",
            trend=_failures(bars),
        ),
        Figure(
            "pending",
            "Waiting",
            formats.number(pending),
            f"oldest {formats.span(oldest)}" if oldest else "none waits",
        ),
        Figure(
            "busy",
            "Busy slots",
            f"{active:,} of {slots:,}",
            formats.share(active / slots) if slots else "no server",
        ),
        Figure(
            "retry",
            "Waiting to retry",
            formats.number(sum(one.retry for one in infos)),
            f"{sum(one.scheduled for one in infos):,} scheduled",
        ),
        Figure(
            "archived",
            "Archived",
            formats.number(sum(one.archived for one in infos)),
            f"{sum(one.completed for one in infos):,} completed kept",
        ),
    )


def _failures(bars: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """Return the number of failed attempts in each of the last minutes; empty if there are no statistics."""
    if not any(map(any, bars)):
        return ()
    failed = [sum(numbers) for numbers in zip(*bars[1:], strict=True)]
    return tuple(map(float, failed[-1 - _TREND_MINUTES : -1]))


def _top_rows(
    ask: PageRequest, infos: Iterable[QueueInfo], capacities: Mapping[str, QueueCapacity], field: str
) -> tuple[QueueRow, ...]:
    """Return the rows of the queues with the highest values of a field, the highest first."""
    return tuple(queue_rows(ask, heapq.nlargest(_LISTED, infos, attrgetter(field)), capacities))


def _versions(servers: Sequence[ServerInfo]) -> tuple[VersionRow, ...]:
    found: dict[str, list[ServerInfo]] = {}
    for server in servers:
        engine = visible(f"{server.engine} {server.engine_version}".strip()) or "Go"
        found.setdefault(engine, []).append(server)
    return tuple(
        VersionRow(
            engine,
            len(group),
            sum(len(one.active_workers) for one in group),
            sum(one.concurrency for one in group),
        )
        for engine, group in sorted(found.items())
    )
