"""Samples of payloads from JSON Schemas: they fit, and odd schemas break nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyasynq.gateway.configurations.params_schema import ParamsSchema
from pyasynq.web.schema_sample import make_sample


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer", "minimum": 5},
                "share": {"type": "number", "exclusiveMinimum": 0},
                "name": {"type": "string", "minLength": 8, "maxLength": 9},
                "kind": {"enum": ["a", "b"]},
                "fixed": {"const": 7},
                "at": {"type": "string", "format": "date-time"},
                "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
                "maybe": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
                "either": {"type": ["string", "null"]},
                "part": {"$ref": "#/$defs/part"},
                "flag": {"type": "boolean"},
                "any": True,
            },
            "required": ["id", "name", "part", "tags"],
            "additionalProperties": False,
            "$defs": {"part": {"type": "object", "properties": {"x": {"type": "integer", "maximum": -1}}}},
        },
    ],
)
def test_a_sample_fits_its_schema(schema: dict[str, Any]) -> None:
    """As the task service compares them."""
    ParamsSchema("schema", schema).check(make_sample(schema))


def test_examples_and_defaults_come_first() -> None:
    """The author of the schema knows best."""
    properties = {"a": {"type": "string", "examples": ["x"]}, "b": {"type": "integer", "default": 9}}
    assert {"a": "x", "b": 9} == make_sample({"properties": properties})


def test_a_schema_within_itself_ends() -> None:
    """At some depth."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    sample = make_sample({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert "next" in sample


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "properties", "items", "enum", "anyOf", "minItems", "minLength", "$ref"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_odd_schemas_give_something(schema: Any) -> None:
    """Redis may hold anything."""
    make_sample(schema)
