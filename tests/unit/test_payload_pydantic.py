"""A pydantic type is carried and its rules enforced, or it is refused; no value is changed silently."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import UUID

import annotated_types
import pydantic
import pydantic.dataclasses
import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretBytes, SecretStr

from pyasynq import App
from pyasynq._payload import ArgumentsCodec
from pyasynq.errors import ConfigurationError, PayloadDecodingError, PayloadEncodingError

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "hunter2"


def codec_of(annotation: Any) -> ArgumentsCodec:
    """Return what brings calls of a handler with one parameter of this type to payloads and back."""

    def handler(argument: Any) -> None:
        del argument

    return ArgumentsCodec(handler, {"argument": annotation}, owner="task 't'")


class Login(BaseModel):
    password: SecretStr


class Key(BaseModel):
    data: list[SecretBytes | None]


class Card(BaseModel):
    number: pydantic.Secret[int]


class Hidden(BaseModel):
    shown: int
    hidden: int = Field(default=1, exclude=True)


class Outer(BaseModel):
    inner: dict[str, Hidden | None]


@dataclass
class Holder:
    login: Login


class Through(BaseModel):
    holder: Holder


class ReadOnlyAlias(BaseModel):
    name: str = Field(default="", validation_alias="fullName")


class WriteOnlyAlias(BaseModel):
    name: str = Field(default="", serialization_alias="fullName")


@pydantic.dataclasses.dataclass
class HiddenField:
    shown: int
    hidden: int = Field(default=1, exclude=True)


@dataclass
class PlainConstraint:
    count: Annotated[int, Field(gt=0, exclude=True)]


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (SecretStr, "JSON cannot carry SecretStr"),
        (Login, "Login: its field 'password' holds SecretStr, which is written as asterisks"),
        (list[Login | None], "holds SecretStr"),
        (Key, "'data' holds SecretBytes"),
        (Card, "'number' holds Secret"),
        (Through, "holds SecretStr"),
        (Hidden, "Hidden: its field 'hidden' has exclude=True, and would arrive as its default"),
        (Outer, "'hidden' has exclude=True"),
        (HiddenField, "'hidden' has exclude=True"),
        (ReadOnlyAlias, "'name' is written by a name under which it is not read"),
        (WriteOnlyAlias, "'name' is written by a name under which it is not read"),
        (Annotated[int, Field(default=3)], "nothing would heed FieldInfo here"),
        (Annotated[int, Field(alias="x")], "nothing would heed FieldInfo here"),
        (Annotated[int, pydantic.PlainSerializer(str)], "nothing would heed PlainSerializer here"),
        (Annotated[int, pydantic.Discriminator("kind")], "pydantic cannot enforce it"),
        (PlainConstraint, "in PlainConstraint: .*nothing would heed FieldInfo here"),
    ],
    ids=str,
)
def test_what_would_arrive_changed_is_refused_at_the_declaration(annotation: Any, message: str) -> None:
    """The error names the field and says why. (D10)"""

    def handler(argument: Any) -> None:
        del argument

    handler.__annotations__ = {"argument": annotation, "return": None}
    with pytest.raises(ConfigurationError, match=message):
        App("redis://127.0.0.1:1").task("t")(handler)


class Written(BaseModel):
    """Has a serializer, so the secret is in the payload because somebody wants that."""

    password: SecretStr

    @pydantic.field_serializer("password", when_used="json")
    def write(self, value: SecretStr) -> str:
        """Write the secret itself."""
        return value.get_secret_value()


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    first: int = Field(alias="First")
    second: int = Field(default=0, validation_alias=pydantic.AliasChoices("Second", "second"))
    third: int = Field(default=0, validation_alias="Third")


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        """Is not a field."""
        return self.width**2


@pydantic.dataclasses.dataclass
class Size:
    width: Annotated[int, Field(gt=0)]
    unit: str = Field(default="cm", alias="unitName")


class Positive(NamedTuple):
    number: pydantic.PositiveInt


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Written, Written(password=SecretStr(SECRET))),
        (Aliased, Aliased(First=1, Second=2, Third=3)),  # type: ignore[call-arg]
        (Computed, Computed(width=2)),
        (Size, Size(2, unitName="m")),
        (Positive, Positive(1)),
        (pydantic.PositiveInt, 1),
        (Annotated[int, Field(gt=0)] | None, 1),
        (Annotated[int, Field(gt=0)] | None, None),
        (list[Annotated[str, Field(max_length=3)]], ["abc"]),
        (dict[Annotated[str, Field(pattern="^a")], pydantic.NonNegativeFloat], {"a": 1.0}),
        (Annotated[datetime, Field(ge=datetime(2026, 1, 1))], datetime(2026, 1, 2)),  # noqa: DTZ001
        (Annotated[Decimal, annotated_types.Ge(1)], Decimal("1.10")),
        (Annotated[int, Field(description="of items")], 0),
        (Annotated[int, "a word for people"], 0),
    ],
    ids=str,
)
def test_what_pydantic_can_carry_comes_back_equal(annotation: Any, value: Any) -> None:
    """Aliases, computed fields, serializers of the user's, constraints that hold. (D10)"""
    codec = codec_of(annotation)
    assert {"argument": value} == codec.decode(codec.encode((value,), {}))


@pytest.mark.parametrize(
    ("annotation", "value", "json"),
    [
        (Annotated[int, Field(gt=0)], -1, "-1"),
        (Annotated[int, Field(gt=0)] | None, -1, "-1"),
        (pydantic.PositiveInt, 0, "0"),
        (Annotated[int, annotated_types.Gt(0)], 0, "0"),
        (list[Annotated[str, Field(max_length=3)]], [SECRET], f'["{SECRET}"]'),
        (Annotated[list[int], Field(max_length=1)], [1, 2], "[1,2]"),
        (Annotated[float, annotated_types.MultipleOf(2)], 1.0, "1"),
        (Positive, Positive(0), '{"number":0}'),
    ],
    ids=str,
)
def test_constraints_in_annotated_hold_on_both_sides(annotation: Any, value: Any, json: str) -> None:
    """A producer that did not check and one in another language are refused alike, without the value.

    Defect D10.
    """
    codec = codec_of(annotation)
    with pytest.raises(PayloadEncodingError, match="refused it: value: ") as refused:
        codec.encode((value,), {})
    with pytest.raises(PayloadDecodingError, match="refused it: value: ") as unreadable:
        codec.decode(f'{{"argument":{json}}}'.encode())
    assert SECRET not in str(refused.value) + str(unreadable.value)


class Doubled(BaseModel):
    count: Annotated[int, pydantic.AfterValidator(lambda value: value * 2)]


class Base(BaseModel):
    name: str


class Derived(Base):
    more: int


class HoldsBase(BaseModel):
    base: Base


class Ambiguous(BaseModel):
    value: UUID | str


class Infinite(BaseModel):
    number: float


class Remembering(BaseModel):
    name: str
    _cache: int = pydantic.PrivateAttr(default=0)


def remembering() -> Remembering:
    """Return a model that has put something into a private attribute."""
    model = Remembering(name="a")
    model._cache = 3
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Doubled(count=1), "Doubled would not come back as it was: 'count' would differ"),
        (lambda: HoldsBase(base=Derived(name=SECRET, more=1)), "'base' would differ"),
        (lambda: Ambiguous.model_construct(value=str(UUID(int=0))), "'value' would differ"),
        (lambda: Infinite(number=float("inf")), "JSON has no infinity"),
        (lambda: Base.model_construct(name=3), "Base refused it: name: "),
        (lambda: Base.model_construct(name=object()), "Base cannot be written as JSON: Pydantic"),
        (remembering, "values that are not fields would be lost"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_model_that_would_arrive_changed_is_refused_when_it_is_sent(
    make: Callable[[], BaseModel], message: str
) -> None:
    """A loss that no declaration shows is found by reading the payload back before it is sent. (D10)"""
    value = make()
    with pytest.raises(PayloadEncodingError, match=message) as refused:
        codec_of(type(value)).encode((value,), {})
    assert SECRET not in str(refused.value)


def test_a_validator_that_changes_a_parameter_is_refused() -> None:
    """The handler would get another value than was sent, or another one on each way. (D10)"""
    codec = codec_of(Annotated[str, pydantic.AfterValidator(str.strip)])
    assert b'{"argument":"a"}' == codec.encode(("a",), {})
    with pytest.raises(PayloadEncodingError, match="expected str as its validators leave it"):
        codec.encode((" a ",), {})
