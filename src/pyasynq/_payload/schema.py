"""JSON Schema (draft 2020-12) of what converters read and write, for forms and other languages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Schema: TypeAlias = "dict[str, Any]"

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class Definitions:
    """Schemas of types with a name, which other schemas refer to: so a type may contain itself.

    Attributes:
        schemas: by name, as in `$defs`.
    """

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self._names: dict[Any, str] = {}

    def refer(self, kind: type, make: Callable[[], Schema]) -> Schema:
        """Return a reference to the schema of a type, which is made unless it is there already."""
        name = self._names.get(kind)
        if name is None:
            name = self._name(kind)
            self._names[kind] = name
            self.schemas[name] = {}  # taken, while the schema is made
            self.schemas[name] = make()
        return {"$ref": f"#/$defs/{name}"}

    def _name(self, kind: type) -> str:
        name = kind.__name__
        if name in self.schemas:
            name = f"{kind.__module__}.{kind.__qualname__}"
        return name.replace("/", "_").replace("~", "_")


def secret_paths(schema: Schema) -> tuple[str, ...]:
    """Return the paths of the secrets in a schema, such as `card.number` and `keys[].value`, sorted."""
    definitions = schema.get("$defs", {})
    return tuple(sorted(set(_secrets(schema, "", definitions, frozenset()))))


def _secrets(
    schema: Any, path: str, definitions: Mapping[str, Schema], seen: frozenset[str]
) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    if schema.get("writeOnly"):
        yield path
        return
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name in definitions and name not in seen:
        yield from _secrets(definitions[name], path, definitions, seen | {name})
    for name, member in schema.get("properties", {}).items():
        yield from _secrets(member, f"{path}.{name}" if path else name, definitions, seen)
    for keyword in ("items", "additionalProperties"):
        yield from _secrets(schema.get(keyword), f"{path}[]", definitions, seen)
    for member in schema.get("prefixItems", ()):
        yield from _secrets(member, f"{path}[]", definitions, seen)
    for member in schema.get("anyOf", ()):
        yield from _secrets(member, path, definitions, seen)
