"""Converters: each encodes and decodes one Python type as JSON, and has the metadata that unions need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

if TYPE_CHECKING:
    from pyasynq._payload.schema import Definitions, Schema

Json: TypeAlias = Any
"""A decoded JSON value: None, bool, int, float, str, list or dict."""

Convert: TypeAlias = Callable[[Any], Any]

Describe: TypeAlias = "Callable[[Definitions], Schema]"
"""Function that makes a JSON Schema; schemas of named types are added to the definitions."""

_WORDS: Final[dict[type, str]] = {
    NoneType: "null",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


class Mismatch(Exception):  # noqa: N818 - internal; it becomes a PayloadEncodingError or PayloadDecodingError
    """Error: a converter cannot take a value. The message never shows the value, which may be a secret.

    Attributes:
        message: what was expected, and the type of the value.
        path: position of the value inside the argument, such as `[3].street`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.path = ""

    def inside(self, step: str) -> Mismatch:
        """Return this mismatch with `step` put before its path, for the enclosing value."""
        self.path = step + self.path
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Converter:
    """Converter between one Python type and JSON, both ways."""

    name: str
    """The type as errors name it."""
    writes: frozenset[type]
    """JSON kinds that `encode` produces, as the Python types that a JSON decoder returns."""
    accepts: Callable[[Any], bool]
    """Returns whether a Python value has this type; a union uses it to choose the member that encodes."""
    encode: Convert
    """Function from a Python value to JSON; raises `Mismatch`."""
    decode: Convert
    """Function from JSON to a Python value; raises `Mismatch`."""
    plain: frozenset[type] = frozenset()
    """Exact types that need no conversion: the Python value is the JSON value, so no function is called."""
    reads: frozenset[type] = frozenset()
    """Further JSON kinds that `decode` accepts, although `encode` never writes them."""
    kept: frozenset[type] = frozenset()
    """JSON kinds, besides `plain`, that `decode` returns unchanged and unchecked."""
    bases: frozenset[type] = frozenset()
    """Classes whose subclasses `encode` takes too; a union uses them if no member has the exact type."""
    tags: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    """Discriminator fields of a tagged union: names in the JSON object, each with its possible values."""
    describe: Describe = lambda _definitions: {}
    """Function that returns the JSON Schema of what `encode` writes."""


def as_is(value: Json) -> Json:
    """Return the value unchanged. A `decode` that is this function is recognised, and need not be called."""
    return value


def fixed(schema: Schema) -> Describe:
    """Return a function for `Converter.describe` that returns a copy of this schema."""
    return lambda _definitions: dict(schema)


def refuse_value(expected: str, value: object) -> NoReturn:
    """Raise `Mismatch` for a Python value of the wrong type."""
    if type(value) is float and not math.isfinite(value):
        raise Mismatch(f"expected {expected}; JSON has no infinity and no NaN")
    raise Mismatch(f"expected {expected}, got {type(value).__name__}")


def check_subclass(base: type, name: str, value: object, fields: Callable[[type], Iterable[str]]) -> None:
    """Raise `Mismatch` unless the value's class is a subclass of `base` without fields of its own.

    Such a value arrives as an instance of `base`; fields of its own would be lost.
    """
    if not isinstance(value, base):
        refuse_value(name, value)
    own = sorted({*fields(type(value))}.difference(fields(base)))
    if own:
        raise Mismatch(
            f"expected {name}, got {type(value).__name__}, whose field {own[0]!r} would be lost; annotate a "
            f"union with a tag, or register a codec of {base.__name__} with app.type_codec"
        )


def refuse_json(expected: str, value: Json) -> NoReturn:
    """Raise `Mismatch` for JSON of the wrong kind or content."""
    raise Mismatch(f"expected {expected}, got {_WORDS[type(value)]} that does not fit")


def convert_items(convert: Convert, items: Iterable[Any]) -> list[Any]:
    """Return the items converted; a mismatch names the position."""
    converted = []
    for position, item in enumerate(items):
        try:
            converted.append(convert(item))
        except Mismatch as mismatch:
            raise mismatch.inside(f"[{position}]") from mismatch.__cause__
    return converted
