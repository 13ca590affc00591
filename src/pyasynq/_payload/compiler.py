"""Compiler from annotations to converters; runs once for each handler, never while tasks run."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import types
import typing
from typing import TYPE_CHECKING, Any, Final

from pyasynq._payload.choices import AmbiguousUnionError, enum_of, literal_of, union_of
from pyasynq._payload.containers import (
    UNDECLARED,
    can_be_key,
    dict_of,
    fixed_tuple,
    list_of,
    sequence_of,
    set_of,
    tuple_of,
)
from pyasynq._payload.pydantic_types import (
    LossyTypeError,
    constrained,
    has_constraints,
    is_pydantic_type,
    pydantic_type,
)
from pyasynq._payload.records import (
    UnsupportedRecordError,
    dataclass_record,
    is_typed_dict,
    named_tuple_record,
    typed_dict_record,
)
from pyasynq._payload.scalars import SCALARS
from pyasynq._payload.secrets import secret_of
from pyasynq.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._payload.converter import Converter

_LITERAL_TYPES: Final = (str, int, bool, types.NoneType)
_LISTS: Final = {list, collections.abc.MutableSequence}
_MAPPINGS: Final = {dict, collections.abc.Mapping, collections.abc.MutableMapping}
_SETS: Final[dict[Any, type[set[Any] | frozenset[Any]]]] = {
    set: set,
    collections.abc.MutableSet: set,
    frozenset: frozenset,
    collections.abc.Set: frozenset,
}
_QUALIFIERS: Final = {typing.Annotated, typing.Required, typing.NotRequired}


class UnsupportedTypeError(Exception):
    """An annotation that has no JSON form; the message says what to write instead."""


class Compiler:
    """Makes converters, and remembers those of records so that a type may contain itself."""

    def __init__(self) -> None:
        self._records: dict[type, Converter] = {}

    def compile(self, annotation: Any) -> Converter:
        """Return the converter of a resolved annotation.

        Raises:
            UnsupportedTypeError: for a type that JSON cannot carry there and back.
        """
        bare, constraints = _split_type(annotation)
        converter = self._compile(bare)
        try:
            for one in reversed(constraints):
                converter = constrained(one, converter)
        except LossyTypeError as error:
            raise UnsupportedTypeError(f"{_describe_type(annotation)}: {error}") from None
        return converter

    def _compile(self, annotation: Any) -> Converter:
        if annotation in (Any, object):
            return UNDECLARED
        origin = typing.get_origin(annotation)
        if origin in (typing.Union, types.UnionType):
            return self._union(annotation)
        if origin is typing.Literal:
            return _literal(annotation)
        if Secret in (origin, annotation):
            return secret_of(self._item(typing.get_args(annotation)))
        container = self._container(origin or annotation, typing.get_args(annotation))
        if container is not None:
            return container
        if origin is None and isinstance(annotation, type):
            return self._class(annotation)
        raise UnsupportedTypeError(f"JSON cannot carry {_describe_type(annotation)}")

    def _union(self, annotation: Any) -> Converter:
        members = [self.compile(member) for member in typing.get_args(annotation)]
        if UNDECLARED in members:
            return UNDECLARED
        try:
            return union_of(members)
        except AmbiguousUnionError as error:
            raise UnsupportedTypeError(
                f"{error.first} and {error.second} of {_describe_type(annotation)} look the same in JSON, "
                "so a payload could not say which was meant; use one of them, or a dataclass that holds both",
            ) from None

    def _container(self, kind: Any, arguments: tuple[Any, ...]) -> Converter | None:
        if kind in _LISTS:
            return list_of(self._item(arguments))
        if kind is collections.abc.Sequence:
            return sequence_of(self._item(arguments))
        if kind in _SETS:
            return set_of(self._item(arguments), _SETS[kind])
        if kind is tuple:
            return self._tuple(arguments)
        if kind in _MAPPINGS:
            return self._mapping(*(arguments or (str, Any)))
        return None

    def _item(self, arguments: tuple[Any, ...]) -> Converter:
        return self.compile(arguments[0]) if arguments else UNDECLARED

    def _tuple(self, arguments: tuple[Any, ...]) -> Converter:
        if not arguments:
            return tuple_of(UNDECLARED)
        if arguments[-1] is Ellipsis:
            return tuple_of(self.compile(arguments[0]))
        return fixed_tuple([self.compile(one) for one in arguments if one != ()])

    def _mapping(self, key: Any, item: Any) -> Converter:
        key_converter = SCALARS[str] if _split_type(key)[0] is Any else self.compile(key)
        if not can_be_key(key_converter):
            raise UnsupportedTypeError(
                f"keys of a JSON object are text: {_describe_type(key)} cannot be one; "
                "use a type that is written as text or as a whole number",
            )
        return dict_of(key_converter, self.compile(item))

    def _class(self, kind: Any) -> Converter:
        if kind in SCALARS:
            return SCALARS[kind]
        if kind in self._records:
            return self._records[kind]
        if issubclass(kind, enum.Enum):
            return enum_of(kind)
        if is_pydantic_type(kind):
            try:
                return pydantic_type(kind)
            except LossyTypeError as error:
                raise UnsupportedTypeError(f"JSON cannot carry {_describe_type(kind)}: {error}") from None
        return self._record(kind)

    def _record(self, kind: Any) -> Converter:
        build: Callable[..., Converter]
        if dataclasses.is_dataclass(kind):
            build = dataclass_record
        elif is_typed_dict(kind):
            build = typed_dict_record
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            build = named_tuple_record
        else:
            raise UnsupportedTypeError(
                f"JSON cannot carry {_describe_type(kind)}; use a dataclass, a TypedDict or a NamedTuple, "
                "or pass an id and load the object in the handler",
            )
        try:
            return build(kind, self.compile, lambda converter: self._records.__setitem__(kind, converter))
        except UnsupportedRecordError as error:
            raise UnsupportedTypeError(f"JSON cannot carry {_describe_type(kind)}: {error}") from None
        except UnsupportedTypeError as error:
            raise UnsupportedTypeError(f"in {_describe_type(kind)}: {error}") from None


def _split_type(annotation: Any) -> tuple[Any, list[Any]]:
    """Return a type without qualifiers and aliases, and its `Annotated` types that pydantic must enforce."""
    constraints = []
    while True:
        if typing.get_origin(annotation) in _QUALIFIERS:
            if typing.get_origin(annotation) is typing.Annotated and _has_constraints(annotation):
                constraints.append(annotation)
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif annotation is None:
            return types.NoneType, constraints
        elif annotation is typing.LiteralString:
            return str, constraints
        else:
            return annotation, constraints


def _has_constraints(annotation: Any) -> bool:
    try:
        return has_constraints(annotation)
    except LossyTypeError as error:
        raise UnsupportedTypeError(f"{_describe_type(annotation)}: {error}") from None


def _literal(annotation: Any) -> Converter:
    values = typing.get_args(annotation)
    if not all(type(value) in _LITERAL_TYPES for value in values):
        raise UnsupportedTypeError(
            f"{_describe_type(annotation)}: literals can be text, whole numbers, True, False and None; "
            "annotate enums and bytes with their type",
        )
    return literal_of(values)


def _describe_type(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
