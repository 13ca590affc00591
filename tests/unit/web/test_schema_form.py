"""Fields from JSON Schemas, and what is wrong with what was typed into them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from pyasynq.web.enqueue_options import read_duration, read_moment, read_options
from pyasynq.web.schema_form import (
    NotShownAsFieldsError,
    build_fields,
    check_value,
    read_fields,
    read_json,
    write_fields,
)

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "order": {"type": "integer", "minimum": 1},
        "label": {"type": "string"},
        "weight": {"type": "number"},
        "fast": {"type": "boolean", "default": False},
        "carrier": {"$ref": "#/$defs/Carrier"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["order", "label", "note"],
    "additionalProperties": False,
    "$defs": {"Carrier": {"enum": ["north", "south"]}},
}


def test_each_property_becomes_a_field_of_its_type() -> None:
    """References are followed, null is told apart, and what is not plain is JSON."""
    fields = {field.label: field for field in build_fields(_SCHEMA, {}, {})}
    kinds = {name: field.kind for name, field in fields.items()}
    assert {
        "order": "integer",
        "label": "string",
        "weight": "number",
        "fast": "choice",
        "carrier": "choice",
        "note": "string",
        "tags": "json",
    } == kinds
    assert (('"north"', "north"), ('"south"', "south")) == fields["carrier"].choices
    assert (True, True) == (fields["note"].required, fields["note"].is_nullable)
    assert "false if empty" == fields["fast"].hint


def test_what_was_typed_becomes_an_object() -> None:
    """Empty fields are left out; a required one that may be null is null."""
    typed = {
        "p:order": "12",
        "p:label": " x ",
        "p:weight": "1.5",
        "p:carrier": '"south"',
        "p:tags": '["a"]',
    }
    expected = {
        "order": 12,
        "label": " x ",
        "weight": 1.5,
        "carrier": "south",
        "note": None,
        "tags": ["a"],
    }
    assert (expected, {}) == read_fields(_SCHEMA, typed)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("order", "", "is required; edit as JSON to give an empty text"),
        ("order", "many", "must be a whole number"),
        ("order", "0", "must be at least 1"),
        ("weight", "nan", "must be a finite number"),
        ("carrier", '"west"', "must be one of the choices"),
        ("tags", "[1]", "0 must be a text"),
        ("tags", "[", "is not JSON: expecting value in line 1, column 2"),
    ],
)
def test_a_wrong_value_is_told_at_its_field(name: str, text: str, sentence: str) -> None:
    """The sentence holds no value."""
    typed = {"p:order": "1", "p:label": "x", f"p:{name}": text}
    assert {f"p:{name}": sentence} == read_fields(_SCHEMA, typed)[1]


def test_a_payload_goes_into_fields_and_back() -> None:
    """Nothing is lost on the way."""
    payload = {"order": 1, "label": "x", "note": None, "tags": ["ä"], "fast": True}
    texts = write_fields(_SCHEMA, payload)
    assert (payload, {}) == read_fields(_SCHEMA, texts)


@pytest.mark.parametrize("payload", [[1], {"order": 1, "unknown": 2}, {"label": ""}, {"label": "a\nb"}])
def test_a_payload_that_fields_would_change_stays_json(payload: object) -> None:
    """A line of text cannot hold two lines, and an empty field means none."""
    with pytest.raises(NotShownAsFieldsError):
        write_fields(_SCHEMA, payload)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {"properties": []},
        {"$ref": "#"},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"type": "object", "properties": {"a": 3, "b": {"type": []}}, "required": "a"},
        {"type": "object", "properties": {"a": {"anyOf": [3]}, "b": {"enum": {}}}, "required": [1]},
        {"type": "object", "properties": {"a": {"minimum": "x"}, "b": {"items": 3}}},
    ],
)
def test_any_schema_is_borne(schema: object) -> None:
    """Schemas come from Redis; what is not understood allows anything."""
    build_fields(schema, {}, {})
    read_fields(schema, {"p:a": "1", "p:b": "[2]"})
    check_value(schema, {"a": 1, "b": [{"c": 2}]})


def test_a_value_that_may_be_a_text_is_typed_as_one() -> None:
    """A number in its place stays JSON: the field would make a text of it. Null is not typed as a text."""
    mixed = {"type": ["string", "number", "boolean"], "description": "part of the URL"}
    schema = {"type": "object", "properties": {"id": mixed}, "required": ["id"]}
    [field] = build_fields(schema, {}, {})
    assert ("string", "part of the URL") == (field.kind, field.hint)
    assert ({"id": "7"}, {}) == read_fields(schema, {"p:id": "7"})
    assert {"p:id": "seven"} == write_fields(schema, {"id": "seven"})
    with pytest.raises(NotShownAsFieldsError):
        write_fields(schema, {"id": 7})
    unknown: list[list[Any]] = [["string", "null"], ["string", {}], [[]]]
    for kinds in unknown:
        [field] = build_fields({"properties": {"id": {"type": kinds}}}, {}, {})
        assert "json" == field.kind


def test_a_schema_that_contains_itself_is_checked_to_a_depth() -> None:
    """The check ends, and finds what is wrong on the way."""
    schema = {"$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}}}}
    value: Any = 1
    for _ in range(10):
        value = {"t": value}
    [(path, sentence)] = check_value({**schema, "$ref": "#/$defs/T"}, value)
    assert (10, "must be an object") == (len(path), sentence)


def test_json_with_what_json_has_not_is_refused() -> None:
    """Other languages could not read NaN."""
    with pytest.raises(ValueError, match="has NaN"):
        read_json("[NaN]")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("1h30m", 5_400.0), ("250ms", 0.25), ("0.5d", 43_200.0)]
)
def test_durations_have_units(text: str, seconds: float) -> None:
    """A number without a unit is seconds."""
    assert seconds == read_duration(text)


@pytest.mark.parametrize("text", ["-1", "1x", "h", "1h 2m", "1e9", "99999999d"])
def test_other_durations_are_refused(text: str) -> None:
    """The error shows a valid example, or the limit."""
    with pytest.raises(ValueError, match="must be"):
        read_duration(text)


def test_a_time_without_a_zone_is_in_the_viewers() -> None:
    """The browser's form field gives a time without a zone."""
    expected = datetime(2030, 7, 1, 7, 30, tzinfo=UTC)
    assert expected == read_moment("2030-07-01T09:30", ZoneInfo("Europe/Berlin"))
    assert expected == read_moment("2030-07-01T07:30:00Z", ZoneInfo("Europe/Berlin"))


def test_options_are_read_and_their_errors_are_named() -> None:
    """Two times to run at are one too many."""
    typed = {"process_in": "5m", "process_at": "2030-01-01T00:00", "max_retry": "x", "headers": "[]"}
    options, errors = read_options(typed, UTC)
    assert 300.0 == options["process_in"]
    assert {"process_at", "max_retry", "headers"} == set(errors)
