"""A bar chart of one figure as SVG, readable on light and dark backgrounds."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.figures import Figure, Summary
    from bench.results import Row

WIDTH: Final = 860
LABELS: Final = 300
VALUES: Final = 130
LINE: Final = 26
BAR: Final = 14
TOP: Final = 44
OURS: Final = "#2f81f7"
OTHERS: Final = "#8b949e"
INK: Final = "#6e7781"


def bars(title: str, rows: Sequence[Row], figure: Figure, *, ours: str = "pyasynq") -> str:
    """Draw the medians of a figure, with their ranges; the rows of `ours` stand out.

    Raises:
        ValueError: no row has the figure.
    """
    found = [(row, summary) for row in rows if (summary := row.summary(figure.name))]
    if not found:
        raise ValueError(f"no row of {title!r} has the figure {figure.name!r}")
    found.sort(key=lambda pair: pair[1].median, reverse=figure.rising)
    longest = max(summary.most for _, summary in found) or 1.0
    scale = (WIDTH - LABELS - VALUES) / longest
    height = TOP + LINE * len(found) + 12
    heading = escape(f"{title}, {figure.heading}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"',
        f'  aria-label="{heading}" font-family="system-ui, sans-serif" font-size="13">',
        f'<text x="0" y="20" font-size="15" font-weight="600" fill="{INK}">{heading}</text>',
    ]
    for position, (row, summary) in enumerate(found):
        colour = OURS if row.key.startswith(ours) else OTHERS
        parts += _bar(row.title, summary, figure, TOP + position * LINE, scale=scale, colour=colour)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(title: str, summary: Summary, figure: Figure, top: int, *, scale: float, colour: str) -> list[str]:
    middle = top + BAR / 2
    least, most = LABELS + summary.least * scale, LABELS + summary.most * scale
    width = summary.median * scale
    return [
        f'<text x="{LABELS - 8}" y="{top + 12}" text-anchor="end" fill="{INK}">{escape(title)}</text>',
        f'<rect x="{LABELS}" y="{top}" width="{width:.1f}" height="{BAR}" rx="2" fill="{colour}"/>',
        f'<path d="M{least:.1f} {middle}H{most:.1f}" stroke="{INK}" stroke-width="1.5"/>',
        f'<text x="{most + 6:.1f}" y="{top + 12}" fill="{INK}">{summary.median:,.{figure.digits}f}</text>',
    ]
