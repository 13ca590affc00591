"""Aligned text tables for terminals: headings, right-aligned numbers, and columns that shrink to a width."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from pyasynq.cli.output.cells import cell_writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyasynq._face_records.fields import Field
    from pyasynq.cli.output.cells import Moment

_GAP: Final = "  "
_CUT: Final = "…"
_LEAST: Final = 8
"""Minimum width to which a column shrinks, in terminal cells."""
_LATER: Final = 12
"""Minimum width of a flexible column for the longer texts of later rows, in terminal cells."""
_ROOMY: Final = 28
"""Width that a flexible column gets for later rows if the terminal is wide, in terminal cells."""
_ROOM_OF_LAST: Final = 60
"""Width that the last flexible column gets before the others get `_ROOMY`, in terminal cells."""
_COMMON_SHARE: Final = 0.9
"""Share of the rows (90th percentile) whose texts a column should show uncut, if other texts are longer."""
_WIDE: Final = frozenset("WF")
_COMBINING: Final = frozenset({"Mn", "Me", "Cf"})


def cells(text: str) -> int:
    """Return the display width of a text in terminal cells; wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(one) in _COMBINING else 1 + (unicodedata.east_asian_width(one) in _WIDE)
        for one in text
    )


def cut(text: str, width: int) -> str:
    """Cut a text to this display width; a cut text ends with `…`."""
    if cells(text) <= width:
        return text
    kept: list[str] = []
    left = width - 1
    for one in text:
        left -= cells(one)
        if left < 0:
            break
        kept.append(one)
    return "".join(kept) + _CUT


@dataclass(frozen=True, slots=True)
class Look:
    """Display options of a table.

    Attributes:
        width: width of the terminal in cells; None if nothing is to be cut.
        has_header: whether there is a line of headings.
        has_color: whether values may be colored.
        drops: whether columns may be left out if the terminal is too narrow.
    """

    width: int | None
    has_header: bool = True
    has_color: bool = False
    drops: bool = False


TableRow: TypeAlias = "Sequence[tuple[str, Any]]"
"""A row of a table: text and value of each field."""


def table_rows(
    fields: Sequence[Field], records: Iterable[Mapping[str, Any]], moment: Moment
) -> list[TableRow]:
    """Return the rows of records: the text and the value of each field."""
    columns = [(one.name, cell_writer(one, moment)) for one in fields]
    return [[(write(record[name]), record[name]) for name, write in columns] for record in records]


class TableLayout:
    """Columns of a table and their widths, computed from some rows. Later rows can be formatted in it, too.

    With `drops`, columns that do not fit are left out: first optional columns, then columns from the right.

    Args:
        fields: fields of the records.
        rows: rows made by `table_rows`, from which the widths are computed.
        look: display options of the table.
    """

    def __init__(self, fields: Sequence[Field], rows: Sequence[TableRow], look: Look) -> None:
        self._look = look
        self._fields = fields
        columns = list(range(len(fields)))
        if look.drops and look.width is not None:
            columns = _drop_optional(fields, rows, look, look.width)
        kept = [fields[at] for at in columns]
        widths = _fit_widths(kept, [[row[at] for at in columns] for row in rows], look)
        if look.width is not None and look.drops and _line_width(widths) > look.width:
            columns = columns[: _count_fitting_columns(widths, look.width)]
            kept = [fields[at] for at in columns]
            widths = _fit_widths(kept, [[row[at] for at in columns] for row in rows], look)
        self._columns, self._widths = columns, widths
        shown = [fields[at] for at in columns]
        self._is_right = [one.is_right for one in shown]
        self._flexible = [place for place, one in enumerate(shown) if one.shrinks]
        self._rigid = [place for place, one in enumerate(shown) if not one.shrinks]
        self._colors = [(place, one.color) for place, one in enumerate(shown) if one.color and look.has_color]

    def leave_room(self) -> None:
        """Widen narrow columns, at the cost of wide ones: the texts of later rows may be longer."""
        self._widen(dict.fromkeys(self._flexible, _LATER))
        if self._look.width is not None and self._flexible:
            last = self._flexible[-1]
            self._widen({last: _ROOM_OF_LAST} | dict.fromkeys(self._flexible[:-1], _ROOMY))
            if last == len(self._widths) - 1:
                self._widths[last] += max(0, self._look.width - _line_width(self._widths))

    def _widen(self, wanted: Mapping[int, int]) -> None:
        """Widen columns to their wanted widths with free cells, then with spare cells of other columns."""
        widths = self._widths
        for place, width in wanted.items():
            while widths[place] < width:
                if self._look.width is not None and _line_width(widths) >= self._look.width:
                    giver = max(wanted, key=lambda one: widths[one] - wanted[one])
                    if widths[giver] <= max(wanted[giver], widths[place] + 1):
                        break
                    widths[giver] -= 1
                widths[place] += 1

    def heading_line(self) -> str:
        """Return the line of headings."""
        headings = [self._fields[at].heading or self._fields[at].name for at in self._columns]
        texts = [cut(text, width) for text, width in zip(headings, self._widths, strict=True)]
        return self._line(self._widths, texts, list(map(cells, texts)))

    def row_line(self, row: TableRow) -> str:
        """Return the line of a row; a text that does not fit and may not be cut moves the following columns.

        The last column that may be cut is shortened, so that the line still fits the terminal.
        """
        texts = [row[at][0] for at in self._columns]
        lengths = list(map(cells, texts))
        widths: Sequence[int] = self._widths
        if self._look.width is not None:
            widths = self._make_room(lengths)
            for place in self._flexible:
                if lengths[place] > widths[place]:
                    texts[place] = cut(texts[place], widths[place])
                    lengths[place] = cells(texts[place])
        for place, choose_color in self._colors:
            if color := choose_color(row[self._columns[place]][1]):
                texts[place] = click.style(texts[place], fg=color)
        return self._line(widths, texts, lengths)

    def _make_room(self, lengths: Sequence[int]) -> Sequence[int]:
        """Return the column widths of a row.

        If texts that may not be cut are too long, the last flexible column shrinks.
        """
        surplus = sum(max(0, lengths[place] - self._widths[place]) for place in self._rigid)
        if not surplus or not self._flexible:
            return self._widths
        widths = list(self._widths)
        widths[self._flexible[-1]] = max(1, widths[self._flexible[-1]] - surplus)
        return widths

    def _line(self, widths: Sequence[int], texts: Sequence[str], lengths: Sequence[int]) -> str:
        """Join the texts of a line; `lengths` are their display widths, without color codes."""
        parts = [
            " " * (width - length) + text if is_right else text + " " * (width - length)
            for is_right, width, text, length in zip(self._is_right, widths, texts, lengths, strict=True)
        ]
        return _GAP.join(parts).rstrip()


def table_lines(
    fields: Sequence[Field], records: Iterable[Mapping[str, Any]], moment: Moment, look: Look
) -> Iterator[str]:
    """Yield the lines of a table; see `TableLayout`."""
    rows = table_rows(fields, records, moment)
    layout = TableLayout(fields, rows, look)
    if look.has_header:
        yield layout.heading_line()
    for row in rows:
        yield layout.row_line(row)


def _drop_optional(fields: Sequence[Field], rows: Sequence[TableRow], look: Look, width: int) -> list[int]:
    """Drop optional columns, from the right, until the others are readable; return the others' indexes."""
    full = _full_widths(fields, rows, look)
    readable = [
        min(cells_needed, one.readable) if one.shrinks else cells_needed
        for one, cells_needed in zip(fields, full, strict=True)
    ]
    columns = list(range(len(fields)))
    while _line_width([readable[at] for at in columns]) > width:
        last = max((at for at in columns if fields[at].gives_way), default=None)
        if last is None:
            break
        columns.remove(last)
    return columns


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _count_fitting_columns(widths: Sequence[int], width: int) -> int:
    """Return the number of columns that fit, at least two; all columns if not even two fit."""
    for count in range(len(widths), 1, -1):
        if _line_width(widths[:count]) <= width:
            return count
    return len(widths)


def _full_widths(fields: Sequence[Field], rows: Sequence[TableRow], look: Look) -> list[int]:
    """Return the width that each column needs to show all texts uncut."""
    return [
        max([cells(one.heading or one.name) if look.has_header else 0, *(cells(row[at][0]) for row in rows)])
        for at, one in enumerate(fields)
    ]


def _fit_widths(fields: Sequence[Field], rows: Sequence[TableRow], look: Look) -> list[int]:
    """Return the width of each column; columns that may shrink do so until the line fits.

    Columns with few long texts shrink first, to the width of the others. Then all shrink evenly.
    """
    widths = _full_widths(fields, rows, look)
    if look.width is None:
        return widths
    surplus = _line_width(widths) - look.width
    for at, one in enumerate(fields):
        if one.shrinks and surplus > 0:
            common = max(_common_width([row[at][0] for row in rows]), one.readable)
            step = max(0, min(surplus, widths[at] - common))
            widths[at] -= step
            surplus -= step
    while surplus > 0:
        widest = max(
            (at for at, one in enumerate(fields) if one.shrinks), key=widths.__getitem__, default=None
        )
        if widest is None or widths[widest] <= _LEAST:
            break
        others = [widths[at] for at, one in enumerate(fields) if one.shrinks and at != widest]
        step = min(surplus, max(1, widths[widest] - max([_LEAST, *others])))
        step = min(step, widths[widest] - _LEAST)
        widths[widest] -= step
        surplus -= step
    return widths


def _common_width(texts: Sequence[str]) -> int:
    """Return the 90th percentile of the display widths of these texts."""
    widths = sorted(map(cells, texts))
    return widths[math.ceil(_COMMON_SHARE * len(widths)) - 1] if widths else 0
