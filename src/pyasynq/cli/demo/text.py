"""Plain text that fits a terminal: tables, and names that are shortened to a width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = 80
INDENT: Final = "  "
_GAP: Final = "  "


def shorten(text: str, width: int) -> str:
    """Shorten a name to `width` characters by cutting its middle, since names differ at their ends."""
    line = " ".join(text.split())
    if len(line) <= width:
        return line
    tail = (width - 1) * 2 // 3
    return f"{line[: width - 1 - tail]}…{line[len(line) - tail :]}"


def cut_line(text: str, width: int) -> str:
    """Cut a line to at most `width` characters at its end."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str | int]], *, width: int = WIDTH - len(INDENT)
) -> list[str]:
    """Return the lines of a table: strings left-aligned, numbers right-aligned, widest column shortened."""
    cells = [
        [f"{cell:,}" if isinstance(cell, int) else " ".join(cell.split()) for cell in row] for row in rows
    ]
    is_number = [all(isinstance(row[column], int) for row in rows) for column in range(len(headers))]
    widths = [max(len(text) for text in column) for column in zip(headers, *cells, strict=True)]
    too_wide = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    if too_wide > 0:
        widest = widths.index(max(widths))
        widths[widest] -= too_wide
    lines = []
    for row in (headers, *cells):
        fitted = [shorten(text, size) for text, size in zip(row, widths, strict=True)]
        aligned = [
            text.rjust(size) if right else text.ljust(size)
            for text, size, right in zip(fitted, widths, is_number, strict=True)
        ]
        lines.append(_GAP.join(aligned).rstrip())
    return lines
