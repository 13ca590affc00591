"""Converters of types with alternatives: unions, literals, enums."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

from pyasynq._payload.converter import Converter, Json, Mismatch, fixed, refuse_json, refuse_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ENUM_KINDS: Final = frozenset({str, int})


class AmbiguousUnionError(Exception):
    """Error: two members of a union look the same in JSON, so decoding could not tell them apart.

    Attributes:
        first: name of one member.
        second: name of the other.
    """

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first, second)
        self.first = first
        self.second = second


def union_of(members: Sequence[Converter]) -> Converter:
    """Return the converter of a union: it encodes by the type of a value, and decodes by the kind of JSON.

    Raises:
        AmbiguousUnionError: for members that JSON cannot tell apart.
    """
    decoders = _decoders_by_kind(members)
    name = " | ".join(member.name for member in members)
    plain = frozenset[type]().union(*(member.plain for member in members))
    by_base = {base: member for member in members for base in member.bases}

    def encode(value: Any) -> Json:
        # Exact types come first: True is an int for isinstance(), and 1 a float for the type checkers.
        for member in members:
            if type(value) in member.plain:
                return member.encode(value)
        for member in members:
            if member.accepts(value):
                return member.encode(value)
        for base in type(value).__mro__:
            if base in by_base:
                return by_base[base].encode(value)
        return refuse_value(name, value)

    def decode(value: Json) -> Any:
        chosen = decoders.get(type(value))
        return refuse_json(name, value) if chosen is None else chosen(value)

    return Converter(
        name,
        frozenset[type]().union(*(member.writes for member in members)),
        lambda value: any(member.accepts(value) for member in members),
        encode,
        decode,
        plain=plain,
        reads=frozenset[type]().union(*(member.reads for member in members)),
        kept=frozenset[type]().union(*(member.kept for member in members)),
        bases=frozenset(by_base),
        tags=_join_tags(members),
        describe=lambda definitions: {"anyOf": [member.describe(definitions) for member in members]},
    )


def _join_tags(members: Sequence[Converter]) -> dict[str, frozenset[Any]]:
    """Return the discriminator fields that all members share, so that unions can be nested."""
    names = frozenset[str](members[0].tags).intersection(*(member.tags for member in members[1:]))
    return {name: frozenset[Any]().union(*(one.tags[name] for one in members)) for name in names}


def _decoders_by_kind(members: Sequence[Converter]) -> dict[type, Callable[[Json], Any]]:
    decoders: dict[type, Callable[[Json], Any]] = {}
    for kind in frozenset[type]().union(*(member.writes for member in members)):
        able = [member for member in members if kind in member.writes]
        decoders[kind] = able[0].decode if len(able) == 1 else _decode_by_tag(able)
    for member in members:
        for kind in member.reads:
            decoders.setdefault(kind, member.decode)
    return decoders


def _decode_by_tag(members: Sequence[Converter]) -> Callable[[Json], Any]:
    """Return the decoder of a discriminated union: a field of literals selects the member.

    Raises:
        AmbiguousUnionError: for members without such a field.
    """
    for name in members[0].tags:
        chosen = {value: member for member in members for value in member.tags.get(name, ())}
        if all(name in one.tags for one in members) and len(chosen) == sum(
            len(one.tags[name]) for one in members
        ):
            break
    else:
        raise AmbiguousUnionError(members[0].name, members[1].name)
    known = ", ".join(map(repr, chosen))

    def decode(value: Json) -> Any:
        tag = value.get(name)
        member = chosen.get(tag) if type(tag) in _ENUM_KINDS else None
        if member is None:
            raise Mismatch(f"expected an object whose field {name!r} is one of {known}")
        return member.decode(value)

    return decode


def literal_of(values: Sequence[Any]) -> Converter:
    """Return the converter of `Literal[...]` of strings, integers, booleans and None."""
    name = f"Literal[{', '.join(map(repr, values))}]"
    # The keys contain the type, because 1 == True.
    known = {(type(value), value): value for value in values}

    def accepts(value: object) -> bool:
        return isinstance(value, str | int | None) and (type(value), value) in known

    def encode(value: Any) -> Json:
        return value if accepts(value) else refuse_value(name, value)

    def decode(value: Json) -> Any:
        return value if accepts(value) else refuse_json(name, value)

    describe = fixed({"enum": list(values)})
    return Converter(name, frozenset(map(type, values)), accepts, encode, decode, describe=describe)


def enum_of(kind: type[enum.Enum]) -> Converter:
    """Return the converter of an enum: by value if all values are strings or integers, otherwise by name."""
    kinds = frozenset(type(member.value) for member in kind) or _ENUM_KINDS
    if kinds <= _ENUM_KINDS:
        return _enum(kind, kinds, lambda member: member.value, kind)
    return _enum(kind, frozenset({str}), lambda member: member.name, kind.__getitem__)


def _enum(
    kind: type[enum.Enum],
    kinds: frozenset[type],
    to_json: Callable[[enum.Enum], Json],
    from_json: Callable[[Json], enum.Enum],
) -> Converter:
    name = kind.__name__

    def accepts(value: object) -> bool:
        return isinstance(value, kind)

    def encode(value: Any) -> Json:
        return to_json(value) if accepts(value) else refuse_value(name, value)

    def decode(value: Json) -> enum.Enum:
        if type(value) not in kinds:
            refuse_json(name, value)
        try:
            return from_json(value)
        except (ValueError, KeyError):
            raise Mismatch(f"expected one of {name}, got something else") from None

    # The value of a flag may combine several members.
    values = {"type": "integer"} if issubclass(kind, enum.Flag) else {"enum": [to_json(one) for one in kind]}
    describe = fixed({"title": name, **values})
    return Converter(name, kinds, accepts, encode, decode, describe=describe)
