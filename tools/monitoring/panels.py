"""Form of a dashboard: panels, and the PromQL that they share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One PromQL expression of a panel, and the legend of its series."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart.

    Attributes:
        title: its heading.
        lines: drawn expressions.
        unit: Grafana's name of the unit.
        text: explanation for the reader.
        stacks: whether the series are stacked.
        columns: its width; a row has 24.
    """

    title: str
    lines: tuple[Line, ...]
    unit: str = "short"
    text: str = ""
    stacks: bool = False
    columns: int = 12


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page.

    Attributes:
        uid: its address in Grafana, and the name of its file.
        title: its heading.
        variables: labels that the reader chooses, each with the metric that has its values.
        panels: in reading order.
    """

    uid: str
    title: str
    variables: dict[str, str]
    panels: tuple[Panel, ...]


def quantiles(metric: str, by: str, matcher: str) -> tuple[Line, ...]:
    """Return the median and the 95th percentile of a histogram, by a label."""
    return tuple(
        Line(
            f"histogram_quantile({share}, sum by (le, {by})"
            f" (rate({metric}_bucket{{{matcher}}}[$__rate_interval])))",
            f"{{{{{by}}}}} p{share * 100:g}",
        )
        for share in (0.5, 0.95)
    )


def rate(metric: str, by: str = "", matcher: str = "") -> str:
    """Return the sum of a counter's increase a second, by some labels."""
    grouping = f" by ({by}) " if by else ""
    chosen = f"{{{matcher}}}" if matcher else ""
    return f"sum{grouping}(rate({metric}{chosen}[$__rate_interval]))"
