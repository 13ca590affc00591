"""Task types as workers publish them, for tools that do not import the app."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class TaskTypeInfo:
    """Description of a task type, published by the last worker that began to serve it."""

    type: str
    """Name of the type; with `is_prefix`, the prefix of the names of several types."""
    queue: str = ""
    """Default queue of its tasks; empty if the handler declares none."""
    schema: Mapping[str, Any] | None = None
    """JSON Schema (2020-12) of the payload; None for a handler that takes any bytes."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Declared options by name, without queue and headers.

    Durations are in seconds, times in ISO 8601, and `on_finished` is the type of the callback.
    """
    secrets: tuple[str, ...] = ()
    """Names of the fields of the payload that no tool may show, such as `password` and `card.number`."""
    summary: str = ""
    """First line of the handler's docstring."""
    version: str = ""
    """Version of the application, as `App(version=...)` says."""
    is_prefix: bool = False
    """Whether `type` is a prefix: the handler serves all types that begin with it (pattern of a `Mux`)."""
    seen: datetime | None = None
    """Time at which a worker last published the type; workers do so at their start and every hour."""


@dataclass(frozen=True, slots=True)
class ServedTypes:
    """Names of the task types that a server has handlers for; `in` tells whether a type is among them.

    Attributes:
        names: complete names.
        prefixes: prefixes of names, from the patterns of a `Mux`.
    """

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def __contains__(self, task_type: object) -> bool:
        return isinstance(task_type, str) and (task_type in self.names or task_type.startswith(self.prefixes))

    def __bool__(self) -> bool:
        return bool(self.names or self.prefixes)


def prefer_types(declared: Iterable[TaskTypeInfo], published: Iterable[TaskTypeInfo]) -> list[TaskTypeInfo]:
    """Return the declared types and all other published types, sorted by name.

    A declared type that is also published has the time at which it was last published.
    """
    by_name = {(one.type, one.is_prefix): one for one in published}
    for own in declared:
        key = (own.type, own.is_prefix)
        by_name[key] = replace(own, seen=by_name[key].seen) if key in by_name else own
    return [by_name[key] for key in sorted(by_name)]


def served_types(described: Iterable[TaskTypeInfo]) -> ServedTypes:
    """Return the served task types, from their descriptions."""
    described = list(described)
    return ServedTypes(
        frozenset(one.type for one in described if not one.is_prefix),
        tuple(sorted(one.type for one in described if one.is_prefix)),
    )
