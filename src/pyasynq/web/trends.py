"""Charts of attempts over time: time ranges, bars, percentiles, and marks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.telemetry import NO_ATTEMPTS, sum_counts
from pyasynq.web import formats

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyasynq.telemetry import AttemptCounts, AttemptSeries, Histogram, Mark
    from pyasynq.web.page import PageRequest

_MOST_QUEUES: Final = 100
"""Maximum number of queues in one chart: the queues with the most attempts today."""
_MOST_MARKS: Final = 50
_SECONDS: Final = 5.0
_COUNTED: Final = ("succeeded", "retried", "archived")


@dataclass(frozen=True, slots=True)
class Range:
    """Time range of a chart, and the time that one bar covers."""

    name: str
    label: str
    seconds: int
    step: int
    """Seconds between two points of the statistics read for the chart."""
    bar: int
    """Seconds that one bar covers."""
    times: tuple[str, ...]
    """Labels of the time axis, from the oldest time to now."""
    words: str
    bar_words: str

    @property
    def count(self) -> int:
        """Number of bars."""
        return self.seconds // self.bar


HOUR: Final = Range(
    "1h", "1 h", 3_600, 60, 60, ("60 min ago", "45", "30", "15", "now"), "last hour", "a minute"
)
DAY: Final = Range(
    "24h", "24 h", 86_400, 600, 1_200, ("24 h ago", "18", "12", "6", "now"), "last 24 hours", "20 minutes"
)
DAY_STEP: Final = 86_400
RANGES: Final = (
    HOUR,
    DAY,
    Range(
        "3d", "3 d", 259_200, 600, 3_600, ("3 days ago", "2 days", "1 day", "now"), "last 3 days", "an hour"
    ),
    Range(
        "90d",
        "90 d",
        7_776_000,
        86_400,
        86_400,
        ("90 days ago", "60", "30", "today"),
        "last 90 days",
        "a day",
    ),
)


@dataclass(frozen=True, slots=True)
class TrendChoice:
    """One choice in a group of links, one of which is current."""

    label: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class MarkLine:
    """A mark in a chart."""

    at: str
    """Position of the mark in percent from the left."""
    text: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Trend:
    """View model of a chart of attempts."""

    range: Range
    choices: tuple[TrendChoice, ...]
    bars: tuple[tuple[float, ...], ...]
    """Three series: the succeeded, the retried and the archived attempts of each bar."""
    totals: tuple[str, ...]
    finding: str
    """Sentence that describes the chart."""
    marks: tuple[MarkLine, ...]
    table: tuple[tuple[datetime, int, int, int], ...]
    """Non-empty bars, newest first: start, and the counts of succeeded, retried and archived attempts."""

    @property
    def is_empty(self) -> bool:
        """Whether no attempt was counted."""
        return not self.table


@dataclass(frozen=True, slots=True)
class Percentiles:
    """View model of a chart of durations: the median and the 95th percentile of each bar."""

    series: tuple[tuple[float | None, ...], ...]
    latest: tuple[str, ...]
    finding: str


def chosen_range(ask: PageRequest, default: Range = HOUR) -> Range:
    """Return the time range that the URL names, or the default."""
    name = ask.query.get("range", "")
    return next((one for one in RANGES if one.name == name), default)


async def read_series(
    ask: PageRequest,
    queues: Sequence[str],
    wanted: Range,
    types: tuple[str, ...] | None = None,
    step: int | None = None,
) -> list[AttemptSeries]:
    """Return the time series of attempts in queues and a time range; cached for a few seconds."""
    names = tuple(queues[:_MOST_QUEUES])
    used = step or wanted.step
    return await ask.target.recent(
        ask.user,
        ("series", names, wanted.name, used, types),
        lambda: ask.operator.attempt_series(
            names, since=ask.now - timedelta(seconds=wanted.seconds), step=used, types=types
        ),
        _SECONDS,
    )


async def read_trend(ask: PageRequest, series: Sequence[AttemptSeries], wanted: Range) -> Trend:
    """Return the chart of attempts in these time series, with the marks in its time range."""
    since = ask.now - timedelta(seconds=wanted.seconds)
    marks = await ask.target.recent(
        ask.user, ("marks", wanted.name), lambda: ask.operator.marks(since), _SECONDS
    )
    return make_trend(ask, series, wanted, marks)


def make_trend(
    ask: PageRequest, series: Iterable[AttemptSeries], wanted: Range, marks: Sequence[Mark]
) -> Trend:
    """Return the view model of a chart: the attempts of these time series by outcome, and the marks."""
    first = first_second(ask.now, wanted)
    bars = count_bars(series, wanted, first)
    sums = [sum(one) for one in bars]
    ended, failed = sum(sums), sum(sums[1:])
    begin = ask.now - timedelta(seconds=wanted.seconds)
    return Trend(
        range=wanted,
        choices=tuple(
            TrendChoice(one.label, ask.links.here(range=None if one is HOUR else one.name), one is wanted)
            for one in RANGES
        ),
        bars=tuple(tuple(map(float, one)) for one in bars),
        totals=tuple(formats.number(one) for one in sums),
        finding=f"{ended:,} attempts ended, {failed:,} of them failed.",
        marks=tuple(
            MarkLine(
                f"{100 * (one.at - begin).total_seconds() / wanted.seconds:.2f}", visible(one.text), one.at
            )
            for one in marks[-_MOST_MARKS:]
            if one.at >= begin
        ),
        table=tuple(
            (begin_of_bar(first, wanted, at), *numbers)
            for at, numbers in reversed(list(enumerate(zip(*bars, strict=True))))
            if any(numbers)
        ),
    )


def begin_of_bar(first: int, wanted: Range, at: int) -> datetime:
    """Return the time at which bar number `at` begins; `first` is the Unix time of bar 0."""
    return datetime.fromtimestamp(first + at * wanted.bar, UTC)


def first_second(now: datetime, wanted: Range) -> int:
    """Return the Unix time at which the first bar begins; the last bar is not complete yet."""
    return (int(now.timestamp()) // wanted.bar + 1) * wanted.bar - wanted.count * wanted.bar


def count_bars(series: Iterable[AttemptSeries], wanted: Range, first: int) -> tuple[list[int], ...]:
    """Return three lists: the succeeded, the retried and the archived attempts of each bar."""
    bars = tuple([0] * wanted.count for _ in _COUNTED)
    for one in series:
        for point in one.points:
            at = (int(point.at.timestamp()) - first) // wanted.bar
            if 0 <= at < wanted.count:
                for numbers, name in zip(bars, _COUNTED, strict=True):
                    numbers[at] += getattr(point.counts, name)
    return bars


def make_percentiles(now: datetime, series: Iterable[AttemptSeries], wanted: Range, kind: str) -> Percentiles:
    """Return the chart of run times (`run`) or waiting times (`wait`) of attempts."""
    first = first_second(now, wanted)
    of_bar: dict[int, list[Histogram]] = {}
    for one in series:
        for point in one.points:
            at = (int(point.at.timestamp()) - first) // wanted.bar
            of_bar.setdefault(at, []).append(getattr(point.counts, kind))
    sums = [_sum(of_bar[at]) if at in of_bar else None for at in range(wanted.count)]
    values = [tuple(None if one is None else one.quantile(share) for one in sums) for share in (0.5, 0.95)]
    latest = [next((one for one in reversed(line) if one is not None), None) for line in values]
    words = tuple(formats.span(one) for one in latest)
    verb = "ran" if kind == "run" else "waited"
    finding = f"Half of the newest {verb} at most {words[0]}, and 95 % at most {words[1]}."
    return Percentiles(tuple(values), words, finding if latest[0] is not None else "Nothing was measured.")


def _sum(histograms: Sequence[Histogram]) -> Histogram:
    total = histograms[0]
    for one in histograms[1:]:
        total += one
    return total


def totals_by_type(series: Iterable[AttemptSeries]) -> dict[str, AttemptCounts]:
    """Return the counts of each task type, over all queues and the whole time range."""
    found: dict[str, AttemptCounts] = {}
    for one in series:
        found[one.type] = found.get(one.type, NO_ATTEMPTS) + sum_counts(point.counts for point in one.points)
    return found


def busiest(names: Iterable[tuple[str, int]]) -> list[str]:
    """Return the names of the queues with the most attempts today, as many as a chart shows.

    Args:
        names: names of queues, each with its number of attempts today.
    """
    return [name for name, _ in sorted(names, key=lambda pair: -pair[1])][:_MOST_QUEUES]
