"""JSON Schema (draft 2020-12) of what converters read and write, for forms and other languages."""

from __future__ import annotations

import re
import typing
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Schema: TypeAlias = "dict[str, Any]"

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


_NOT_OF_KEYS: Final = re.compile(r"[^\w.-]+")


class Definitions:
    """The `$defs` of a JSON Schema: named types to refer to, so that a type may contain itself.

    Attributes:
        schemas: schemas by name, as in `$defs`.
    """

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self._names: dict[Any, str] = {}

    def refer(self, annotation: Any, name: str, make: Callable[[], Schema]) -> Schema:
        """Return a reference to the schema of a named type; make the schema at the first use."""
        key = self._names.get(annotation)
        if key is None:
            key = self._find_key(annotation, name)
            self._names[annotation] = key
            self.schemas[key] = {}  # reserves the key while the schema is made
            self.schemas[key] = make()
        return {"$ref": f"#/$defs/{key}"}

    def _find_key(self, annotation: Any, name: str) -> str:
        """Return an unused key for `$defs`, of characters that need no escaping in a reference."""
        kind = typing.get_origin(annotation) or annotation
        for one in (name, f"{kind.__module__}.{kind.__qualname__}{name.removeprefix(kind.__name__)}"):
            key = _NOT_OF_KEYS.sub("_", one).strip("_")
            if key not in self.schemas:
                return key
        return f"{key}.{len(self.schemas)}"


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
