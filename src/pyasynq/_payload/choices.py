"""Types that are a choice: unions, literals, enums."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

from pyasynq._payload.converter import Converter, Json, Mismatch, fixed, refuse_json, refuse_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ENUM_KINDS: Final = frozenset({str, int})


class AmbiguousUnionError(Exception):
    """Two members of a union look the same in JSON, so a payload could not say which was meant.

    Attributes:
        first: name of one member.
        second: name of the other.
    """

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first, second)
        self.first = first
        self.second = second


def union_of(members: Sequence[Converter]) -> Converter:
    """Return the converter of a union: the value's type chooses on the way out, the JSON's kind coming in.

    Raises:
        AmbiguousUnionError: for members that JSON cannot tell apart.
    """
    decoders = _decoders_by_kind(members)
    name = " | ".join(member.name for member in members)
    plain = frozenset[type]().union(*(member.plain for member in members))

    def encode(value: Any) -> Json:
        # Exact types come first: True is an int for isinstance(), and 1 a float for the type checkers.
        for member in members:
            if type(value) in member.plain:
                return member.encode(value)
        for member in members:
            if member.accepts(value):
                return member.encode(value)
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
        describe=lambda definitions: {"anyOf": [member.describe(definitions) for member in members]},
    )


def _decoders_by_kind(members: Sequence[Converter]) -> dict[type, Callable[[Json], Any]]:
    owners: dict[type, Converter] = {}
    for member in members:
        for kind in member.writes:
            if kind in owners:
                raise AmbiguousUnionError(owners[kind].name, member.name)
            owners[kind] = member
    for member in members:
        for kind in member.reads:
            owners.setdefault(kind, member)
    return {kind: member.decode for kind, member in owners.items()}


def literal_of(values: Sequence[Any]) -> Converter:
    """Return the converter of `Literal[...]`: text, whole numbers, booleans and None."""
    name = f"Literal[{', '.join(map(repr, values))}]"
    # 1 == True: the type belongs to the key.
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
    """Return the converter of an enum: by value where all values are text or whole numbers, else by name."""
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

    # A flag may be any sum of its members.
    values = {"type": "integer"} if issubclass(kind, enum.Flag) else {"enum": [to_json(one) for one in kind]}
    describe = fixed({"title": name, **values})
    return Converter(name, kinds, accepts, encode, decode, describe=describe)
