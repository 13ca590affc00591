"""Codecs that an app gives to types of its own: two functions between a value and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyasynq._payload.containers import UNDECLARED
from pyasynq._payload.converter import Converter, Json, Mismatch, refuse_value
from pyasynq._payload.records import describe_place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_KINDS: Final = UNDECLARED.writes - {type(None)}
"""JSON kinds that a user codec may write: all except null, so that the type can be optional."""


def codec_of(
    kind: type,
    encode: Callable[[Any], Any],
    decode: Callable[[Any], Any],
    schema: Mapping[str, Any] | None = None,
) -> Converter:
    """Return a converter from two user functions; their exceptions are reported by type and line."""
    name = kind.__name__

    def accepts(value: object) -> bool:
        return isinstance(value, kind)

    def to_json(value: Any) -> Json:
        if not accepts(value):
            refuse_value(name, value)
        encoded = _call(f"{name} cannot be encoded", encode, value)
        if encoded is None:
            raise Mismatch(f"the codec of {name} returned None, which stands for a missing value")
        return UNDECLARED.encode(encoded)

    def from_json(value: Json) -> Any:
        decoded = _call(f"expected {name}, got JSON that its codec refuses", decode, value)
        if not accepts(decoded):
            raise Mismatch(f"the codec of {name} returned {type(decoded).__name__}")
        return decoded

    described = dict(schema or {})
    return Converter(name, _KINDS, accepts, to_json, from_json, describe=lambda _definitions: dict(described))


def _call(complaint: str, function: Callable[[Any], Any], value: Any) -> Any:
    try:
        return function(value)
    except Exception as error:  # noqa: BLE001 - the functions are the user's
        # The message omits the error's text and chain, which could show the value.
        raise Mismatch(f"{complaint}: {describe_place(error)}") from None
