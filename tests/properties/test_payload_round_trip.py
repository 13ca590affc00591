"""Whatever a converter takes comes back equal, and equal values are equal bytes."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pyasynq._payload.arguments import ArgumentsCodec
from pyasynq._payload.compiler import Compiler
from pyasynq._payload.text import from_bytes, to_bytes
from pyasynq.errors import PayloadDecodingError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


T = TypeVar("T")


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Typed(NamedTuple):
    """An annotation, and how to draw a value of it."""

    annotation: Any
    values: st.SearchStrategy[Any]


_text = st.text(st.characters(codec="utf-8"))
_zones = st.sampled_from(
    [UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(seconds=-3661)), None]
)
_floats = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = [
    Typed(int, st.integers()),
    Typed(str, _text),
    Typed(float, _floats),
    Typed(bool, st.booleans()),
    Typed(datetime, st.datetimes(timezones=_zones)),
    Typed(date, st.dates()),
    Typed(time, st.times(timezones=_zones)),
    Typed(timedelta, st.timedeltas(timedelta(days=-90_000), timedelta(days=90_000))),
    Typed(UUID, st.uuids()),
    Typed(Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    Typed(bytes, st.binary()),
    Typed(Size, st.sampled_from(Size)),
    Typed(IPv4Address, st.ip_addresses(v=4)),
    Typed(IPv6Address, st.ip_addresses(v=6)),
    Typed(ZoneInfo, st.timezone_keys().map(ZoneInfo)),
]
_undeclared = st.recursive(
    st.none() | st.booleans() | st.integers() | _floats | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)


def _list(item: Typed) -> Typed:
    return Typed(GenericAlias(list, (item.annotation,)), st.lists(item.values, max_size=4))


def _tuple(item: Typed) -> Typed:
    return Typed(GenericAlias(tuple, (item.annotation, int)), st.tuples(item.values, st.integers()))


def _dict(item: Typed) -> Typed:
    return Typed(
        GenericAlias(dict, (int, item.annotation)), st.dictionaries(st.integers(), item.values, max_size=4)
    )


def _optional(item: Typed) -> Typed:
    return Typed(item.annotation | None, st.none() | item.values)


def _dataclass(item: Typed) -> Typed:
    record = make_dataclass("record", [("first", item.annotation), ("second", str)], frozen=True)
    return Typed(record, st.builds(record, item.values, _text))


def _deque(item: Typed) -> Typed:
    return Typed(GenericAlias(deque, (item.annotation,)), st.lists(item.values, max_size=4).map(deque))


@dataclass(frozen=True)
class Page(Generic[T]):
    """A generic class."""

    first: T
    others: tuple[T, ...] = ()


def _generic(item: Typed) -> Typed:
    others = st.lists(item.values, max_size=3).map(tuple)
    return Typed(GenericAlias(Page, (item.annotation,)), st.builds(Page, item.values, others))


def _attrs_class(item: Typed) -> Typed:
    fields = {"first": attrs.field(type=item.annotation), "_second": attrs.field(type=str, default="")}
    record = attrs.make_class("record", fields)
    return Typed(record, st.builds(record, item.values, _text))


def _struct(item: Typed) -> Typed:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [("first", item.annotation), ("second", str, "")]
    record = msgspec.defstruct("record", fields, tag=True, rename="pascal")
    return Typed(record, st.builds(record, item.values, _text))


def _discriminated(item: Typed) -> Typed:
    records = [
        make_dataclass(f"record_{tag}", [("value", item.annotation), ("tag", Literal[tag], tag)])
        for tag in ("a", "b")
    ]
    annotation = records[0] | records[1]
    return Typed(annotation, st.one_of([st.builds(one, item.values) for one in records]))


_shapes: list[Callable[[Typed], Typed]] = [
    *(_list, _tuple, _dict, _optional, _dataclass),
    *(_deque, _generic, _attrs_class, _struct, _discriminated),
]
types = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.builds(lambda shape, item: shape(item), st.sampled_from(_shapes), inner),
    max_leaves=4,
)


@given(st.data())
def test_a_value_of_any_declared_type_comes_back_equal(data: st.DataObject) -> None:
    """Through bytes, for scalars and every nesting of containers around them."""
    typed = data.draw(types)
    value = data.draw(typed.values)
    converter = Compiler().compile(typed.annotation)
    back = converter.decode(from_bytes(to_bytes(converter.encode(value))))
    assert value == back
    assert type(value) is type(back)


@given(_undeclared)
def test_a_value_of_no_declared_type_comes_back_equal(value: object) -> None:
    """JSON's own kinds need no annotation."""
    converter = Compiler().compile(Any)
    assert value == converter.decode(from_bytes(to_bytes(converter.encode(value))))


@given(st.sampled_from(SCALARS), st.data(), st.randoms(use_true_random=False))
def test_equal_mappings_and_sets_are_equal_bytes(
    typed: Typed, data: st.DataObject, rng: random.Random
) -> None:
    """Whatever the order in which they were filled: uniqueness hashes the bytes."""
    items = data.draw(st.lists(typed.values, max_size=6))
    pairs = data.draw(st.lists(st.tuples(_text, typed.values), max_size=6, unique_by=lambda pair: pair[0]))
    shuffled, shuffled_pairs = rng.sample(items, len(items)), rng.sample(pairs, len(pairs))
    sets = Compiler().compile(GenericAlias(frozenset, (typed.annotation,)))
    maps = Compiler().compile(GenericAlias(dict, (str, typed.annotation)))
    assert to_bytes(maps.encode(dict(pairs))) == to_bytes(maps.encode(dict(shuffled_pairs)))
    if len({repr(item) for item in items}) == len(set(items)):  # not 1.0 next to 1.00
        assert to_bytes(sets.encode(frozenset(items))) == to_bytes(sets.encode(frozenset(shuffled)))


@given(st.binary(max_size=60))
def test_decoding_any_bytes_ends_in_a_value_or_a_payload_error(data: bytes) -> None:
    """Nothing else may escape: what is in Redis may be anybody's."""

    def handler(a: int, b: datetime | None = None) -> None: ...

    codec = ArgumentsCodec(handler, {"a": int, "b": datetime | None}, owner="task 'x'")
    for payload in (data, b'{"a":' + data + b"}", b'{"a":1,"b":"' + data + b'"}'):
        try:
            assert isinstance(codec.decode(payload), dict)
        except PayloadDecodingError as error:
            assert str(error).startswith("task 'x'")  # noqa: PT017
