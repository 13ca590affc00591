"""Converters of scalar types, whose JSON is one number, string, boolean or null, such as dates and UUIDs."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from pyasynq._payload.converter import Converter, Json, Mismatch, as_is, fixed, refuse_json, refuse_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._payload.schema import Schema

_T = TypeVar("_T")

_INT: Final = frozenset({int})
_NUMBER: Final = frozenset({int, float})
_TEXT: Final = frozenset({str})
_EXACT_TIMEDELTA: Final = timedelta(seconds=2**33)  # a float of seconds still tells microseconds apart


def _plain(kind: type[_T], take: Callable[[_T], Json], schema_type: str) -> Converter:
    def encode(value: Any) -> Json:
        return take(value) if isinstance(value, kind) else refuse_value(kind.__name__, value)

    def decode(value: Json) -> Json:
        return value if type(value) is kind else refuse_json(kind.__name__, value)

    def accepts(value: object) -> bool:
        return isinstance(value, kind)

    kinds = frozenset({kind})
    describe = fixed({"type": schema_type})
    return Converter(kind.__name__, kinds, accepts, encode, decode, plain=kinds, describe=describe)


def text_scalar(
    kind: type[_T],
    to_text: Callable[[_T], str],
    from_text: Callable[[str], _T],
    *,
    never: type | tuple[type, ...] = (),
    reads: frozenset[type] = frozenset(),
    **keywords: str,
) -> Converter:
    """Return the converter of a type whose JSON is a string.

    Args:
        kind: the type.
        to_text: returns the string for a value.
        from_text: parses the string to a value; raises `ValueError` or `ArithmeticError` for an invalid one.
        never: subtypes that are refused, because the string would lose a part of their values.
        reads: types of JSON values besides strings that `from_text` accepts.
        keywords: further keywords of the JSON Schema, such as `format`.
    """
    schema: Schema = {"type": ["string", "integer"] if reads else "string", **keywords}
    readable = _TEXT | reads

    def accepts(value: object) -> bool:
        return isinstance(value, kind) and not isinstance(value, never)

    def encode(value: Any) -> Json:
        return to_text(value) if accepts(value) else refuse_value(kind.__name__, value)

    def decode(value: Json) -> _T:
        if type(value) not in readable:
            refuse_json(kind.__name__, value)
        try:
            return from_text(value)
        except (ValueError, ArithmeticError):
            raise Mismatch(f"expected {kind.__name__}, got text that is none") from None

    return Converter(kind.__name__, _TEXT, accepts, encode, decode, reads=reads, describe=fixed(schema))


# float: an int is accepted, as by Python's type checkers; Go writes 1.0 as 1.


def _encode_float(value: Any) -> float:
    if not isinstance(value, int | float):
        refuse_value("float", value)
    try:
        number = float(value)
    except OverflowError:
        raise Mismatch("expected float, got a whole number beyond its range") from None
    return number if math.isfinite(number) else refuse_value("a finite float", number)


def _decode_float(value: Json) -> float:
    if type(value) not in _NUMBER:
        refuse_json("float", value)
    try:
        return float(value)
    except OverflowError:
        raise Mismatch("expected float, got a whole number beyond its range") from None


FLOAT: Final = Converter(
    "float",
    frozenset({float}),
    lambda value: isinstance(value, int | float),
    _encode_float,
    _decode_float,
    plain=frozenset({float}),
    reads=_INT,
    describe=fixed({"type": "number"}),
)


# timedelta: written as a number of seconds, which every language can read.


def _encode_timedelta(value: Any) -> float:
    if not isinstance(value, timedelta):
        refuse_value("timedelta", value)
    if value.microseconds and abs(value) > _EXACT_TIMEDELTA:
        raise Mismatch("expected timedelta; microseconds of spans over 272 years cannot be written exactly")
    return value.total_seconds()


def _decode_timedelta(value: Json) -> timedelta:
    if type(value) not in _NUMBER:
        refuse_json("timedelta", value)
    try:
        return timedelta(seconds=value)
    except OverflowError:
        raise Mismatch("expected timedelta, got more seconds than it can hold") from None


_TIMEDELTA: Final = Converter(
    "timedelta",
    frozenset({float}),
    lambda value: isinstance(value, timedelta),
    _encode_timedelta,
    _decode_timedelta,
    reads=_INT,
    describe=fixed({"type": "number", "description": "duration in seconds"}),
)


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise Mismatch("expected a finite Decimal; JSON has no infinity and no NaN")
    return str(value)


def _finite_decimal(value: str | int) -> Decimal:
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError
    return number


def _base64_text(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode("ascii")


def _base64_bytes(value: str) -> bytes:
    return base64.b64decode(value, validate=True)


def _path(kind: type[PurePath]) -> Converter:
    return text_scalar(kind, str, kind)


NONE: Final = Converter(
    "None",
    frozenset({NoneType}),
    lambda value: value is None,
    lambda value: None if value is None else refuse_value("None", value),
    lambda value: None if value is None else refuse_json("null", value),
    plain=frozenset({NoneType}),
    describe=fixed({"type": "null"}),
)

SCALARS: Final[dict[Any, Converter]] = {
    NoneType: NONE,
    # bool is an int for Python; for JSON it is not.
    bool: _plain(bool, as_is, "boolean"),
    int: _plain(int, int, "integer"),
    # For a text enum, str() may return the member's name; `str.__str__` returns its text.
    str: _plain(str, str.__str__, "string"),
    float: FLOAT,
    timedelta: _TIMEDELTA,
    datetime: text_scalar(datetime, datetime.isoformat, datetime.fromisoformat, format="date-time"),
    # A datetime is a date for isinstance(), but its time of day would be lost.
    date: text_scalar(date, date.isoformat, date.fromisoformat, never=datetime, format="date"),
    time: text_scalar(time, time.isoformat, time.fromisoformat, format="time"),
    UUID: text_scalar(UUID, str, UUID, format="uuid"),
    Decimal: text_scalar(Decimal, _decimal_text, _finite_decimal, reads=_INT, format="decimal"),
    bytes: text_scalar(bytes, _base64_text, _base64_bytes, contentEncoding="base64"),
    bytearray: text_scalar(
        bytearray, _base64_text, lambda value: bytearray(_base64_bytes(value)), contentEncoding="base64"
    ),
    Path: _path(Path),
    PurePath: _path(PurePath),
    PurePosixPath: _path(PurePosixPath),
    PureWindowsPath: _path(PureWindowsPath),
}
