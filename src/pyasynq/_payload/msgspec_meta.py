"""Constraints in `Annotated` that msgspec checks, such as `Annotated[int, msgspec.Meta(gt=0)]`.

msgspec is never imported here: an annotation can contain a `Meta` only if the program has imported it.
"""

from __future__ import annotations

import sys
import types
import typing
from typing import TYPE_CHECKING, Any, Final

from pyasynq._payload.converter import Converter, Json, Mismatch
from pyasynq._payload.pydantic_types import SCHEMA_CONSTRAINTS, LossyTypeError

if TYPE_CHECKING:
    from pyasynq._payload.schema import Definitions, Schema

_CHECKS: Final = (
    *("gt", "ge", "lt", "le", "multiple_of"),
    *("pattern", "min_length", "max_length", "tz"),
)
"""Attributes of a `Meta` that constrain values; the others describe them."""


def has_meta(annotation: Any) -> bool:
    """Return whether an `Annotated` type has a `msgspec.Meta` that constrains values."""
    msgspec = sys.modules["msgspec"]
    return any(
        isinstance(one, msgspec.Meta) and any(getattr(one, name) is not None for name in _CHECKS)
        for one in annotation.__metadata__
    )


def constrained_by_meta(annotation: Any, inner: Converter) -> Converter:
    """Return a converter that also lets msgspec check the constraints of an `Annotated` type, both ways.

    Raises:
        LossyTypeError: for constraints that msgspec does not have for this type.
    """
    msgspec = sys.modules["msgspec"]
    metadata = [one for one in annotation.__metadata__ if isinstance(one, msgspec.Meta)]
    annotated: Any = typing.Annotated
    checked = annotated[(_without_items(typing.get_args(annotation)[0]), *metadata)]
    try:
        msgspec.json.Decoder(checked)
    except TypeError:
        raise LossyTypeError("msgspec has no such constraint for this type") from None

    def check(value: Any) -> Any:
        try:
            msgspec.convert(value, checked)
        except msgspec.ValidationError as error:
            raise Mismatch(f"{inner.name} refused it: {error}") from None
        return value

    def encode(value: Any) -> Json:
        encoded = inner.encode(value)
        # Check the decoded value, as the handler gets it: msgspec refuses subclasses of `str` and `int`.
        check(inner.decode(encoded))
        return encoded

    def decode(value: Json) -> Any:
        return check(inner.decode(value))

    def describe(definitions: Definitions) -> Schema:
        told = msgspec.json.schema(checked)
        return inner.describe(definitions) | {name: told[name] for name in SCHEMA_CONSTRAINTS if name in told}

    reads = inner.reads | inner.kept
    return Converter(inner.name, inner.writes, inner.accepts, encode, decode, reads=reads, describe=describe)


def _without_items(annotation: Any) -> Any:
    """Return a type without the types of its items, which have converters of their own."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _without_items(typing.get_args(annotation)[0])
    if origin in {typing.Union, types.UnionType}:
        return typing.Union[(*map(_without_items, typing.get_args(annotation)),)]
    return annotation if origin in {None, typing.Literal} else origin
