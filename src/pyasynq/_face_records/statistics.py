"""Face records of wait times, durations and marks (chart annotations)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from pyasynq._face_records.fields import Field, Kind, View
from pyasynq.telemetry import AttemptCounts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._face_records.fields import Record
    from pyasynq.telemetry import AttemptSeries, Mark, SeriesPoint


_SHARES: Final = (0.5, 0.95, 0.99)


def _make_quantile_field(name: str, heading: str, about: str, *, is_wide: bool = False) -> Field:
    return Field(name, Kind.DURATION, about, heading, is_wide=is_wide, is_optional=True)


_FIGURES: Final = (
    Field("attempts", Kind.COUNT, "Attempts that ended.", "ATTEMPTS"),
    Field(
        "failed",
        Kind.COUNT,
        "Attempts that failed.",
        "FAILED",
        color=lambda failed: "red" if failed else None,
    ),
    Field(
        "error_rate",
        Kind.SHARE,
        "Failures among successes and failures.",
        "ERRORS",
        is_wide=True,
        is_optional=True,
    ),
    _make_quantile_field("wait_p50", "WAIT P50", "Half of the tasks waited at most this long."),
    _make_quantile_field("wait_p95", "P95", "95 % of the tasks waited at most this long."),
    _make_quantile_field("wait_p99", "P99", "99 % of the tasks waited at most this long.", is_wide=True),
    _make_quantile_field("run_p50", "RUN P50", "Half of the attempts ran at most this long."),
    _make_quantile_field("run_p95", "P95", "95 % of the attempts ran at most this long."),
    _make_quantile_field("run_p99", "P99", "99 % of the attempts ran at most this long.", is_wide=True),
    Field(
        "timed_out", Kind.COUNT, "Attempts that reached their timeout or deadline.", "TIMED OUT", is_wide=True
    ),
)


_QUEUE: Final = Field("queue", Kind.TEXT, "Name of the queue.", "QUEUE", shrinks=True)


_TYPE: Final = Field(
    "type", Kind.TEXT, "Task type; `_other` is all beyond the first 50 of a queue.", "TYPE", shrinks=True
)


NOTHING_COUNTED: Final = "No attempts were counted: workers count with  --statistics."


LATENCY: Final = View("latency", "type", (_QUEUE, _TYPE, *_FIGURES), NOTHING_COUNTED)


SERIES: Final = View(
    "latency-series",
    "at",
    (Field("at", Kind.TIME, "When the step begins.", "BEGAN"), _QUEUE, _TYPE, *_FIGURES),
    NOTHING_COUNTED,
)


def describe_series(found: Iterable[AttemptSeries]) -> list[Record]:
    """Return a face record for each queue and type: attempt counts and percentiles; the busiest is first."""
    totals: dict[tuple[str, str], AttemptCounts] = defaultdict(AttemptCounts)
    for series in found:
        totals[series.queue, series.type] += series.total
    records = [_figures(queue, task_type, counts) for (queue, task_type), counts in totals.items()]
    return sorted(records, key=lambda one: (-one["attempts"], one["queue"], one["type"]))


def describe_point(series: AttemptSeries, point: SeriesPoint) -> Record:
    """Return the face record of one point of a time series."""
    return {"at": point.at, **_figures(series.queue, series.type, point.counts)}


def _figures(queue: str, task_type: str, counts: AttemptCounts) -> Record:
    waits, runs = (
        [histogram.quantile(share) for share in _SHARES] for histogram in (counts.wait, counts.run)
    )
    return {
        "queue": queue,
        "type": task_type,
        "attempts": counts.ended,
        "failed": counts.failed,
        "error_rate": counts.failure_ratio,
        **dict(zip(("wait_p50", "wait_p95", "wait_p99"), waits, strict=True)),
        **dict(zip(("run_p50", "run_p95", "run_p99"), runs, strict=True)),
        "timed_out": counts.timed_out,
    }


MARKS: Final = View(
    "mark-list",
    "id",
    (
        Field("id", Kind.TEXT, "Id of the mark.", "MARK"),
        Field("at", Kind.TIME, "When it happened.", "WHEN"),
        Field("by", Kind.TEXT, "The user who set it; empty if that is not known.", "BY", shrinks=True),
        Field("text", Kind.TEXT, "What happened.", "TEXT", shrinks=True),
    ),
    "No marks.",
)


def describe_mark(mark: Mark) -> Record:
    """Return the face record of a mark."""
    return {"id": mark.id, "at": mark.at, "by": mark.by, "text": mark.text}
