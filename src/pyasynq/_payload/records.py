"""Types with named fields: dataclasses, named tuples, typed dictionaries."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyasynq._payload.containers import UNDECLARED
from pyasynq._payload.converter import Converter, Json, Mismatch, refuse_json, refuse_value
from pyasynq.errors import nearest

if TYPE_CHECKING:
    from pyasynq._payload.schema import Definitions, Schema

Compile: TypeAlias = Callable[[Any], Converter]

_OBJECT: Final = frozenset({dict})


class UnsupportedRecordError(Exception):
    """A class with named fields that cannot be rebuilt from them; the message says why."""


class RecordField(NamedTuple):
    """One field of a record."""

    name: str
    converter: Converter
    required: bool


@dataclass(slots=True)
class RecordType:
    """A type whose JSON is an object with a fixed set of names, in the order of their declaration.

    The fields are filled in after the converter exists, so that a type may contain itself.
    """

    kind: type
    read: Callable[[Any, str], Any]
    make: Callable[..., Any]
    accepts: Callable[[object], bool]
    fields: dict[str, RecordField] = field(default_factory=dict)

    def converter(self) -> Converter:
        """Return the converter; it looks at the fields only when it converts."""
        name = self.kind.__name__
        return Converter(name, _OBJECT, self.accepts, self.encode, self.decode, describe=self.describe)

    def fill(self, fields: Iterable[RecordField]) -> None:
        """Set the fields, after the converters of their types exist."""
        self.fields.update({one.name: one for one in fields})

    def describe(self, definitions: Definitions) -> Schema:
        """Return a reference to the schema of the type, which is among the definitions then."""
        return definitions.refer(self.kind, lambda: self._schema(definitions))

    def _schema(self, definitions: Definitions) -> Schema:
        properties = {name: one.converter.describe(definitions) for name, one in self.fields.items()}
        required = [name for name, one in self.fields.items() if one.required]
        return {
            "title": self.kind.__name__,
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }

    def encode(self, value: Any) -> Json:
        """Return the object's fields as JSON."""
        if not self.accepts(value):
            refuse_value(self.kind.__name__, value)
        encoded = {}
        for name, one in self.fields.items():
            try:
                encoded[name] = one.converter.encode(self.read(value, name))
            except KeyError:
                if one.required:
                    raise Mismatch(f"{self.kind.__name__} lacks the key {name!r}") from None
            except Mismatch as mismatch:
                raise mismatch.inside(f".{name}") from mismatch.__cause__
        return encoded

    def decode(self, value: Json) -> Any:
        """Return the object that the JSON describes."""
        if type(value) is not dict:
            refuse_json(self.kind.__name__, value)
        if not value.keys() <= self.fields.keys():
            unknown = min(value.keys() - self.fields.keys())
            raise Mismatch(f"{self.kind.__name__} has no field {unknown!r}{nearest(unknown, self.fields)}")
        decoded = {}
        for name, one in self.fields.items():
            if name in value:
                try:
                    decoded[name] = one.converter.decode(value[name])
                except Mismatch as mismatch:
                    raise mismatch.inside(f".{name}") from mismatch.__cause__
            elif one.required:
                raise Mismatch(f"{self.kind.__name__} needs the field {name!r}")
        return _make(self.kind, self.make, decoded)


def _make(kind: type, make: Callable[..., Any], fields: dict[str, Any]) -> Any:
    try:
        return make(**fields)
    except (TypeError, ValueError) as error:
        # Neither its text nor a chain to it: `int(text)` alone would show what was refused.
        raise Mismatch(f"{kind.__name__} refused its fields: {_describe_place(error)}") from None


def _describe_place(error: BaseException) -> str:
    """Return the type of an error and the line that raised it, as in `ValueError [shop.py:12]`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" [{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}]" if trace else ""
    return f"{type(error).__name__}{place}"


def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def dataclass_record(kind: Any, compile_type: Compile, remember: Callable[[Converter], None]) -> Converter:
    """Return the converter of a dataclass. Fields that `__init__` does not take are left out."""

    def accepts(value: object) -> bool:
        # The exact type: fields of a subclass would be lost without a word.
        return type(value) is kind

    record = RecordType(kind, getattr, kind, accepts)
    remember(converter := record.converter())
    hints = _hints(kind)
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise UnsupportedRecordError(f"its InitVar {name!r} cannot be read back from an instance")
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


def named_tuple_record(kind: Any, compile_type: Compile, remember: Callable[[Converter], None]) -> Converter:
    """Return the converter of a named tuple: an object, so that a field can be added later."""

    def accepts(value: object) -> bool:
        return type(value) is kind

    record = RecordType(kind, getattr, kind, accepts)
    remember(converter := record.converter())
    hints = _hints(kind)
    record.fill(
        RecordField(
            name,
            compile_type(hints[name]) if name in hints else UNDECLARED,
            required=name not in kind._field_defaults,
        )
        for name in kind._fields
    )
    return converter


def is_typed_dict(kind: Any) -> bool:
    """Return whether this is a `TypedDict`, of `typing` or of `typing_extensions`."""
    return isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__required_keys__")


def typed_dict_record(kind: Any, compile_type: Compile, remember: Callable[[Converter], None]) -> Converter:
    """Return the converter of a `TypedDict`; keys that are not declared are refused."""

    def accepts(value: object) -> bool:
        return isinstance(value, dict) and value.keys() <= record.fields.keys()

    record = RecordType(kind, lambda value, name: value[name], dict, accepts)
    remember(converter := record.converter())
    record.fill(
        RecordField(name, compile_type(hint), required=_is_required(kind, name, hint))
        for name, hint in _hints(kind).items()
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
