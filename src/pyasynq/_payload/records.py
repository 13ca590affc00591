"""Common base of types with named fields, whose JSON is an object."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._payload.converter import Converter, Json, Mismatch, check_subclass, refuse_json, refuse_value
from pyasynq.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyasynq._payload.schema import Definitions, Schema

_OBJECT: Final = frozenset({dict})


class UnsupportedRecordError(Exception):
    """Error: a class cannot be rebuilt from its fields; the message says why."""


class RecordField(NamedTuple):
    """One field of a record."""

    name: str
    converter: Converter
    required: bool


@dataclass(slots=True)
class RecordType:
    """A type whose JSON is an object with a fixed set of names, in the order of their declaration.

    The fields are filled in after the converter exists, so that a type may contain itself.

    Attributes:
        annotation: the class, or a generic class with its arguments.
        name: name of the type in errors.
        read: returns the field of a value, by its name in JSON.
        make: function that makes a value from fields by their names in JSON.
        accepts: whether a Python value is of this type.
        names: returns the names of a class's fields; None if values of subclasses are not taken.
        tags: discriminators: fields with fixed values, which tell the type from other members of a union.
        fields: fields by their names in JSON.
    """

    annotation: Any
    name: str
    read: Callable[[Any, str], Any]
    make: Callable[..., Any]
    accepts: Callable[[object], bool]
    names: Callable[[type], Iterable[str]] | None
    tags: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    fields: dict[str, RecordField] = field(default_factory=dict)

    def converter(self) -> Converter:
        """Return the converter, which resolves the fields lazily, at the first conversion."""
        return Converter(
            self.name,
            _OBJECT,
            self.accepts,
            self.encode,
            self.decode,
            bases=frozenset() if self.names is None else frozenset({self._kind}),
            tags=self.tags,
            describe=self.describe,
        )

    @property
    def _kind(self) -> type:
        kind: type = typing.get_origin(self.annotation) or self.annotation
        return kind

    def fill(self, fields: Iterable[RecordField]) -> None:
        """Set the fields, after the converters of their types exist."""
        self.fields.update({one.name: one for one in fields})

    def describe(self, definitions: Definitions) -> Schema:
        """Return a reference to the JSON Schema of the type, and add the schema to the definitions."""
        return definitions.refer(self.annotation, self.name, lambda: self._schema(definitions))

    def _schema(self, definitions: Definitions) -> Schema:
        properties = {name: one.converter.describe(definitions) for name, one in self.fields.items()}
        required = [name for name, one in self.fields.items() if one.required]
        return {
            "title": self.name,
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }

    def encode(self, value: Any) -> Json:
        """Return the object's fields as JSON."""
        if not self.accepts(value):
            if self.names is None:
                refuse_value(self.name, value)
            check_subclass(self._kind, self.name, value, self.names)
        encoded = {}
        for name, one in self.fields.items():
            try:
                encoded[name] = one.converter.encode(self.read(value, name))
            except KeyError:
                if one.required:
                    raise Mismatch(f"{self.name} lacks the key {name!r}") from None
            except Mismatch as mismatch:
                raise mismatch.inside(f".{name}") from mismatch.__cause__
        return encoded

    def decode(self, value: Json) -> Any:
        """Return the Python object for a JSON object."""
        if type(value) is not dict:
            refuse_json(self.name, value)
        if not value.keys() <= self.fields.keys():
            unknown = min(value.keys() - self.fields.keys())
            raise Mismatch(f"{self.name} has no field {unknown!r}{nearest(unknown, self.fields)}")
        decoded = {}
        for name, one in self.fields.items():
            if name in value:
                try:
                    decoded[name] = one.converter.decode(value[name])
                except Mismatch as mismatch:
                    raise mismatch.inside(f".{name}") from mismatch.__cause__
            elif one.required:
                raise Mismatch(f"{self.name} needs the field {name!r}")
        return _make(self.name, self.make, decoded)


def _make(name: str, make: Callable[..., Any], fields: dict[str, Any]) -> Any:
    try:
        return make(**fields)
    except (TypeError, ValueError) as error:
        # The message omits the error's text and chain: even those of `int(text)` show the refused value.
        raise Mismatch(f"{name} refused its fields: {describe_place(error)}") from None


def describe_place(error: BaseException) -> str:
    """Return the type of an error and the line that raised it, as in `ValueError [shop.py:12]`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" [{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}]" if trace else ""
    return f"{type(error).__name__}{place}"


def find_tags(hints: Mapping[str, Any]) -> dict[str, frozenset[Any]]:
    """Return the discriminators: the values of each field whose annotation is a literal of str or int."""
    found = {}
    for name, annotation in hints.items():
        hint = annotation
        while typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        values = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
        if values and all(type(value) in {str, int} for value in values):
            found[name] = frozenset(values)
    return found
