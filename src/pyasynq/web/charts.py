"""Drawings as SVG paths: sparklines, gauges and stacked bars. Pure functions of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH: Final = 100.0
_HEIGHT: Final = 24.0
_PADDING: Final = 2.0
_PLOT_WIDTH: Final = 600.0
_PLOT_HEIGHT: Final = 150.0
_GRID_LINES: Final = 4
_LEAST_SECONDS: Final = 0.001


def spark_points(values: Sequence[float]) -> str:
    """Return the points of a sparkline (SVG polyline) in a box of 100 by 24; zero is near the bottom."""
    if len(values) < 2:
        values = [*values, *values] or [0.0, 0.0]
    top = max(values)
    ground = _HEIGHT - _PADDING
    reach = ground - _PADDING
    step = _WIDTH / (len(values) - 1)
    return " ".join(
        f"{_short(at * step)},{_short(ground - (max(value, 0) / top * reach if top > 0 else 0))}"
        for at, value in enumerate(values)
    )


def spark_bars(values: Sequence[float]) -> str:
    """Return the SVG path of a bar sparkline in a box of 100 by 24, with a base line."""
    count = max(len(values), 1)
    top = max(values, default=0.0)
    slot = _WIDTH / count
    bars = "".join(
        f"M{_short(at * slot + slot * 0.1)} 24v-{_short(max(value / top * 22, 1))}h{_short(slot * 0.8)}V24z"
        for at, value in enumerate(values)
        if value > 0
    )
    return bars + "M0 23.5h100v.5H0z"


def gauge_width(part: float, whole: float) -> str:
    """Return the width of the filled part of a gauge, from 0 to 100."""
    return _short(min(max(part / whole, 0), 1) * 100) if whole > 0 else "0"


@dataclass(frozen=True, slots=True)
class Tick:
    """An axis tick: a grid line of a chart, or a time label below the chart."""

    at: str
    """Position: pixels from the top for a grid line, or percent from the left for a time label."""
    label: str


@dataclass(frozen=True, slots=True)
class StackedBars:
    """A stacked bar chart, with the first series at the bottom."""

    paths: tuple[str, ...]
    """SVG path of each series, in a box of 600 by 150."""
    lines: tuple[Tick, ...]
    unit: str


def stacked_bars(series: Sequence[Sequence[float]], unit: str = "") -> StackedBars:
    """Return the stacked bar chart of series of equal length; `unit` is the unit of the axis."""
    count = max((len(one) for one in series), default=0)
    sums = [sum(one[at] for one in series) for at in range(count)]
    top = round_up(max(sums, default=0.0))
    slot = _PLOT_WIDTH / max(count, 1)
    paths = []
    floor = [0.0] * count
    for one in series:
        parts = []
        for at, value in enumerate(one):
            if value > 0:
                height = value / top * _PLOT_HEIGHT
                y = _PLOT_HEIGHT - floor[at] - height
                parts.append(
                    f"M{_short(at * slot + slot * 0.1)} {_short(y)}h{_short(slot * 0.8)}"
                    f"v{_short(height)}h-{_short(slot * 0.8)}z"
                )
                floor[at] += height
        paths.append("".join(parts))
    lines = tuple(
        Tick(_short(170 - _PLOT_HEIGHT * at / _GRID_LINES), _label(top * at / _GRID_LINES))
        for at in range(_GRID_LINES + 1)
    )
    return StackedBars(tuple(paths), lines, unit)


@dataclass(frozen=True, slots=True)
class LogLines:
    """A line chart with a logarithmic axis of seconds."""

    paths: tuple[str, ...]
    """SVG path of each series, in a box of 600 by 150; with gaps where no value is known."""
    lines: tuple[Tick, ...]


def log_lines(series: Sequence[Sequence[float | None]]) -> LogLines:
    """Return the line chart with a logarithmic axis for series of equal length, in seconds."""
    known = [value for one in series for value in one if value]
    low = math.floor(math.log10(min(max(min(known, default=0.01), _LEAST_SECONDS), 100.0)))
    high = max(math.ceil(math.log10(max(max(known, default=1.0), _LEAST_SECONDS))), low + 1)
    lines = tuple(
        Tick(_short(170 - _PLOT_HEIGHT * (power - low) / (high - low)), _duration_label(power))
        for power in range(low, high + 1)
    )
    return LogLines(tuple(_log_path(one, low, high) for one in series), lines)


def _log_path(values: Sequence[float | None], low: int, high: int) -> str:
    slot = _PLOT_WIDTH / max(len(values), 1)
    parts, is_open = [], False
    for at, value in enumerate(values):
        if value is None:
            is_open = False
            continue
        share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
        y = _short(_PLOT_HEIGHT - min(share, 1.0) * _PLOT_HEIGHT)
        # A single value is drawn as a short line, because a point would be invisible.
        begin = f"M{_short(at * slot)} {y}h{_short(slot / 2)}"
        parts.append(f"L{_short((at + 0.5) * slot)} {y}" if is_open else begin)
        is_open = True
    return "".join(parts)


def _duration_label(power: int) -> str:
    return f"{10 ** (power + 3):,} ms" if power < 0 else f"{10**power:,} s"


def round_up(value: float) -> float:
    """Round up to a number at which an axis of four equal steps can end, such as 4, 6, 8, 10, 12 or 16."""
    if value <= 0:
        return 4.0
    scale = 10.0 ** math.floor(math.log10(value))
    for factor in (1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0):
        if value <= factor * scale * (1 + 1e-9):
            return factor * scale
    return 10 * scale


def _label(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    if value >= 10_000:
        return f"{value / 1_000:g} k"
    return f"{value:.4g}" if value < 10 else f"{value:,.0f}"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
