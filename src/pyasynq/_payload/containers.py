"""Converters of lists, tuples, sets and mappings, and of values without a declared type, such as `Any`."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from pyasynq._payload.converter import (
    Converter,
    Json,
    Mismatch,
    as_is,
    convert_items,
    refuse_json,
    refuse_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._payload.converter import Describe
    from pyasynq._payload.schema import Definitions, Schema

_LIST: Final = frozenset({list})
_OBJECT: Final = frozenset({dict})
_KEY_KINDS: Final = (frozenset({str}), frozenset({int}))
_by_key: Final = itemgetter(0)
_canonical_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


# Values without a declared type may have only the types of JSON: then they are equal after a round trip.


def _encode_undeclared(value: Any) -> Json:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else refuse_value("a finite number", float(value))
    if isinstance(value, list):
        return convert_items(_encode_undeclared, value)
    if isinstance(value, dict):
        return _encode_undeclared_dict(value)
    raise Mismatch(f"JSON cannot carry {type(value).__name__} here without an annotation that names the type")


def _encode_undeclared_dict(value: dict[Any, Any]) -> dict[str, Json]:
    for key in value:
        if not isinstance(key, str):
            raise Mismatch(
                f"JSON has text keys only, got a key of type {type(key).__name__}; "
                "annotate it, as in dict[int, str]",
            )
    # Keys are sorted, as Go does, so that equal mappings become equal bytes.
    return {key: _member(value[key], _encode_undeclared) for key in sorted(value)}


UNDECLARED: Final = Converter(
    "Any",
    frozenset({type(None), bool, int, float, str, list, dict}),
    lambda _value: True,
    _encode_undeclared,
    as_is,
    plain=frozenset({type(None), bool, int, str}),
)


def _member(value: Any, convert: Callable[[Any], Any]) -> Any:
    try:
        return convert(value)
    except Mismatch as mismatch:
        # The error does not name the key: it is data, as the value is, and may be secret.
        raise mismatch.inside("[...]") from mismatch.__cause__


# Sequences and sets: JSON lists.


def list_of(item: Converter) -> Converter:
    """Return the converter of `list[item]`."""
    name = f"list[{item.name}]"
    is_plain = item.plain.issuperset

    def encode(value: Any) -> Json:
        if not isinstance(value, list):
            refuse_value(name, value)
        return value if is_plain(map(type, value)) else convert_items(item.encode, value)

    return Converter(
        name,
        _LIST,
        lambda value: isinstance(value, list),
        encode,
        _list_decoder(item, name),
        kept=_LIST if item.decode is as_is else frozenset(),
        describe=_array(item),
    )


def _array(item: Converter, **keywords: Any) -> Describe:
    return lambda definitions: {"type": "array", "items": item.describe(definitions), **keywords}


def collection_of(item: Converter, kind: str, accepted: type) -> Converter:
    """Return the converter of `Sequence[item]` and the like: encodes any such collection, decodes a list.

    Sets are written in a fixed order. Text, bytes and mappings are refused.
    """
    name = f"{kind}[{item.name}]"
    sort_key = _sort_key(item)

    def accepts(value: object) -> bool:
        return isinstance(value, accepted) and not isinstance(value, str | bytes | bytearray | Mapping)

    def encode(value: Any) -> Json:
        if not accepts(value):
            refuse_value(name, value)
        encoded = convert_items(item.encode, value)
        return sorted(encoded, key=sort_key) if isinstance(value, AbstractSet) else encoded

    return Converter(name, _LIST, accepts, encode, _list_decoder(item, name), describe=_array(item))


def deque_of(item: Converter) -> Converter:
    """Return the converter of `deque[item]`."""
    name = f"deque[{item.name}]"
    decode_list = _list_decoder(item, name)

    def encode(value: Any) -> Json:
        if not isinstance(value, deque):
            refuse_value(name, value)
        if value.maxlen is not None:
            raise Mismatch(f"expected {name} without maxlen, which JSON cannot carry")
        return convert_items(item.encode, value)

    return Converter(
        name,
        _LIST,
        lambda value: isinstance(value, deque),
        encode,
        lambda value: deque(decode_list(value)),
        describe=_array(item),
    )


def _list_decoder(item: Converter, name: str) -> Callable[[Json], list[Any]]:
    is_plain = item.plain.issuperset

    def decode(value: Json) -> list[Any]:
        if type(value) is not list:
            refuse_json(name, value)
        if item.decode is as_is or is_plain(map(type, value)):
            return value
        return convert_items(item.decode, value)

    return decode


def tuple_of(item: Converter) -> Converter:
    """Return the converter of `tuple[item, ...]`."""
    name = f"tuple[{item.name}, ...]"
    decode_list = _list_decoder(item, name)

    def encode(value: Any) -> Json:
        return convert_items(item.encode, value) if isinstance(value, tuple) else refuse_value(name, value)

    return Converter(
        name,
        _LIST,
        lambda value: isinstance(value, tuple),
        encode,
        lambda value: tuple(decode_list(value)),
        describe=_array(item),
    )


def fixed_tuple(items: Sequence[Converter]) -> Converter:
    """Return the converter of `tuple[first, second]`: a JSON list of exactly that length."""
    name = f"tuple[{', '.join(item.name for item in items) or '()'}]"

    def convert(converters: list[Callable[[Any], Any]], values: Sequence[Any]) -> list[Any]:
        if len(values) != len(converters):
            raise Mismatch(f"expected {name}, got {len(values)} items")
        return convert_items(lambda pair: pair[0](pair[1]), zip(converters, values, strict=True))

    encoders = [item.encode for item in items]
    decoders = [item.decode for item in items]

    def encode(value: Any) -> Json:
        return convert(encoders, value) if isinstance(value, tuple) else refuse_value(name, value)

    def decode(value: Json) -> tuple[Any, ...]:
        return tuple(convert(decoders, value) if type(value) is list else refuse_json(name, value))

    def describe(definitions: Definitions) -> Schema:
        members = [item.describe(definitions) for item in items]
        prefix = {"prefixItems": members} if members else {}
        return {"type": "array", **prefix, "items": False, "minItems": len(members)}

    return Converter(name, _LIST, lambda value: isinstance(value, tuple), encode, decode, describe=describe)


def _sort_key(item: Converter) -> Callable[[Any], Any] | None:
    return None if item.writes in _KEY_KINDS else _canonical_json


def set_of(item: Converter, make: type[set[Any] | frozenset[Any]]) -> Converter:
    """Return the converter of `set[item]` or `frozenset[item]`: a JSON list in a fixed order."""
    name = f"{make.__name__}[{item.name}]"
    sort_key = _sort_key(item)
    decode_list = _list_decoder(item, name)

    def encode(value: Any) -> Json:
        if not isinstance(value, make):
            refuse_value(name, value)
        return sorted(convert_items(item.encode, value), key=sort_key)

    def decode(value: Json) -> set[Any] | frozenset[Any]:
        try:
            return make(decode_list(value))
        except TypeError:
            raise Mismatch(f"expected {name}, got a list of things that cannot be in a set") from None

    describe = _array(item, uniqueItems=True)
    return Converter(name, _LIST, lambda value: isinstance(value, make), encode, decode, describe=describe)


# Mappings: JSON objects.


def can_be_key(key: Converter) -> bool:
    """Return whether a type can be the key of a JSON object: its JSON is a string or an integer."""
    return key.writes in _KEY_KINDS


def dict_of(key: Converter, item: Converter) -> Converter:
    """Return the converter of `dict[key, item]`; integer keys become strings in JSON, as in Go."""
    name = f"dict[{key.name}, {item.name}]"
    numeric = key.writes == {int}
    plain_keys = key.plain == {str}

    def encode(value: Any) -> Json:
        if not isinstance(value, Mapping):
            refuse_value(name, value)
        pairs = [(str(_member(one, key.encode)), _member(value[one], item.encode)) for one in value]
        pairs.sort(key=_by_key)
        return dict(pairs)

    def decode(value: Json) -> dict[Any, Any]:
        if type(value) is not dict:
            refuse_json(name, value)
        if plain_keys and (item.decode is as_is or item.plain.issuperset(map(type, value.values()))):
            return value
        return {
            _decode_key(text, key, numeric=numeric): _member(one, item.decode) for text, one in value.items()
        }

    return Converter(
        name,
        _OBJECT,
        lambda value: isinstance(value, Mapping),
        encode,
        decode,
        kept=_OBJECT if plain_keys and item.decode is as_is else frozenset(),
        describe=_object(key, item),
    )


def _object(key: Converter, item: Converter) -> Describe:
    def describe(definitions: Definitions) -> Schema:
        schema: Schema = {"type": "object", "additionalProperties": item.describe(definitions)}
        if key.writes == {int}:
            schema["propertyNames"] = {"pattern": "^-?[0-9]+$"}
        elif key.plain != {str}:
            schema["propertyNames"] = key.describe(definitions)
        return schema

    return describe


def _decode_key(text: str, key: Converter, *, numeric: bool) -> Any:
    if not numeric:
        return key.decode(text)
    try:
        return key.decode(int(text))
    except ValueError:
        raise Mismatch("expected a whole number as key, got other text") from None
