"""Compiler from annotations to converters; runs once for each handler, never while tasks run."""

from __future__ import annotations

import collections
import collections.abc
import enum
import sys
import types
import typing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyasynq._payload.choices import AmbiguousUnionError, enum_of, literal_of, union_of
from pyasynq._payload.containers import (
    UNDECLARED,
    can_be_key,
    collection_of,
    deque_of,
    dict_of,
    fixed_tuple,
    list_of,
    set_of,
    tuple_of,
)
from pyasynq._payload.pydantic_types import (
    LossyTypeError,
    constrained,
    has_constraints,
    is_pydantic_field,
    is_pydantic_type,
    pydantic_field,
    pydantic_type,
)
from pyasynq._payload.record_kinds import find_kind
from pyasynq._payload.records import UnsupportedRecordError
from pyasynq._payload.scalars import SCALARS
from pyasynq._payload.secrets import secret_of
from pyasynq.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyasynq._payload.converter import Converter

_LITERAL_TYPES: Final = (str, int, bool, types.NoneType)
_OF_ITEMS: Final[Mapping[Any, Callable[[Converter], Converter]]] = {
    list: list_of,
    collections.abc.MutableSequence: list_of,
    collections.abc.Sequence: partial(collection_of, kind="Sequence", accepted=collections.abc.Sequence),
    collections.abc.Collection: partial(
        collection_of, kind="Collection", accepted=collections.abc.Collection
    ),
    collections.abc.Iterable: partial(collection_of, kind="Iterable", accepted=collections.abc.Iterable),
    collections.deque: deque_of,
    set: partial(set_of, make=set),
    collections.abc.MutableSet: partial(set_of, make=set),
    frozenset: partial(set_of, make=frozenset),
    collections.abc.Set: partial(set_of, make=frozenset),
}
"""Functions by container type: each makes the container's converter from the converter of its items."""
_MAPPINGS: Final = {dict, collections.abc.Mapping, collections.abc.MutableMapping}
_SCALAR_MODULES: Final = frozenset({"ipaddress", "zoneinfo"})
"""Modules whose types have converters in `imported_scalars`."""
NO_CODECS: Final[Mapping[type, Converter]] = types.MappingProxyType({})
_QUALIFIERS: Final = {typing.Annotated, typing.Required, typing.NotRequired}


class UnsupportedTypeError(Exception):
    """Error: an annotation has no JSON form; the message says what to write instead."""


class Compiler:
    """Compiler of annotations into converters. Caches converters of records, so types may be recursive.

    Args:
        codecs: converters of types that the app has given codecs.
        with_secrets: whether the values may contain a `Secret`.
    """

    def __init__(self, codecs: Mapping[type, Converter] = NO_CODECS, *, with_secrets: bool = True) -> None:
        self._codecs = codecs
        self._with_secrets = with_secrets
        self._records: dict[Any, Converter] = {}

    def compile(self, annotation: Any) -> Converter:
        """Return the converter of a resolved annotation.

        Raises:
            UnsupportedTypeError: for a type whose values do not survive a round trip through JSON.
        """
        bare, constraints = _split_type(annotation)
        converter = self._compile(bare)
        try:
            for one in reversed(constraints):
                converter = _constrain_by_meta(one, converter)
                if has_constraints(one):
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
            if not self._with_secrets:
                raise UnsupportedTypeError(
                    "tools show results, so a result holds no Secret; return an id that leads to the secret"
                )
            return secret_of(self._item(typing.get_args(annotation)))
        found = self._container(origin or annotation, typing.get_args(annotation))
        if found is None and isinstance(origin or annotation, type):
            found = self._class(annotation) if origin is None else self._generic_class(origin, annotation)
        if found is None:
            raise UnsupportedTypeError(f"JSON cannot carry {_describe_type(annotation)}")
        return found

    def _generic_class(self, origin: type, annotation: Any) -> Converter | None:
        if is_pydantic_type(origin) or find_kind(origin) is None:
            return None
        return self._record(annotation)

    def _union(self, annotation: Any) -> Converter:
        members = [self.compile(member) for member in typing.get_args(annotation)]
        if UNDECLARED in members:
            return UNDECLARED
        try:
            return union_of(members)
        except AmbiguousUnionError as error:
            pairs = zip(typing.get_args(annotation), members, strict=True)
            alike = [kind for kind, one in pairs if one.name in {error.first, error.second}]
            remedy = "use one of them, or a dataclass that holds both"
            if all(isinstance(kind, type) and self.compile(kind).writes == {dict} for kind in alike):
                remedy = 'give each a field that tells them apart, such as `kind: Literal["card"] = "card"`'
            raise UnsupportedTypeError(
                f"{error.first} and {error.second} of {_describe_type(annotation)} look the same in JSON, "
                f"so a payload could not say which was meant; {remedy}"
            ) from None

    def _container(self, kind: Any, arguments: tuple[Any, ...]) -> Converter | None:
        if kind in _OF_ITEMS:
            return _OF_ITEMS[kind](self._item(arguments))
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
        known = self._codecs.get(kind) or SCALARS.get(kind) or _find_imported_scalar(kind)
        if known is not None:
            return known
        if issubclass(kind, enum.Enum):
            return enum_of(kind)
        try:
            if is_pydantic_type(kind):
                return pydantic_type(kind)
            if is_pydantic_field(kind):
                return pydantic_field(kind)
        except LossyTypeError as error:
            raise UnsupportedTypeError(f"JSON cannot carry {_describe_type(kind)}: {error}") from None
        return self._record(kind)

    def _record(self, annotation: Any) -> Converter:
        if annotation in self._records:
            return self._records[annotation]
        name = _describe_record(annotation)
        build = find_kind(typing.get_origin(annotation) or annotation)
        if build is None:
            raise UnsupportedTypeError(
                f"JSON cannot carry {name}; use a dataclass, a TypedDict or a NamedTuple, "
                "give the app a codec of the type with app.type_codec, "
                "or pass an id and load the object in the handler",
            )

        def remember(converter: Converter) -> None:
            self._records[annotation] = converter

        try:
            return build(annotation, name, self.compile, remember)
        except UnsupportedRecordError as error:
            raise UnsupportedTypeError(f"JSON cannot carry {name}: {error}") from None
        except UnsupportedTypeError as error:
            raise UnsupportedTypeError(f"in {name}: {error}") from None


def _find_imported_scalar(kind: Any) -> Converter | None:
    if kind.__module__ not in _SCALAR_MODULES:
        return None
    from pyasynq._payload.imported_scalars import IMPORTED_SCALARS  # noqa: PLC0415 - few programs need them

    return IMPORTED_SCALARS.get(kind)


def _describe_record(annotation: Any) -> str:
    """Return `Page`, or `Page[int]` for a generic class with arguments."""
    kind = typing.get_origin(annotation) or annotation
    arguments = ", ".join(map(_describe_type, typing.get_args(annotation)))
    return f"{kind.__name__}[{arguments}]" if arguments else str(kind.__name__)


def _split_type(annotation: Any) -> tuple[Any, list[Any]]:
    """Return the type inside of qualifiers and aliases, and the `Annotated` types with constraints."""
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
        return _has_meta(annotation) or has_constraints(annotation)
    except LossyTypeError as error:
        raise UnsupportedTypeError(f"{_describe_type(annotation)}: {error}") from None


def _has_meta(annotation: Any) -> bool:
    if "msgspec" not in sys.modules:
        return False
    from pyasynq._payload.msgspec_meta import has_meta  # noqa: PLC0415 - few programs need it

    return has_meta(annotation)


def _constrain_by_meta(annotation: Any, converter: Converter) -> Converter:
    """Return a converter that lets msgspec check the constraints of a `Meta`, if the annotation has one."""
    if not _has_meta(annotation):
        return converter
    from pyasynq._payload.msgspec_meta import constrained_by_meta  # noqa: PLC0415 - as above

    return constrained_by_meta(annotation, converter)


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
