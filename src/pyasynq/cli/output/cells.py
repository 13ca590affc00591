"""Formatting of values for tables and CSV."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._face_records.fields import Kind, json_value
from pyasynq._human_text import duration
from pyasynq._visible_text import visible
from pyasynq.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyasynq._face_records.fields import Field, View

ABSENT: Final = "-"
"""Text that is shown for None."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Reference time for ages, and the time zone for exact times.

    Attributes:
        now: current time, to which ages are relative.
        is_utc: whether exact times are in UTC instead of the zone of this computer.
    """

    now: datetime
    is_utc: bool = False

    def relative(self, at: datetime, write: Callable[[float], str] = duration) -> str:
        """Format a timestamp relative to now: `3 min 5 s ago` or `in 2 h`; `write` formats the seconds."""
        seconds = (at - self.now).total_seconds()
        if abs(seconds) < 1:
            return "now"
        return f"in {write(seconds)}" if seconds > 0 else f"{write(-seconds)} ago"

    def exact(self, at: datetime) -> str:
        """Format a timestamp to the second, with its time zone."""
        return at.astimezone(UTC if self.is_utc else None).strftime("%Y-%m-%d %H:%M:%S %Z")


def short_duration(seconds: float) -> str:
    """Format a duration in its largest unit, for columns: `12 ms`, `41 s`, `53 min`, `22 d`."""
    number, unit = duration(seconds).split()[:2]
    return f"{number} {'d' if unit.startswith('day') else unit}"


def human_bytes(size: float) -> str:
    """Format a size in bytes with a decimal unit, such as `812 B` or `3.4 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"
        size /= 1_000
    raise AssertionError


def choose_fields(view: View, names: Sequence[str] | None, *, is_wide: bool) -> list[Field]:
    """Return the fields that a table shows: the named ones or, without names, the default fields of the view.

    With `is_wide`, the default includes the fields for wide tables.

    Raises:
        click.UsageError: for a name that no field has.
    """
    if names is None:
        return [field for field in view.fields if field.heading and (is_wide or not field.is_wide)]
    by_name = {field.name: field for field in view.fields}
    for name in names:
        if name not in by_name:
            raise click.UsageError(
                f"unknown field {name!r}{nearest(name, by_name)}; there are: {', '.join(by_name)}"
            )
    return [by_name[name] for name in names]


def cell(field: Field, value: Any, moment: Moment) -> str:
    """Return the text of a table cell: one line, with control characters shown as symbols."""
    return cell_writer(field, moment)(value)


def cell_writer(field: Field, moment: Moment) -> Callable[[Any], str]:
    """Return the function that formats the values of a field for cells, as `cell` does."""
    if field.kind is Kind.TIME:
        return lambda value: ABSENT if value is None else moment.relative(value, short_duration)
    write = _TEXTS[field.kind]
    return lambda value: ABSENT if value is None else write(value) or ABSENT


def _join(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{visible(name)}={visible(value)}" for name, value in values.items())


_TEXTS: Final[Mapping[Kind, Callable[[Any], str]]] = {
    Kind.TEXT: visible,
    Kind.COUNT: "{:,}".format,
    Kind.NUMBER: str,
    Kind.SHARE: "{:.1%}".format,
    Kind.BYTES: human_bytes,
    Kind.DURATION: short_duration,
    Kind.FLAG: lambda value: "yes" if value else "no",
    Kind.NAMES: lambda values: ", ".join(map(visible, values)),
    Kind.NUMBERS: _join,
    Kind.TEXTS: _join,
    Kind.DATA: lambda value: visible(data_text(value)),
    Kind.OBJECT: lambda value: visible(json.dumps(value, ensure_ascii=False)),
    Kind.OBJECTS: lambda value: visible(json.dumps(value, ensure_ascii=False)),
}


def csv_value(field: Field, value: Any) -> str:
    """Return the text of a CSV cell: exact value, on one line."""
    if value is None:
        return ""
    told = json_value(field, value)
    return visible(
        told if isinstance(told, str) else json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    )


def data_text(data: bytes | str) -> str:
    """Decode UTF-8 bytes for display; for binary data return a note with their size."""
    if isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"<{human_bytes(len(data))} that are not text>"
