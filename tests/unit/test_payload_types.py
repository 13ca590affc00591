"""JSON of each type, its decoding, and refused values."""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict
from uuid import UUID

import pydantic
import pytest

from pyasynq._payload.compiler import Compiler, UnsupportedTypeError
from pyasynq._payload.converter import Mismatch
from pyasynq._payload.text import from_bytes, to_bytes

UserId = NewType("UserId", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Planet(enum.Enum):
    EARTH = (5.9, 6.3)
    MARS = (0.6, 3.3)


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Address:
    street: str
    since: date | None = None


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Squared:
    side: int
    area: int = field(init=False)

    def __post_init__(self) -> None:
        if self.side < 0:
            raise ValueError("a side cannot be negative")
        self.area = self.side**2


class Point(NamedTuple):
    x: float
    y: float = 0.0


class Person(TypedDict):
    name: str
    born: NotRequired[date]


class Order(pydantic.BaseModel):
    id: UUID
    due: datetime
    amount: Decimal = Decimal("1.50")


class StrictOrder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    due: datetime = pydantic.Field(alias="dueAt")


SOME_UUID = UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2026, 1, 2, 12, 0, 0, 5, tzinfo=UTC)

FORMS: list[tuple[Any, Any, str]] = [
    (int, 42, "42"),
    (str, "Grüße 🎈", '"Grüße 🎈"'),
    (float, 0.1, "0.1"),
    (bool, True, "true"),
    (None, None, "null"),
    (datetime, NOON, '"2026-01-02T12:00:00.000005+00:00"'),
    (datetime, datetime(2026, 1, 2, 3, 4), '"2026-01-02T03:04:00"'),  # noqa: DTZ001 - naive stays naive
    (date, date(2026, 1, 2), '"2026-01-02"'),
    (time, time(1, 2, 3, tzinfo=timezone(timedelta(hours=2))), '"01:02:03+02:00"'),
    (timedelta, timedelta(minutes=1, microseconds=1), "60.000001"),
    (UUID, SOME_UUID, '"12345678-1234-5678-1234-567812345678"'),
    (Decimal, Decimal("1.10"), '"1.10"'),
    (bytes, b"\x00\xff", '"AP8="'),
    (bytearray, bytearray(b"a"), '"YQ=="'),
    (Path, Path("/tmp/x"), '"/tmp/x"'),
    (Colour, Colour.BLUE, '"blue"'),
    (Level, Level.HIGH, "2"),
    (Planet, Planet.MARS, '"MARS"'),
    (Rights, Rights.READ | Rights.WRITE, "3"),
    (Literal["a", 1, False], 1, "1"),
    (Literal["a"] | None, None, "null"),
    (UserId, 7, "7"),
    (Annotated[int, "positive"], 7, "7"),
    (list[int], [1, 2], "[1,2]"),
    (list, [1, "a", None, {"b": 1.5}], '[1,"a",null,{"b":1.5}]'),
    (Sequence[date], [date(2026, 1, 2)], '["2026-01-02"]'),
    (tuple[int, str], (1, "a"), '[1,"a"]'),
    (tuple[int, ...], (1, 2, 3), "[1,2,3]"),
    (tuple[()], (), "[]"),
    (set[int], {10, 9, 1}, "[1,9,10]"),
    (frozenset[str], frozenset({"b", "a"}), '["a","b"]'),
    (set[Point], {Point(2.0), Point(1.0)}, '[{"x":1.0,"y":0.0},{"x":2.0,"y":0.0}]'),
    (dict[str, int], {"b": 1, "a": 2}, '{"a":2,"b":1}'),
    (dict[int, date], {2: date(2026, 1, 2)}, '{"2":"2026-01-02"}'),
    (dict[UUID, Colour], {SOME_UUID: Colour.RED}, f'{{"{SOME_UUID}":"red"}}'),
    (Mapping[Level, int], {Level.LOW: 5}, '{"1":5}'),
    (dict, {"b": [1], "a": {"d": 1, "c": 2}}, '{"a":{"c":2,"d":1},"b":[1]}'),
    (int | None, None, "null"),
    (int | str, "1", '"1"'),
    (int | float, 1, "1"),
    (int | float, 1.0, "1.0"),
    (bool | int, True, "true"),
    (datetime | None, NOON, '"2026-01-02T12:00:00.000005+00:00"'),
    (list[Address] | None, [Address("a")], '[{"street":"a","since":null}]'),
    (Address, Address("Main", date(2026, 1, 2)), '{"street":"Main","since":"2026-01-02"}'),
    (Tree, Tree("a", [Tree("b")]), '{"name":"a","children":[{"name":"b","children":[]}]}'),
    (Squared, Squared(3), '{"side":3}'),
    (Point, Point(1.0, 2.0), '{"x":1.0,"y":2.0}'),
    (Person, {"name": "Ada"}, '{"name":"Ada"}'),
    (Person, {"born": date(1815, 12, 10), "name": "Ada"}, '{"name":"Ada","born":"1815-12-10"}'),
    (
        Order,
        Order(id=SOME_UUID, due=NOON),
        f'{{"amount":"1.50","due":"2026-01-02T12:00:00.000005Z","id":"{SOME_UUID}"}}',
    ),
    (StrictOrder, StrictOrder(dueAt=NOON), '{"dueAt":"2026-01-02T12:00:00.000005Z"}'),
    (Any, {"z": [True, None], "a": 1}, '{"a":1,"z":[true,null]}'),
]


@pytest.mark.parametrize(("annotation", "value", "json"), FORMS)
def test_a_value_has_its_documented_json_and_comes_back_equal(annotation: Any, value: Any, json: str) -> None:
    """The table of docs/payloads.md, row by row; type and value survive."""
    converter = Compiler().compile(annotation)
    assert json == to_bytes(converter.encode(value)).decode()
    back = converter.decode(from_bytes(json.encode()))
    assert value == back
    assert type(value) is type(back)


@pytest.mark.parametrize(
    ("annotation", "json", "value"),
    [
        (float, "1", 1.0),
        (timedelta, "60", timedelta(minutes=1)),
        (Decimal, "3", Decimal(3)),
        (datetime, '"2026-01-02T12:00:00.123456789Z"', datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)),
        (Squared | None, '{"side":2}', Squared(2)),
        (Person, '{"name":"Ada","born":"1815-12-10"}', {"name": "Ada", "born": date(1815, 12, 10)}),
        (float | None, "2", 2.0),
    ],
)
def test_json_as_go_writes_it_is_read(annotation: Any, json: str, value: object) -> None:
    """Go writes 1.0 as 1 and times with nanoseconds and Z."""
    back = Compiler().compile(annotation).decode(from_bytes(json.encode()))
    assert value == back
    assert type(value) is type(back)


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, "1", "expected int, got str"),
        (str, 1, "expected str, got int"),
        (int, 1.0, "expected int, got float"),
        (bool, 1, "expected bool, got int"),
        (float, float("nan"), "expected a finite float; JSON has no infinity and no NaN"),
        (float, 10**400, "a whole number beyond its range"),
        (Decimal, Decimal("Infinity"), "expected a finite Decimal"),
        (date, NOON, "expected date, got datetime"),
        (timedelta, timedelta.max, "over 272 years"),
        (Any, {1: 2}, r"a key of type int; annotate it, as in dict\[int, str\]"),
        (Any, (1, 2), "JSON cannot carry tuple here without an annotation that names the type"),
        (Any, [NOON], "JSON cannot carry datetime"),
        (Any, float("inf"), "expected a finite number"),
        (list[int], (1,), r"expected list\[int\], got tuple"),
        (tuple[int, int], (1,), "got 1 items"),
        (int | None, "x", r"expected int \| None, got str"),
        (Literal[1], True, r"expected Literal\[1\], got bool"),
        (Colour, "red", "expected Colour, got str"),
        (Address, {"street": "a"}, "expected Address, got dict"),
        (Person, {}, "Person lacks the key 'name'"),
        (Person, {"name": "a", "age": 1}, "expected Person, got dict"),
        (Order, {}, "expected Order, got dict"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(annotation: Any, value: object, message: str) -> None:
    """The message says what was expected and of which type the value is."""
    with pytest.raises(Mismatch, match=message):
        Compiler().compile(annotation).encode(value)


@pytest.mark.parametrize(
    ("annotation", "json", "message"),
    [
        (int, '"secret"', "expected int, got text"),
        (int, "true", "expected int, got true or false"),
        (int, "1.5", "expected int, got a number"),
        (float, "1" + "0" * 400, "beyond its range"),
        (datetime, '"secret"', "expected datetime, got text that is none"),
        (UUID, '"secret"', "expected UUID"),
        (Decimal, '"NaN"', "expected Decimal"),
        (bytes, '"%"', "expected bytes"),
        (timedelta, "1e300", "more seconds than it can hold"),
        (Colour, '"secret"', "expected one of Colour"),
        (Planet, '"secret"', "expected one of Planet"),
        (Literal["a"], '"secret"', "expected Literal"),
        (list[int], "{}", r"expected list\[int\], got an object"),
        (dict[int, int], '{"secret":1}', "expected a whole number as key, got other text"),
        (tuple[int, int], "[1]", "got 1 items"),
        (set, "[[]]", "things that cannot be in a set"),
        (Address, "{}", "Address needs the field 'street'"),
        (Address, '{"street":"a","sinc":"2026"}', "no field 'sinc'; did you mean 'since'?"),
        (Squared, '{"side":-1}', r"Squared refused its fields: ValueError \[test_payload_types\.py:64\]"),
        (
            Order,
            '{"id":"secret","due":"2026-01-02T12:00:00Z"}',
            "Order refused it: id: Input should be a valid",
        ),
        (int | None, '"secret"', r"expected int \| None, got text"),
    ],
)
def test_json_that_does_not_fit_is_refused_without_showing_it(
    annotation: Any, json: str, message: str
) -> None:
    """Values of a payload may be secrets: they are in no message and no chained exception."""
    with pytest.raises(Mismatch, match=message) as caught:
        Compiler().compile(annotation).decode(from_bytes(json.encode()))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None or "secret" not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (list[Address], [Address("a"), Address(1)], "[1].street"),  # type: ignore[arg-type]
        (dict[str, list[int]], {"secret": [1, "x"]}, "[...][1]"),
        (Tree, Tree("a", [Tree("b", [3])]), ".children[0].children[0]"),  # type: ignore[list-item]
        (tuple[int, date], (1, 2), "[1]"),
    ],
)
def test_a_mismatch_says_where_in_the_argument_it_lies(annotation: Any, value: object, path: str) -> None:
    """Positions and declared field names, but no keys of mappings: those are data."""
    with pytest.raises(Mismatch) as caught:
        Compiler().compile(annotation).encode(value)
    assert path == caught.value.path


class Money:
    """A class that no converter knows."""


@dataclass
class Invoice:
    total: Money


@dataclass
class Keyed:
    key: InitVar[str]


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (
            Money,
            "JSON cannot carry Money; use a dataclass, a TypedDict or a NamedTuple, give the app a codec",
        ),
        (list[Money], "JSON cannot carry Money"),
        (Invoice, "in Invoice: JSON cannot carry Money"),
        (Keyed, "its InitVar 'key' cannot be read back"),
        (UUID | str, r"UUID and str of .* look the same in JSON"),
        (datetime | date | None, "look the same in JSON"),
        (Address | Person, "look the same in JSON"),
        (dict[float, int], "keys of a JSON object are text: float cannot be one"),
        (dict[Address, int], "Address cannot be one"),
        (Literal[b"a"], "annotate enums and bytes with their type"),
        (complex, "JSON cannot carry complex"),
        (Callable[[], int], "JSON cannot carry"),
        (type[int], "JSON cannot carry"),
        (typing.TypeVar("T"), "JSON cannot carry ~T"),
    ],
)
def test_a_type_without_json_is_refused_with_a_remedy(annotation: Any, message: str) -> None:
    """At declaration, long before a task is lost to it."""
    with pytest.raises(UnsupportedTypeError, match=message):
        Compiler().compile(annotation)


def test_text_of_an_enum_or_a_subclass_is_its_characters() -> None:
    """`str()` of such an enum may be its name."""

    class Mode(str, enum.Enum):  # noqa: UP042 - str() of a StrEnum would be its value
        FAST = "fast"

    assert '"fast"' == to_bytes(Compiler().compile(str).encode(Mode.FAST)).decode()
    assert "1" == to_bytes(Compiler().compile(int).encode(True)).decode()


def test_a_value_that_contains_itself_is_refused() -> None:
    """Instead of running out of stack."""
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises((Mismatch, RecursionError)):
        to_bytes(Compiler().compile(Any).encode(endless))


def test_text_that_utf8_cannot_carry_is_refused() -> None:
    """A lone surrogate has no UTF-8 form."""
    with pytest.raises(Mismatch, match="lone surrogate"):
        to_bytes("\ud800")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b'{"a":1} x', "it is not JSON: Extra data"),
        (b"\xff", "it is not UTF-8"),
        (b"[NaN]", "NaN or Infinity"),
        (b"[1e999]", "beyond the range of float"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5000, "more digits than Python reads"),
    ],
)
def test_bytes_that_are_not_a_single_json_value_are_refused(data: bytes, message: str) -> None:
    """The error tells the reason, and never shows the bytes."""
    with pytest.raises(Mismatch, match=message):
        from_bytes(data)


def test_blanks_around_a_payload_do_no_harm() -> None:
    """Other producers may write them."""
    assert {"a": 1} == from_bytes(b' \n{"a": 1}\n')
