"""Converter of `Secret[...]`: its JSON is that of the value, and JSON Schemas mark it as a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyasynq._payload.converter import Converter, Json, Mismatch, refuse_value
from pyasynq.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._payload.schema import Definitions, Schema

_T = TypeVar("_T")

_KEYWORDS: Final[Schema] = {"writeOnly": True, "format": "password"}
"""JSON Schema keywords for a secret value, which tools must not show."""


def secret_of(inner: Converter) -> Converter:
    """Return the converter of `Secret[inner]`. Its errors name no position inside the value."""
    name = f"Secret[{inner.name}]"

    def accepts(value: object) -> bool:
        return isinstance(value, Secret) and inner.accepts(value.reveal())

    def encode(value: Any) -> Json:
        if not isinstance(value, Secret):
            refuse_value(f"{name}; write Secret(...) around the value", value)
        return _without_place(name, lambda: inner.encode(value.reveal()))

    def decode(value: Json) -> Any:
        return Secret(_without_place(name, lambda: inner.decode(value)))

    def describe(definitions: Definitions) -> Schema:
        return {**inner.describe(definitions), **_KEYWORDS}

    reads = inner.reads | inner.kept | inner.plain
    return Converter(name, inner.writes, accepts, encode, decode, reads=reads, describe=describe)


def _without_place(name: str, convert: Callable[[], _T]) -> _T:
    try:
        return convert()
    except Mismatch:
        raise Mismatch(f"expected {name}, got something else") from None
