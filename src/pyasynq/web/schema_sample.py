"""A sample of a payload that fits a JSON Schema, to begin a form with. Pure.

Schemas come from Redis, so they may contain anything: an unknown construct gives a value for the user to
change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyasynq.web.schema_form import resolve_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DEEPEST: Final = 8
_MOST_FIELDS: Final = 100
_MOST_ITEMS: Final = 10
_LONGEST: Final = 1_000
_FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "ada@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
}
_TEXT: Final = "text"
_BOUNDS: Final = (("minimum", 0), ("exclusiveMinimum", 1), ("maximum", 0), ("exclusiveMaximum", -1))
"""Keywords that bound numbers, with the distance from the bound to an allowed number."""


def make_sample(schema: object) -> Any:
    """Return a sample value for a schema: its example or default, else a minimal value of its type."""
    root = schema if isinstance(schema, dict) else {}
    return _Sampler(root).make(root, 0)


class _Sampler:
    """Generator of sample values for one schema.

    Args:
        root: the whole schema, in which `$ref` is looked up.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._makers: dict[str, Callable[[Mapping[str, Any], int], Any]] = {
            "string": lambda facts, _: _make_text(facts),
            "integer": lambda facts, _: _make_number(facts),
            "number": lambda facts, _: _make_number(facts),
            "boolean": lambda _, __: False,
            "null": lambda _, __: None,
            "array": self._make_list,
            "object": self._make_object,
        }

    def make(self, schema: object, depth: int) -> Any:
        """Return a value for a part of the schema."""
        own = schema if isinstance(schema, dict) else {}
        facts = {**resolve_schema(self._root, own), **{name: own[name] for name in own if name != "$ref"}}
        for name in ("examples", "enum"):
            if isinstance(facts.get(name), list) and facts[name]:
                return facts[name][0]
        for name in ("default", "const"):
            if name in facts:
                return facts[name]
        for name in ("anyOf", "oneOf"):
            if isinstance(facts.get(name), list) and facts[name] and depth < _DEEPEST:
                return self.make(facts[name][0], depth + 1)
        kind = facts.get("type")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        known = kind if isinstance(kind, str) and kind in self._makers else ""
        return self._makers[known or ("object" if not depth or "properties" in facts else "string")](
            facts, depth
        )

    def _make_list(self, facts: Mapping[str, Any], depth: int) -> list[Any]:
        count = facts.get("minItems")
        if not isinstance(count, int) or depth >= _DEEPEST:
            return []
        return [self.make(facts.get("items"), depth + 1) for _ in range(min(count, _MOST_ITEMS))]

    def _make_object(self, facts: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = facts.get("properties")
        if not isinstance(properties, dict) or depth >= _DEEPEST:
            return {}
        return {name: self.make(properties[name], depth + 1) for name in list(properties)[:_MOST_FIELDS]}


def _make_text(facts: Mapping[str, Any]) -> str:
    text = _FORMATS.get(str(facts.get("format")), _TEXT)
    least, most = facts.get("minLength"), facts.get("maxLength")
    if isinstance(least, int):
        text = text.ljust(min(least, _LONGEST), "x")
    return text[:most] if isinstance(most, int) and most >= 0 else text


def _make_number(facts: Mapping[str, Any]) -> float:
    for name, step in _BOUNDS:
        bound = facts.get(name)
        if isinstance(bound, (int, float)) and not isinstance(bound, bool):
            return bound + step
    return 1
