"""Kinds of types with named fields: dataclasses, named tuples, typed dictionaries, attrs classes, structs.

attrs and msgspec are never imported here: an annotation can contain their classes only if the program has
imported them.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from pyasynq._payload.choices import literal_of
from pyasynq._payload.containers import UNDECLARED
from pyasynq._payload.records import RecordField, RecordType, UnsupportedRecordError, find_tags
from pyasynq._payload.type_hints import read_hints

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._payload.converter import Converter

Compile: TypeAlias = "Callable[[Any], Converter]"
Build: TypeAlias = "Callable[[Any, str, Compile, Callable[[Converter], None]], Converter]"
"""Builder of a record's converter: takes annotation, name, the compiler, and a callback.

The callback gets the converter before the fields are compiled, so that a record may contain itself."""


def find_kind(kind: Any) -> Build | None:
    """Return the builder for a kind of class, such as dataclasses; None for a class without named fields."""
    if hasattr(kind, "__attrs_attrs__"):
        return build_attrs_class
    if dataclasses.is_dataclass(kind):
        return build_dataclass
    if is_typed_dict(kind):
        return build_typed_dict
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return build_named_tuple
    if hasattr(kind, "__struct_fields__"):
        return build_struct
    return None


def _class_of(annotation: Any) -> Any:
    return typing.get_origin(annotation) or annotation


def _is_exactly(kind: Any) -> Callable[[object], bool]:
    # A subclass is checked for fields of its own, which would be lost, and a union prefers exact members.
    return lambda value: type(value) is kind


def _list_dataclass_fields(kind: Any) -> list[str]:
    return [one.name for one in dataclasses.fields(kind)]


def _list_attrs_fields(kind: Any) -> list[str]:
    return [one.name for one in kind.__attrs_attrs__]


def build_dataclass(
    annotation: Any, name: str, compile_type: Compile, remember: Callable[[Converter], None]
) -> Converter:
    """Return the converter of a dataclass. Fields that `__init__` does not take are left out."""
    kind, hints = _class_of(annotation), read_hints(annotation)
    record = RecordType(
        annotation, name, getattr, kind, _is_exactly(kind), _list_dataclass_fields, find_tags(hints)
    )
    remember(converter := record.converter())
    for field, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise UnsupportedRecordError(f"its InitVar {field!r} cannot be read back from an instance")
    record.fill(
        RecordField(
            one.name,
            compile_type(hints[one.name]),
            required=one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING,
        )
        for one in dataclasses.fields(kind)
        if one.init
    )
    return converter


def build_named_tuple(
    annotation: Any, name: str, compile_type: Compile, remember: Callable[[Converter], None]
) -> Converter:
    """Return the converter of a named tuple: an object, so that a field can be added later."""
    kind, hints = _class_of(annotation), read_hints(annotation)
    record = RecordType(
        annotation, name, getattr, kind, _is_exactly(kind), attrgetter("_fields"), find_tags(hints)
    )
    remember(converter := record.converter())
    record.fill(
        RecordField(
            field,
            compile_type(hints[field]) if field in hints else UNDECLARED,
            required=field not in kind._field_defaults,
        )
        for field in kind._fields
    )
    return converter


def is_typed_dict(kind: Any) -> bool:
    """Return whether this is a `TypedDict`, of `typing` or of `typing_extensions`."""
    return isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__required_keys__")


def build_typed_dict(
    annotation: Any, name: str, compile_type: Compile, remember: Callable[[Converter], None]
) -> Converter:
    """Return the converter of a `TypedDict`; keys that are not declared are refused."""
    kind, hints = _class_of(annotation), read_hints(annotation)
    tags = find_tags(hints)

    def accepts(value: object) -> bool:
        return (
            isinstance(value, dict)
            and value.keys() <= record.fields.keys()
            and all(value[field] in values for field, values in tags.items() if field in value)
        )

    record = RecordType(annotation, name, lambda value, field: value[field], dict, accepts, None, tags)
    remember(converter := record.converter())
    record.fill(
        RecordField(field, compile_type(hint), required=_is_required(kind, field, hint))
        for field, hint in hints.items()
    )
    return converter


def _is_required(kind: Any, name: str, hint: Any) -> bool:
    # __required_keys__ is wrong where annotations are strings; the qualifier in the resolved hint is not.
    while (origin := typing.get_origin(hint)) is not None:
        if origin is typing.Required:
            return True
        if origin is typing.NotRequired:
            return False
        hint = typing.get_args(hint)[0]
    return name in kind.__required_keys__


def build_attrs_class(
    annotation: Any, name: str, compile_type: Compile, remember: Callable[[Converter], None]
) -> Converter:
    """Return the converter of an attrs class. Its JSON has the names of the parameters of `__init__`."""
    kind, hints = _class_of(annotation), read_hints(annotation)
    nothing = sys.modules["attr"].NOTHING
    fields = {one.alias: one for one in kind.__attrs_attrs__ if one.init}

    def read(value: Any, alias: str) -> Any:
        return getattr(value, fields[alias].name)

    tags = find_tags({alias: hints.get(one.name) for alias, one in fields.items()})
    record = RecordType(annotation, name, read, kind, _is_exactly(kind), _list_attrs_fields, tags)
    remember(converter := record.converter())
    record.fill(
        RecordField(
            alias,
            UNDECLARED if (hint := hints.get(one.name, one.type)) is None else compile_type(hint),
            required=one.default is nothing,
        )
        for alias, one in fields.items()
    )
    return converter


def build_struct(
    annotation: Any, name: str, compile_type: Compile, remember: Callable[[Converter], None]
) -> Converter:
    """Return the converter of a `msgspec.Struct`, with its names in JSON and its tag."""
    kind, hints = _class_of(annotation), read_hints(annotation)
    config = kind.__struct_config__
    if config.array_like:
        raise UnsupportedRecordError("array_like leaves out the names, and payloads carry them")
    fields = {one.encode_name: one for one in sys.modules["msgspec"].structs.fields(kind)}
    tag = {} if config.tag is None else {config.tag_field: frozenset({config.tag})}

    def read(value: Any, field: str) -> Any:
        return config.tag if field in tag else getattr(value, fields[field].name)

    def make(**values: Any) -> Any:
        return kind(**{fields[field].name: value for field, value in values.items() if field not in tag})

    tags = tag | find_tags({field: hints[one.name] for field, one in fields.items()})
    record = RecordType(
        annotation, name, read, make, _is_exactly(kind), attrgetter("__struct_fields__"), tags
    )
    remember(converter := record.converter())
    record.fill(RecordField(field, literal_of(list(values)), required=False) for field, values in tag.items())
    record.fill(
        RecordField(field, compile_type(hints[one.name]), required=one.required)
        for field, one in fields.items()
    )
    return converter
