"""The JSON Schema of a payload: valid, and true of what is written."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any

import jsonschema
import pydantic
import pytest

from pyasynq import App, ConfigurationError, Secret
from pyasynq._payload.compiler import Compiler
from pyasynq._payload.converter import Mismatch
from pyasynq._payload.schema import Definitions, secret_paths
from pyasynq._payload.text import from_bytes, to_bytes
from tests.unit.test_payload_types import FORMS


@dataclass
class Card:
    number: Secret[str]
    month: int = 1


@dataclass
class Branch:
    name: str
    keys: list[Secret[int]] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)


class Money(pydantic.BaseModel):
    amount: int
    currency: Currency


class Currency(pydantic.BaseModel):
    code: str


def schema_of(annotation: Any) -> dict[str, Any]:
    """Return the schema of a type with its definitions."""
    definitions = Definitions()
    schema = Compiler().compile(annotation).describe(definitions)
    return {**schema, "$defs": definitions.schemas}


@pytest.mark.parametrize(("annotation", "value", "text"), FORMS)
def test_the_schema_of_a_type_is_valid_and_holds_for_its_json(annotation: Any, value: Any, text: str) -> None:
    """Each type of the table in docs/payloads.md."""
    schema = schema_of(annotation)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int, '"1"'),
        (list[int], '["a"]'),
        (tuple[int, str], "[1]"),
        (tuple[int, str], '[1,"a",2]'),
        (set[int], "[1,1]"),
        (dict[int, str], '{"a":"b"}'),
        (dict[str, int], '{"a":"b"}'),
        (int | None, '"a"'),
        (Card, '{"number":"1","day":1}'),
        (Card, '{"month":1}'),
        (Branch, '{"name":"a","branches":[{"name":1}]}'),
        (Money, '{"amount":1,"currency":{"code":1}}'),
        (Annotated[int, pydantic.Field(gt=0)], "0"),
        (Annotated[str, pydantic.Field(max_length=2)], '"abc"'),
    ],
)
def test_the_schema_of_a_type_refuses_other_json(annotation: Any, text: str) -> None:
    """Nested types and constraints included."""
    assert not jsonschema.Draft202012Validator(schema_of(annotation)).is_valid(json.loads(text))


def test_the_schema_of_a_task_names_arguments_defaults_and_summary() -> None:
    """Arguments with a default are not required."""
    app = App()

    @app.task("mail:deliver")
    async def deliver(user_id: int, wait: timedelta = timedelta(minutes=1)) -> None:
        """Deliver one message.

        To a user.
        """

    expected = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mail:deliver",
        "description": "Deliver one message.",
        "type": "object",
        "properties": {
            "user_id": {"type": "integer"},
            "wait": {"type": "number", "description": "duration in seconds", "default": 60.0},
        },
        "required": ["user_id"],
        "additionalProperties": False,
    }
    assert expected == deliver.schema()


def test_two_types_of_one_name_have_two_definitions() -> None:
    """The second is called by its module as well."""

    def other() -> type:
        @dataclass
        class Card:
            colour: str

        return Card

    schema = schema_of(dict[str, Card])
    definitions = Definitions()
    compiler = Compiler()
    refs = [compiler.compile(one).describe(definitions)["$ref"] for one in (Card, other(), Card)]
    assert refs[0] == refs[2] != refs[1]
    assert {"Card"} == schema["$defs"].keys()


def test_secrets_are_named_by_their_paths() -> None:
    """In records, lists, and types that contain themselves."""
    app = App()

    @app.task("pay")
    async def pay(
        card: Card,
        token: Secret[str] | None,
        root: Branch,
        pin: Secret[int] = Secret(1234),  # noqa: B008
    ) -> None: ...

    schema = pay.schema()
    assert ("card.number", "pin", "root.keys[]", "token") == secret_paths(schema)
    assert "1234" not in json.dumps(schema)


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (Secret[str], Secret("hunter2"), '"hunter2"'),
        (Secret[int] | None, Secret(7), "7"),
        (Secret[int] | None, None, "null"),
        (Secret, Secret({"a": [1]}), '{"a":[1]}'),
        (list[Secret[Card]], [Secret(Card(Secret("1")))], '[{"number":"1","month":1}]'),
    ],
)
def test_a_secret_travels_as_its_value(annotation: Any, value: Any, text: str) -> None:
    """The payload holds the plain value of a `Secret`, which Go can read."""
    converter = Compiler().compile(annotation)
    assert text == to_bytes(converter.encode(value)).decode()
    assert value == converter.decode(from_bytes(text.encode()))


@pytest.mark.parametrize(
    "annotation",
    [Secret[str], Secret, Secret[int] | None, list[Secret[str]], dict[str, Card], Awaitable[Branch]],
    ids=str,
)
def test_a_result_holds_no_secret(annotation: Any) -> None:
    """Tools show results, and know nothing of the secrets in them: the declaration is refused."""

    async def log_in(password: Secret[str]) -> Any: ...

    log_in.__annotations__["return"] = annotation
    with pytest.raises(ConfigurationError, match=r"return annotation: .*; return an id that leads"):
        App().task("log-in")(log_in)


@pytest.mark.parametrize("value", ["hunter2", Secret(b"hunter2"), 5])
def test_a_value_that_is_not_a_secret_is_refused_without_showing_it(value: Any) -> None:
    """The error tells the types alone."""
    with pytest.raises(Mismatch, match=r"expected Secret\[str\]") as caught:
        Compiler().compile(Secret[str]).encode(value)
    assert "hunter2" not in str(caught.value)


def test_a_secret_is_shown_nowhere() -> None:
    """Neither by repr, str and formatting, nor by the repr of what holds it; and it is not pickled."""
    secret = Secret("hunter2")
    shown = f"{secret!r} {secret!s} {secret} {Card(secret)!r} {[secret]}"
    assert "hunter2" not in shown
    assert "hunter2" == secret.reveal()
    with pytest.raises(TypeError, match="not pickled"):
        secret.__reduce__()


def test_secrets_compare_by_their_values() -> None:
    """A secret equals no bare value."""
    assert Secret("a") == Secret("a")
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert not Secret("")
