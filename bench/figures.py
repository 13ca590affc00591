"""Figures of measurements, and statistics that summarize them: medians, ranges, percentiles, ratios."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Figure:
    """One kind of measured number.

    Attributes:
        name: the key in results, and the heading.
        unit: text after the name in a heading.
        digits: number of decimals.
        rising: whether a larger number is better.
    """

    name: str
    unit: str = ""
    digits: int = 0
    rising: bool = False

    @property
    def heading(self) -> str:
        """The name with its unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name


RATE = Figure("rate", "/s", rising=True)
WORKER_CPU = Figure("worker CPU", "µs a task", 1)
CLIENT_CPU = Figure("client CPU", "µs a task", 1)
REDIS_CPU = Figure("Redis CPU", "µs a task", 1)
COMMANDS = Figure("Redis commands", "a task", 1)
PEAK_MEMORY = Figure("peak memory", "MiB")
BYTES = Figure("in Redis", "bytes a task")


@dataclass(frozen=True, slots=True)
class Summary:
    """Median, minimum (`least`), maximum (`most`) and number of some measurements."""

    median: float
    least: float
    most: float
    count: int


def summary(values: Sequence[float]) -> Summary:
    """Return the median, the minimum, the maximum and the number of some measurements.

    Raises:
        ValueError: there are no measurements.
    """
    if not values:
        raise ValueError("there is nothing to sum up: no round was measured")
    return Summary(statistics.median(values), min(values), max(values), len(values))


def percentile(values: Iterable[float], share: float) -> float:
    """Return the percentile (nearest rank): at least this share (0 to 1) of the values do not exceed it.

    Raises:
        ValueError: there are no values, or the share is not between 0 and 1.
    """
    ordered = sorted(values)
    if not ordered or not 0 <= share <= 1:
        raise ValueError(f"percentile {share!r} of {len(ordered)} values cannot be")
    rank = -int(-len(ordered) * share // 1)
    return ordered[max(0, rank - 1)]


def ratio(values: Mapping[int, float], others: Mapping[int, float]) -> Summary | None:
    """Compare two contestants round by round, since only numbers measured close in time are comparable.

    Returns:
        the summary of the ratios of the rounds that both have; None if there is none.
    """
    common = [values[at] / others[at] for at in sorted(values.keys() & others.keys()) if others[at]]
    return summary(common) if common else None
