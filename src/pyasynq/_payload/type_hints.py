"""Resolved annotations of the fields of a class, type variables of generic classes included."""

from __future__ import annotations

import typing
from collections import ChainMap
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_DECLARE_VARIABLES: Final = frozenset({typing.Generic, typing.Protocol})
"""Bases that only name the type variables of a class."""


def read_hints(annotation: Any) -> dict[str, Any]:
    """Return the annotations of the fields of a class or of a generic class with arguments, as `Page[int]`.

    A type variable for which the annotation gives no type stands for any JSON.
    """
    kind = typing.get_origin(annotation) or annotation
    bindings = _bind_variables(annotation)
    hints = typing.get_type_hints(kind, include_extras=True)
    if not any(bindings.values()):
        return hints
    for base in reversed(kind.__mro__):
        for name in getattr(base, "__annotations__", {}):
            if name in hints and base in bindings:
                own = typing.get_type_hints(base, include_extras=True)[name]
                # The annotations of a TypedDict are also those of its bases.
                hints[name] = _substitute(own, ChainMap(bindings[base], *bindings.values()))
    return hints


def _bind_variables(annotation: Any) -> dict[Any, dict[Any, Any]]:
    """Return the types bound to the type variables of a class and its bases."""
    bound: dict[Any, dict[Any, Any]] = {}
    waiting = [annotation]
    while waiting:
        one = waiting.pop()
        kind = typing.get_origin(one) or one
        if kind in bound or not isinstance(kind, type):
            continue
        variables = getattr(kind, "__parameters__", ())
        arguments = typing.get_args(one) or (Any,) * len(variables)
        bound[kind] = dict(zip(variables, arguments, strict=False))
        bases = vars(kind).get("__orig_bases__", kind.__bases__)
        waiting += [
            _substitute(base, bound[kind])
            for base in bases
            if typing.get_origin(base) not in _DECLARE_VARIABLES
        ]
    return bound


def _substitute(hint: Any, bindings: Mapping[Any, Any]) -> Any:
    if isinstance(hint, typing.TypeVar):
        return bindings.get(hint, Any)
    variables = getattr(hint, "__parameters__", ())
    if not variables or isinstance(hint, type):
        return hint
    return hint[tuple(bindings.get(one, Any) for one in variables)]
