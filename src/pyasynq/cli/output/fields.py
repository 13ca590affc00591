"""Fields of the records that commands print, declared once for table, JSON, CSV and JSON Schema."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._human_text import duration
from pyasynq._visible_text import visible
from pyasynq.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ABSENT: Final = "-"
"""Text of a value that is None."""


class Kind(Enum):
    """Kind of a field's values: decides their JSON type, text and alignment in a table.

    Attributes:
        TEXT: text; control characters are shown as symbols.
        COUNT: a whole number, shown with separators: `3,900`.
        NUMBER: a whole number that is a name, such as a process id: `3900`.
        SHARE: a number from 0 to 1, shown in percent.
        BYTES: a size in bytes.
        DURATION: seconds.
        TIME: an aware datetime; ISO 8601 in JSON, relative to the present in a table.
        FLAG: true or false.
        NAMES: a list of texts.
        NUMBERS: an object of numbers by name.
        TEXTS: an object of texts by name.
        DATA: a payload or result: JSON as it is, other text as text, other bytes as base64.
        OBJECT: an object of any content, for programs.
        OBJECTS: a list of such objects.
    """

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    SHARE = "share"
    BYTES = "bytes"
    DURATION = "duration"
    TIME = "time"
    FLAG = "flag"
    NAMES = "names"
    NUMBERS = "numbers"
    TEXTS = "texts"
    DATA = "data"
    OBJECT = "object"
    OBJECTS = "objects"


_RIGHT: Final = frozenset({Kind.COUNT, Kind.NUMBER, Kind.SHARE, Kind.BYTES, Kind.DURATION})

_JSON_TYPES: Final[Mapping[Kind, dict[str, Any]]] = {
    Kind.TEXT: {"type": "string"},
    Kind.COUNT: {"type": "integer"},
    Kind.NUMBER: {"type": "integer"},
    Kind.SHARE: {"type": "number", "minimum": 0, "maximum": 1},
    Kind.BYTES: {"type": "integer", "minimum": 0},
    Kind.DURATION: {"type": "number"},
    Kind.TIME: {"type": "string", "format": "date-time"},
    Kind.FLAG: {"type": "boolean"},
    Kind.NAMES: {"type": "array", "items": {"type": "string"}},
    Kind.NUMBERS: {"type": "object", "additionalProperties": {"type": "number"}},
    Kind.TEXTS: {"type": "object", "additionalProperties": {"type": "string"}},
    Kind.DATA: {},
    Kind.OBJECT: {"type": "object"},
    Kind.OBJECTS: {"type": "array", "items": {"type": "object"}},
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record.

    Attributes:
        name: name in JSON, in CSV and for `--fields`.
        kind: kind of its values.
        about: one sentence for the schema and the reference page.
        heading: heading of the column; if empty, tables omit the field unless `--fields` names it.
        is_wide: shown by `-o wide` alone.
        shrinks: whether its text may be cut where the terminal is too narrow.
        is_optional: whether it may be None.
        color: the color of a value, or None.
        gives_way: whether the column is dropped if otherwise the other columns would be cut too short.
    """

    name: str
    kind: Kind
    about: str
    heading: str = ""
    is_wide: bool = False
    shrinks: bool = False
    is_optional: bool = False
    color: Callable[[Any], str | None] | None = None
    gives_way: bool = False

    @property
    def is_right(self) -> bool:
        """Whether the column is aligned to the right."""
        return self.kind in _RIGHT

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its values."""
        described = {**_JSON_TYPES[self.kind], "description": self.about}
        if self.is_optional and "type" in described:
            described["type"] = [described["type"], "null"]
        return described


@dataclass(frozen=True, slots=True)
class View:
    """The records of one command: their fields, and the field that names each.

    Attributes:
        name: of its JSON Schema.
        version: of its JSON Schema; it rises when a field goes or changes its meaning.
        key: the field that `-o name` prints.
        fields: in the order of the columns.
        empty: sentence for people when there are no records.
    """

    name: str
    key: str
    fields: tuple[Field, ...]
    empty: str
    version: int = 1

    def choose(self, names: Sequence[str] | None, *, is_wide: bool) -> list[Field]:
        """Return the fields of a table.

        Raises:
            click.UsageError: for a name that no field has.
        """
        if names is None:
            return [field for field in self.fields if field.heading and (is_wide or not field.is_wide)]
        by_name = {field.name: field for field in self.fields}
        for name in names:
            if name not in by_name:
                raise click.UsageError(
                    f"there is no field {name!r}{nearest(name, by_name)}; there are: {', '.join(by_name)}"
                )
        return [by_name[name] for name in names]

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the list of records."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"{self.name}.v{self.version}",
            "type": "array",
            "items": {
                "type": "object",
                "properties": {field.name: field.schema() for field in self.fields},
                "additionalProperties": False,
            },
        }


@dataclass(frozen=True, slots=True)
class Moment:
    """Reference time for ages, and the time zone for exact times.

    Attributes:
        now: the present.
        is_utc: whether exact times are in UTC instead of the zone of this computer.
    """

    now: datetime
    is_utc: bool = False

    def relative(self, at: datetime, write: Callable[[float], str] = duration) -> str:
        """Return `3 min 5 s ago` or `in 2 h`; `write` makes the duration of seconds."""
        seconds = (at - self.now).total_seconds()
        if abs(seconds) < 1:
            return "now"
        return f"in {write(seconds)}" if seconds > 0 else f"{write(-seconds)} ago"

    def exact(self, at: datetime) -> str:
        """Return a time to the second with its zone."""
        return at.astimezone(UTC if self.is_utc else None).strftime("%Y-%m-%d %H:%M:%S %Z")


def short_duration(seconds: float) -> str:
    """Return a duration in its largest unit, for columns: `12 ms`, `41 s`, `53 min`, `22 d`."""
    number, unit = duration(seconds).split()[:2]
    return f"{number} {'d' if unit.startswith('day') else unit}"


def human_bytes(size: float) -> str:
    """Return a size as `812 B`, `3.4 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"
        size /= 1_000
    raise AssertionError


def cell(field: Field, value: Any, moment: Moment) -> str:
    """Return the text of a value in a table: one line, with every foreign character visible."""
    if value is None:
        return ABSENT
    if field.kind is Kind.TIME:
        return moment.relative(value, short_duration)
    return _TEXTS[field.kind](value) or ABSENT


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


def json_value(field: Field, value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if field.kind is Kind.DATA:
        return json_data(value)
    if isinstance(value, tuple):
        return list(value)
    return value


def csv_value(field: Field, value: Any) -> str:
    """Return a value as a cell of a CSV file: exact, on one line."""
    if value is None:
        return ""
    told = json_value(field, value)
    return visible(
        told if isinstance(told, str) else json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    )


def json_data(data: bytes | None) -> Any:
    """Return bytes as JSON: the JSON they are, else `{"text": …}`, else `{"base64": …}`; None for none.

    Numbers stay exact: those that a float would round are kept as text.
    """
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}
    try:
        return json.loads(text, parse_float=_round_exactly, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {"text": text}


def _round_exactly(digits: str) -> float | str:
    number = float(digits)
    return number if repr(number) == digits else digits


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def data_text(data: bytes | str) -> str:
    """Return bytes as text for people; other data as their size."""
    if isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"<{human_bytes(len(data))} that are not text>"
