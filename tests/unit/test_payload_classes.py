"""JSON of classes and types beyond the simple ones: generic, tagged, of other libraries, with own codecs."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_interface,
)
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import attrs
import jsonschema
import msgspec
import pydantic
import pytest

from pyasynq import App, Secret
from pyasynq._payload.compiler import Compiler, UnsupportedTypeError
from pyasynq._payload.converter import Mismatch
from pyasynq._payload.schema import Definitions
from pyasynq._payload.text import from_bytes, to_bytes
from pyasynq.errors import ConfigurationError, PayloadDecodingError, PayloadEncodingError

T = TypeVar("T")
K = TypeVar("K")


@dataclass
class Page(Generic[T]):
    items: list[T]
    next: T | None = None


@dataclass
class Labelled(Page[T], Generic[T, K]):
    label: K | None = None


@dataclass
class Dates(Page[date]):
    year: int = 2026


@dataclass
class Node(Generic[T]):
    value: T
    below: list[Node[T]]


class Pair(NamedTuple, Generic[T]):
    first: T
    second: T


class Box(TypedDict, Generic[T]):
    content: T


class NamedBox(Box[T], Generic[T]):
    name: str


@dataclass
class ByCard:
    number: str
    kind: Literal["card"] = "card"


@dataclass
class ByInvoice:
    days: int
    kind: Literal["invoice", "bill"] = "invoice"


class ByVoucher(pydantic.BaseModel):
    kind: Literal["voucher"] = "voucher"
    code: str


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class ByHand(TypedDict):
    kind: Literal["hand"]
    clerk: str


@attrs.define
class Parcel:
    weight: int = attrs.field()
    _label: str = "none"
    sent: date | None = attrs.field(default=None, kw_only=True)
    volume: int = attrs.field(init=False, default=3)

    @weight.validator
    def _check(self, _attribute: Any, value: int) -> None:
        if value < 0:
            raise ValueError("a weight cannot be negative")


class Letter(msgspec.Struct, rename="camel"):
    sent_to: str
    sent_on: date | None = None


class Circle(msgspec.Struct, tag=True):
    radius: int


class Square(msgspec.Struct, tag=True):
    side: int


FORMS: list[tuple[Any, Any, str]] = [
    (IPv4Address, IPv4Address("10.0.0.1"), '"10.0.0.1"'),
    (IPv6Address, IPv6Address("::1"), '"::1"'),
    (IPv4Network, IPv4Network("10.0.0.0/8"), '"10.0.0.0/8"'),
    (IPv6Network, IPv6Network("fe80::/10"), '"fe80::/10"'),
    (IPv4Interface, IPv4Interface("10.0.0.1/8"), '"10.0.0.1/8"'),
    (deque[date], deque([date(2026, 1, 2)]), '["2026-01-02"]'),
    (Collection[int], [2, 1], "[2,1]"),
    (Iterable[int], [2, 1], "[2,1]"),
    (Page[int], Page([1], 2), '{"items":[1],"next":2}'),
    (Page[date], Page([date(2026, 1, 2)]), '{"items":["2026-01-02"],"next":null}'),
    (Page, Page(["a", 1]), '{"items":["a",1],"next":null}'),
    (
        Labelled[date, int],
        Labelled([date(2026, 1, 2)], None, 7),
        '{"items":["2026-01-02"],"next":null,"label":7}',
    ),
    (Dates, Dates([date(2026, 1, 2)]), '{"items":["2026-01-02"],"next":null,"year":2026}'),
    (
        Node[date],
        Node(date(2026, 1, 2), [Node(date(2026, 1, 3), [])]),
        '{"value":"2026-01-02","below":[{"value":"2026-01-03","below":[]}]}',
    ),
    (list[Page[int]], [Page([1])], '[{"items":[1],"next":null}]'),
    (Pair[date], Pair(date(2026, 1, 2), date(2026, 1, 3)), '{"first":"2026-01-02","second":"2026-01-03"}'),
    (Box[date], {"content": date(2026, 1, 2)}, '{"content":"2026-01-02"}'),
    (NamedBox[date], {"content": date(2026, 1, 2), "name": "a"}, '{"content":"2026-01-02","name":"a"}'),
    (ByCard | ByInvoice, ByInvoice(3), '{"days":3,"kind":"invoice"}'),
    (ByCard | ByInvoice | None, ByCard("4711"), '{"number":"4711","kind":"card"}'),
    (ByCard | ByVoucher | ByHand, ByVoucher(code="x"), '{"code":"x","kind":"voucher"}'),
    (ByCard | ByVoucher | ByHand, {"kind": "hand", "clerk": "Ada"}, '{"kind":"hand","clerk":"Ada"}'),
    (
        Annotated[Cat | Dog, pydantic.Field(discriminator="kind")],
        Dog(kind="dog", tricks=["sit"]),
        '{"kind":"dog","tricks":["sit"]}',
    ),
    (Parcel, Parcel(5, "a", sent=date(2026, 1, 2)), '{"weight":5,"label":"a","sent":"2026-01-02"}'),
    (Letter, Letter("Ada", date(2026, 1, 2)), '{"sentTo":"Ada","sentOn":"2026-01-02"}'),
    (Circle | Square, Square(2), '{"type":"Square","side":2}'),
    (pydantic.EmailStr, "ada@example.org", '"ada@example.org"'),
    (pydantic.HttpUrl, pydantic.HttpUrl("https://example.org/a"), '"https://example.org/a"'),
    (pydantic.HttpUrl | None, None, "null"),
    (pydantic.IPvAnyAddress, IPv4Address("10.0.0.1"), '"10.0.0.1"'),
]


@pytest.mark.parametrize(("annotation", "value", "text"), FORMS)
def test_a_value_has_its_documented_json_and_comes_back_equal(annotation: Any, value: Any, text: str) -> None:
    """Type and value survive, and the schema holds for the JSON."""
    converter = Compiler().compile(annotation)
    encoded = to_bytes(converter.encode(value)).decode()
    assert json.loads(text) == json.loads(encoded)
    back = converter.decode(from_bytes(encoded.encode()))
    assert value == back
    assert type(value) is type(back)
    definitions = Definitions()
    schema = {**converter.describe(definitions), "$defs": definitions.schemas}
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def test_a_time_zone_is_written_by_its_name() -> None:
    """Zones are equal only if they are the same object, which the cache of `zoneinfo` decides."""
    converter = Compiler().compile(ZoneInfo)
    assert "Europe/Berlin" == converter.encode(ZoneInfo("Europe/Berlin"))
    assert "Europe/Berlin" == converter.decode("Europe/Berlin").key


def test_what_is_not_a_list_comes_out_as_one() -> None:
    """Collections and iterables of any kind; sets in a fixed order."""
    for annotation, value in (
        (Collection[int], {3, 1, 2}),
        (Iterable[int], iter([1, 2, 3])),
        (Iterable[int], (1, 2, 3)),
    ):
        converter = Compiler().compile(annotation)
        assert [1, 2, 3] == converter.decode(converter.encode(value))


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (IPv4Address, ip_interface("10.0.0.1/8"), "expected IPv4Address, got IPv4Interface"),
        (deque[int], deque([1], maxlen=2), "without maxlen"),
        (Collection[int], "text", r"expected Collection\[int\], got str"),
        (Iterable[int], {1: 2}, r"expected Iterable\[int\], got dict"),
        (Page[int], Page(["x"]), "expected int, got str"),
        (ByCard | ByInvoice, ByVoucher(code="x"), r"expected ByCard \| ByInvoice, got ByVoucher"),
        (Parcel, Page([1]), "expected Parcel, got Page"),
        (pydantic.EmailStr, "nobody", "EmailStr refused it"),
        (pydantic.EmailStr, "Ada@EXAMPLE.org", "one that it changes"),
        (pydantic.HttpUrl, "https://example.org", "one that it changes"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(annotation: Any, value: object, message: str) -> None:
    """As for other types; nothing is changed silently."""
    with pytest.raises(Mismatch, match=message):
        Compiler().compile(annotation).encode(value)


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        (IPv4Address, '"secret"', "expected IPv4Address, got text that is none"),
        (ZoneInfo, '"../../etc/passwd"', "expected ZoneInfo, got text that is none"),
        (ZoneInfo, '"Europe"', "expected ZoneInfo, got text that is none"),
        (ZoneInfo, '"Secret/Nowhere"', "expected ZoneInfo, got text that is none"),
        (
            ByCard | ByInvoice,
            '{"kind":"secret"}',
            "whose field 'kind' is one of 'card', 'invoice', 'bill'|'invoice'",
        ),
        (ByCard | ByInvoice, '{"kind":["secret"]}', "whose field 'kind' is one of"),
        (ByCard | ByInvoice, "{}", "whose field 'kind' is one of"),
        (Parcel, '{"weight":-1}', "Parcel refused its fields: ValueError"),
        (Parcel, "{}", "Parcel needs the field 'weight'"),
        (Letter, '{"sent_to":"secret"}', "no field 'sent_to'"),
        (Circle, '{"type":"Square","radius":1}', "expected Literal"),
        (pydantic.EmailStr, '"secret"', "EmailStr refused it"),
    ],
)
def test_json_that_does_not_fit_is_refused_without_showing_it(
    annotation: Any, text: str, message: str
) -> None:
    """Values of a payload may be secrets."""
    with pytest.raises(Mismatch, match=message) as caught:
        Compiler().compile(annotation).decode(from_bytes(text.encode()))
    assert "secret" not in str(caught.value).lower()


class Flat(msgspec.Struct, array_like=True):
    x: int


@dataclass
class Untagged:
    kind: Literal["card"]


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (ByCard | Untagged, "ByCard and Untagged of .* look the same in JSON"),
        (ByCard | Page[int], "look the same in JSON"),
        (Cat | dict[str, int], "look the same in JSON"),
        (Flat, "array_like leaves out the names"),
        (pydantic.SecretStr, "annotate the parameter as pyasynq.Secret"),
        (Page[complex], r"in Page\[complex\]: JSON cannot carry complex; .* app.type_codec"),
    ],
)
def test_a_type_that_cannot_come_back_is_refused_at_the_declaration(annotation: Any, message: str) -> None:
    """The message says what to do instead."""
    with pytest.raises(UnsupportedTypeError, match=message):
        Compiler().compile(annotation)


def test_secrets_in_generic_classes_are_published() -> None:
    """Tools hide them, whatever the class is called."""
    app = App("redis://localhost:1")

    @app.task("vault")
    async def store(page: Page[Secret[str]]) -> None: ...

    assert ("page.items[]", "page.next") == next(iter(app.describe_types())).secrets


@dataclass(frozen=True)
class Money:
    cents: int
    currency: str


def parse(text: str) -> Money:
    """Read `1250 EUR`."""
    cents, currency = text.split()
    return Money(int(cents), currency)


class Mass:
    """A class that no converter knows."""

    def __init__(self, grams: int) -> None:
        self.grams = grams


def make_app() -> App:
    """Return an app with a codec."""
    app = App("redis://localhost:1")
    app.type_codec(
        Money,
        encode=lambda money: f"{money.cents} {money.currency}",
        decode=parse,
        schema={"type": "string", "pattern": "^[0-9]+ [A-Z]{3}$"},
    )
    return app


def test_a_codec_of_the_app_carries_a_type() -> None:
    """In arguments, in containers, as an optional value, and as a result."""
    app = make_app()

    @app.task("pay")
    async def pay(amount: Money, tip: Money | None = None, parts: list[Money] | None = None) -> Money:
        return amount

    task = pay.task(Money(1250, "EUR"), parts=[Money(5, "USD")])
    assert b'{"amount":"1250 EUR","tip":null,"parts":["5 USD"]}' == task.payload
    assert {"type": "string", "pattern": "^[0-9]+ [A-Z]{3}$"} == pay.schema()["properties"]["amount"]


def test_what_a_codec_raises_is_told_without_the_value() -> None:
    """By the class of the error and its line; both ways."""
    app = make_app()
    app.type_codec(Mass, encode=lambda mass: {"grams": mass.grams}["secret"], decode=lambda value: value)

    @app.task("send")
    async def send(mass: Mass) -> None: ...

    @app.task("pay")
    async def pay(amount: Money) -> None: ...

    with pytest.raises(
        PayloadEncodingError, match=r"Mass cannot be encoded: KeyError \[test_payload_classes"
    ):
        send.task(Mass(3))
    with pytest.raises(PayloadDecodingError, match=r"its codec refuses: ValueError") as caught:
        pay._declaration.arguments.decode(b'{"amount":"secret"}')
    assert "secret" not in str(caught.value)
    with pytest.raises(PayloadDecodingError, match="the codec of Mass returned str"):
        send._declaration.arguments.decode(b'{"mass":"secret"}')


def test_none_of_a_codec_is_refused() -> None:
    """It stands for a missing value."""
    app = App("redis://localhost:1")
    app.type_codec(Mass, encode=lambda mass: None, decode=lambda value: Mass(0))

    @app.task("send")
    async def send(mass: Mass | None) -> None: ...

    assert b'{"mass":null}' == send.task(None).payload
    with pytest.raises(PayloadEncodingError, match="returned None"):
        send.task(Mass(3))


def test_a_type_has_one_codec() -> None:
    """A second one would change what waits in the queues."""
    app = make_app()
    with pytest.raises(ConfigurationError, match="Money has a codec already"):
        app.type_codec(Money, encode=str, decode=parse)
    with pytest.raises(ConfigurationError, match="give a class"):
        app.type_codec("Money", encode=str, decode=parse)  # type: ignore[arg-type]


# Subclasses.


@dataclass
class Address:
    city: str


@dataclass
class HomeAddress(Address):
    def title(self) -> str:
        """Add behaviour alone."""
        return f"home in {self.city}"


@dataclass
class FarAddress(Address):
    country: str = "?"


@attrs.define
class Crate:
    size: int


@attrs.define
class SmallCrate(Crate): ...


@attrs.define
class LabelledCrate(Crate):
    label: str = "?"


class Shape(msgspec.Struct):
    name: str


class RoundShape(Shape): ...


class LargeShape(Shape):
    size: int = 1


class Pet(pydantic.BaseModel):
    name: str


class LoudPet(Pet): ...


class OldPet(Pet):
    age: int = 9


@pydantic.dataclasses.dataclass
class Plant:
    name: str


@pydantic.dataclasses.dataclass
class Tree(Plant): ...


@pydantic.dataclasses.dataclass
class TallTree(Plant):
    height: int = 9


class Pairs(NamedTuple):
    left: int


class NamedPairs(Pairs):
    def title(self) -> str:
        """Add behaviour alone."""
        return str(self.left)


@pytest.mark.parametrize("annotation", ["{}", "{} | None", "list[{}]"])
@pytest.mark.parametrize(
    ("base", "value", "text"),
    [
        (Address, HomeAddress("Rome"), '{"city":"Rome"}'),
        (Crate, SmallCrate(3), '{"size":3}'),
        (Shape, RoundShape("a"), '{"name":"a"}'),
        (Pet, LoudPet(name="Rex"), '{"name":"Rex"}'),
        (Plant, Tree(name="oak"), '{"name":"oak"}'),
        (Pairs, NamedPairs(1), '{"left":1}'),
    ],
)
def test_a_subclass_without_fields_of_its_own_travels_as_its_base(
    annotation: str, base: Any, value: Any, text: str
) -> None:
    """It arrives as the class that is annotated, as subclasses of `str` and `int` do."""
    converter = Compiler().compile({"{}": base, "{} | None": base | None, "list[{}]": list[base]}[annotation])
    is_list = annotation == "list[{}]"
    encoded = to_bytes(converter.encode([value] if is_list else value)).decode()
    assert (f"[{text}]" if is_list else text) == encoded
    decoded = converter.decode(from_bytes(encoded.encode()))
    assert base is type(decoded[0] if is_list else decoded)


@pytest.mark.parametrize(
    ("base", "value", "field"),
    [
        (Address, FarAddress("Rome", "IT"), "country"),
        (Crate, LabelledCrate(3, "x"), "label"),
        (Shape, LargeShape("a"), "size"),
        (Pet, OldPet(name="Rex"), "age"),
        (Plant, TallTree(name="oak"), "height"),
    ],
)
def test_a_subclass_with_fields_of_its_own_is_refused_with_a_remedy(
    base: Any, value: Any, field: str
) -> None:
    """These fields would be lost. The remedy is also told where the base is optional."""
    remedy = f"whose field '{field}' would be lost; .*union with a tag, or .* app.type_codec"
    for annotation in (base, base | None):
        with pytest.raises(Mismatch, match=f"expected {base.__name__}, got {type(value).__name__}, {remedy}"):
            Compiler().compile(annotation).encode(value)
    with pytest.raises(Mismatch, match=f"expected {base.__name__}, got int$"):
        Compiler().compile(base).encode(1)


@dataclass
class Animal:
    kind: Literal["animal"] = "animal"


@dataclass
class Bird(Animal):
    kind: Literal["bird"] = "bird"  # type: ignore[assignment]


@dataclass
class Duck(Bird): ...


@pytest.mark.parametrize("value", [Bird(), Duck()])
def test_a_member_of_a_union_is_chosen_by_its_nearest_base(value: Any) -> None:
    """Its exact class, or the first of its bases; not the first member that would take it."""
    converter = Compiler().compile(Animal | Bird)
    encoded = converter.encode(value)
    assert {"kind": "bird"} == encoded
    assert Bird() == converter.decode(encoded)


class Numbered(pydantic.BaseModel):
    _seen: int = pydantic.PrivateAttr(0)
    name: str


class Counted(Numbered): ...


def test_a_subclass_of_a_model_is_compared_after_a_round_trip() -> None:
    """As the model itself: values that are not fields would be lost."""
    value = Counted(name="a")
    assert {"name": "a"} == Compiler().compile(Numbered).encode(value)
    value._seen = 5
    with pytest.raises(Mismatch, match="values that are not fields would be lost"):
        Compiler().compile(Numbered).encode(value)


class Order(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(gt=0)]
    code: Annotated[str, msgspec.Meta(pattern="^[A-Z]+$")] = "A"
    lines: Annotated[list[Circle], msgspec.Meta(max_length=1)] = []
    at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    note: Annotated[str, msgspec.Meta(description="for people")] = ""
    price: Annotated[Decimal | None, msgspec.Meta(title="Price")] = None


@pytest.mark.parametrize(
    ("value", "text", "complaint"),
    [
        (Order(0), '{"count":0}', "Expected `int` >= 1"),
        (Order(1, "a"), '{"count":1,"code":"a"}', "matching regex"),
        (
            Order(1, lines=[Circle(1), Circle(2)]),
            '{"count":1,"lines":[{"type":"Circle","radius":1},{"type":"Circle","radius":2}]}',
            "length <= 1",
        ),
        (Order(1, at=datetime(2026, 1, 1)), '{"count":1,"at":"2026-01-01T00:00:00"}', "timezone"),  # noqa: DTZ001
    ],
)
def test_constraints_of_msgspec_are_enforced(value: Order, text: str, complaint: str) -> None:
    """At enqueue and in the worker, as msgspec itself does in its decoders alone."""
    converter = Compiler().compile(Order)
    with pytest.raises(Mismatch, match=complaint):
        converter.encode(value)
    with pytest.raises(Mismatch, match=complaint):
        converter.decode(json.loads(text))


def test_what_fits_the_constraints_of_msgspec_travels() -> None:
    """Also a subclass of text, and items that msgspec does not know; a description constrains nothing."""

    class Code(str):
        __slots__ = ()

    value = Order(1, Code("AB"), [Circle(1)], datetime(2026, 1, 1, tzinfo=UTC), "n", Decimal("1.5"))
    converter = Compiler().compile(Order)
    assert value == converter.decode(from_bytes(to_bytes(converter.encode(value))))
    some = Compiler().compile(Annotated[list[Path], msgspec.Meta(min_length=1)] | None)
    assert [Path("a")] == some.decode(some.encode([Path("a")]))


def test_a_schema_has_the_constraints_of_msgspec() -> None:
    """Forms and other languages see them."""
    definitions = Definitions()
    Compiler().compile(Order).describe(definitions)
    fields = definitions.schemas["Order"]["properties"]
    assert {"type": "integer", "exclusiveMinimum": 0} == fields["count"]
    assert (1, "^[A-Z]+$") == (fields["lines"]["maxItems"], fields["code"]["pattern"])


def test_a_constraint_that_msgspec_does_not_have_for_a_type_is_refused() -> None:
    """It would be enforced nowhere."""
    with pytest.raises(UnsupportedTypeError, match="msgspec has no such constraint for this type"):
        Compiler().compile(Annotated[date, msgspec.Meta(gt=0)])
