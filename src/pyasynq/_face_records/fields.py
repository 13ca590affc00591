"""Fields of face records, declared once for table, JSON, CSV and JSON Schema."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Record = dict[str, Any]
"""Face record: the values of one displayed object by the names of the fields of its view."""


class Kind(Enum):
    """Kind of a field's values: decides their JSON type, text and alignment in a table.

    Attributes:
        TEXT: text; control characters are shown as symbols.
        COUNT: a whole number, shown with separators: `3,900`.
        NUMBER: a whole number that identifies something, such as a process id, without separators: `3900`.
        SHARE: a number from 0 to 1, shown in percent.
        BYTES: a size in bytes.
        DURATION: a duration in seconds.
        TIME: an aware datetime; ISO 8601 in JSON, relative to the present in a table.
        FLAG: true or false.
        NAMES: a list of strings.
        NUMBERS: an object whose values are numbers, such as counts by name.
        TEXTS: an object whose values are strings.
        DATA: a payload or result: JSON as it is, other text as a string, other bytes as Base64.
        OBJECT: an object with any content, for programs.
        OBJECTS: a list of objects with any content, for programs.
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
    """One field of a face record.

    Attributes:
        name: name in JSON, in CSV and for `--fields`.
        kind: kind of its values.
        about: description in one sentence, for the JSON Schema and the reference page.
        heading: heading of the column; if empty, tables omit the field unless `--fields` names it.
        is_wide: whether the column is shown only with `-o wide`.
        shrinks: whether its text may be cut if the terminal is too narrow.
        is_optional: whether its value may be None.
        color: function that returns the color of a value; None for no color.
        gives_way: whether the column is dropped when the other columns would otherwise be narrower than their
            `readable` width.
        readable: smallest readable width of the column, in terminal cells.
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
    readable: int = 20

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
    """Description of the face records of one command: their fields, and the field that identifies a record.

    Attributes:
        name: name of the records' JSON Schema.
        version: version of the JSON Schema; it increases when a field is removed or changes its meaning.
        key: the field that `-o name` prints.
        fields: fields in the order of the columns.
        empty: sentence for people when there are no records.
    """

    name: str
    key: str
    fields: tuple[Field, ...]
    empty: str
    version: int = 1

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


def json_value(field: Field, value: Any) -> Any:
    """Return a value in its JSON form."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if field.kind is Kind.DATA:
        return json_data(value)
    if isinstance(value, tuple):
        return list(value)
    return value


def json_data(data: bytes | None) -> Any:
    """Return bytes as a JSON value: parsed if they are JSON, else `{"text": …}` or `{"base64": …}`.

    Return None for None. A number that a float would round is returned as a string, so that it stays exact.
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
