"""Types that a payload carries, each with a strategy that draws its values."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import Path, PurePosixPath
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
from hypothesis import strategies as st

from pyasynq import Secret
from pyasynq._payload.compiler import Compiler
from pyasynq._payload.type_codecs import codec_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._payload.converter import Converter

T = TypeVar("T")


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass(frozen=True)
class Money:
    """A class with a codec of its own."""

    cents: int


_MONEY_CODEC: Final = codec_of(Money, lambda money: f"{money.cents} ct", lambda text: Money(int(text[:-3])))


def compile_type(annotation: Any) -> Converter:
    """Return the converter of an annotation in an app that has a codec."""
    return Compiler({Money: _MONEY_CODEC}).compile(annotation)


class Typed(NamedTuple):
    """An annotation, and how to draw a value of it."""

    annotation: Any
    values: st.SearchStrategy[Any]


text = st.text(st.characters(codec="utf-8"))
_zones = st.sampled_from(
    [UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(seconds=-3661)), None]
)
floats = st.floats(allow_nan=False, allow_infinity=False)


def _network(address: IPv4Address | IPv6Address, bits: int) -> IPv4Network | IPv6Network:
    kind = IPv4Network if isinstance(address, IPv4Address) else IPv6Network
    return kind((int(address), bits), strict=False)


def _interface(address: IPv4Address | IPv6Address, bits: int) -> IPv4Interface | IPv6Interface:
    kind = IPv4Interface if isinstance(address, IPv4Address) else IPv6Interface
    return kind((int(address), bits))


SCALARS: Final = [
    Typed(int, st.integers()),
    Typed(str, text),
    Typed(float, floats),
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
    Typed(IPv4Network, st.builds(_network, st.ip_addresses(v=4), st.integers(0, 32))),
    Typed(IPv6Network, st.builds(_network, st.ip_addresses(v=6), st.integers(0, 128))),
    Typed(IPv4Interface, st.builds(_interface, st.ip_addresses(v=4), st.integers(0, 32))),
    Typed(IPv6Interface, st.builds(_interface, st.ip_addresses(v=6), st.integers(0, 128))),
    Typed(Path, text.map(Path)),
    Typed(PurePosixPath, text.map(PurePosixPath)),
    Typed(Literal["a", "b", 3], st.sampled_from(["a", "b", 3])),
    Typed(Annotated[int, pydantic.Field(gt=0)], st.integers(1)),
    Typed(Annotated[str, pydantic.Field(max_length=3)], st.text(st.characters(codec="utf-8"), max_size=3)),
    Typed(pydantic.EmailStr, st.from_regex("[a-z]{1,9}@[a-z]{3,9}[.](com|org)", fullmatch=True)),
    Typed(
        pydantic.HttpUrl,
        st.from_regex("https?://[a-z]{3,9}[.]org(/[a-z0-9]{1,6}){0,3}", fullmatch=True).map(pydantic.HttpUrl),
    ),
    Typed(Money, st.builds(Money, st.integers())),
]
"""Types whose values are hashable."""
_OF_MODELS: Final = (int, str, bool, UUID, date, Size)
"""Scalars that pydantic itself writes without a loss."""
undeclared = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


def _list(item: Typed) -> Typed:
    return Typed(GenericAlias(list, (item.annotation,)), st.lists(item.values, max_size=4))


def _tuple(item: Typed) -> Typed:
    return Typed(GenericAlias(tuple, (item.annotation, int)), st.tuples(item.values, st.integers()))


def _collection(item: Typed) -> Typed:
    return Typed(GenericAlias(Collection, (item.annotation,)), st.lists(item.values, max_size=4))


def _iterable(item: Typed) -> Typed:
    return Typed(GenericAlias(Iterable, (item.annotation,)), st.lists(item.values, max_size=4))


def _set(item: Typed) -> Typed:
    return Typed(GenericAlias(set, (item.annotation,)), st.sets(item.values, max_size=4))


def _frozenset(item: Typed) -> Typed:
    return Typed(GenericAlias(frozenset, (item.annotation,)), st.frozensets(item.values, max_size=4))


def _dict(item: Typed) -> Typed:
    return Typed(
        GenericAlias(dict, (int, item.annotation)), st.dictionaries(st.integers(), item.values, max_size=4)
    )


def _optional(item: Typed) -> Typed:
    return Typed(item.annotation | None, st.none() | item.values)


def _dataclass(item: Typed) -> Typed:
    record = make_dataclass("record", [("first", item.annotation), ("second", str)], frozen=True)
    return Typed(record, st.builds(record, item.values, text))


def _typed_dict(item: Typed) -> Typed:
    make: Any = TypedDict  # what the checkers refuse is a class without a name of its own
    record = make("record", {"first": item.annotation, "second": str})
    return Typed(record, st.fixed_dictionaries({"first": item.values, "second": text}))


def _named_tuple(item: Typed) -> Typed:
    make: Any = NamedTuple  # as above
    record = make("record", [("first", item.annotation), ("second", str)])
    return Typed(record, st.builds(record, item.values, text))


def _model(item: Typed) -> Typed:
    record = pydantic.create_model("record", first=(item.annotation, ...), second=(str, ""))
    return Typed(record, st.builds(record, first=item.values, second=text))


def _secret(item: Typed) -> Typed:
    return Typed(GenericAlias(Secret, (item.annotation,)), st.builds(Secret, item.values))


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
    return Typed(record, st.builds(record, item.values, text))


def _struct(item: Typed) -> Typed:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [("first", item.annotation), ("second", str, "")]
    record = msgspec.defstruct("record", fields, tag=True, rename="pascal")
    return Typed(record, st.builds(record, item.values, text))


def _discriminated(item: Typed) -> Typed:
    records = [
        make_dataclass(f"record_{tag}", [("value", item.annotation), ("tag", Literal[tag], tag)])
        for tag in ("a", "b")
    ]
    annotation = records[0] | records[1]
    return Typed(annotation, st.one_of([st.builds(one, item.values) for one in records]))


_shapes: list[Callable[[Typed], Typed]] = [
    *(_list, _tuple, _dict, _optional, _dataclass, _typed_dict, _named_tuple, _collection, _iterable),
    *(_deque, _generic, _attrs_class, _struct, _discriminated),
]
_shapes_of_scalars: list[Callable[[Typed], Typed]] = [_set, _frozenset, _secret]
"""Shapes around scalars: items of sets are hashable, and a secret of an optional type is optional itself."""
_scalars = st.sampled_from(SCALARS)
_of_models = st.sampled_from([one for one in SCALARS if one.annotation in _OF_MODELS])
_bytearray = Typed(bytearray, st.binary().map(bytearray))


def _make(
    shapes: list[Callable[[Typed], Typed]], items: st.SearchStrategy[Typed]
) -> st.SearchStrategy[Typed]:
    return st.builds(lambda shape, item: shape(item), st.sampled_from(shapes), items)


_leaves = st.one_of(
    _scalars, st.just(_bytearray), _make(_shapes_of_scalars, _scalars), _make([_model], _of_models)
)
types: st.SearchStrategy[Typed] = st.recursive(_leaves, lambda inner: _make(_shapes, inner), max_leaves=4)
"""Types with strategies of their values: scalars, and every nesting of containers around them."""
KINDS: Final[dict[str, st.SearchStrategy[Typed]]] = {
    **{str(one.annotation): st.just(one) for one in [*SCALARS, _bytearray]},
    **{shape.__name__: _make([shape], _scalars) for shape in [*_shapes, *_shapes_of_scalars]},
    _model.__name__: _make([_model], _of_models),
}
"""Every kind of type by name, each container around a scalar."""
