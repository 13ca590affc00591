"""pydantic models and dataclasses, and constraints in `Annotated`: pydantic writes, reads and checks them.

pydantic is never imported here: an annotation can contain its types only if the program has imported it. A
value that a round trip would change is refused. If the type already shows the change, the handler is refused
when it is declared; otherwise the value is refused when it is sent.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import typing
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pyasynq._payload.containers import UNDECLARED
from pyasynq._payload.converter import Converter, Json, Mismatch, check_subclass
from pyasynq._payload.records import find_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyasynq._payload.schema import Definitions, Schema

_OBJECT: Final = frozenset({dict})
_FIELD_MODULES: Final = frozenset({"pydantic", "pydantic_core", "pydantic_extra_types"})
_KINDS: Final[Mapping[Any, type]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}
"""Python types of decoded JSON, by the names of JSON Schema."""
_CHECKING_LIBRARIES: Final = frozenset({"annotated_types", "pydantic", "pydantic_core"})
"""Modules whose objects in `Annotated` constrain values."""
_HARMLESS: Final = frozenset({"DocInfo", "Examples", "SkipJsonSchema", "Unit", "WithJsonSchema"})
"""Annotation classes that only describe a value, without constraining it."""
_NOT_OF_PARAMETERS: Final = frozenset(
    {"alias", "default", "default_factory", "exclude", "init", "serialization_alias", "validation_alias"}
)
"""Arguments of `Field` that have an effect only in pydantic's models."""
_DESCRIPTIONS: Final = frozenset(
    {"annotation", "deprecated", "description", "examples", "json_schema_extra", "repr", "title"}
)
SCHEMA_CONSTRAINTS: Final = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "description", "examples"),
    *("minLength", "maxLength", "pattern", "minItems", "maxItems", "minProperties", "maxProperties"),
)
"""Keywords of the JSON Schemas of pydantic and msgspec that are valid for our JSON of the same type, too."""
_TEXT_WITH_VALUES: Final = frozenset({"assertion_error", "union_tag_invalid", "value_error"})
"""Kinds of pydantic's errors whose message contains the value, or comes from the user's validators."""


class LossyTypeError(Exception):
    """Error: a round trip would change values of a type, or its metadata would have no effect.

    The message says why.
    """


def is_pydantic_type(kind: Any) -> bool:
    """Return whether this is a pydantic model or a pydantic dataclass."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not isinstance(kind, type):
        return False
    return issubclass(kind, pydantic.BaseModel) or (
        dataclasses.is_dataclass(kind) and hasattr(kind, "__pydantic_validator__")
    )


def _make_adapter(annotation: Any) -> Any:
    return sys.modules["pydantic"].TypeAdapter(annotation)


def pydantic_type(kind: Any) -> Converter:
    """Return the converter of a pydantic model or dataclass: pydantic itself writes, reads and validates it.

    Raises:
        LossyTypeError: for a type whose fields are changed by a round trip.
    """
    _check_fields(kind, set())
    name = kind.__name__
    # Made at the first use: a type that the module defines further down may not exist yet.
    adapter = cache(lambda: _make_adapter(kind))

    def accepts(value: object) -> bool:
        return type(value) is kind

    def encode(value: Any) -> Json:
        if not accepts(value):
            check_subclass(kind, name, value, _list_fields)
        try:
            dumped = adapter().dump_python(value, mode="json", by_alias=True, round_trip=True, warnings=False)
        except Exception as error:  # noqa: BLE001 - serializers are the user's
            raise Mismatch(f"{name} cannot be written as JSON: {type(error).__name__}") from None
        encoded = UNDECLARED.encode(dumped)
        again = decode(encoded)
        if not _is_same(value, again):
            raise Mismatch(f"{name} would not come back as it was{_find_changed(value, again)}")
        return encoded

    def decode(value: Json) -> Any:
        # Validated as JSON text: a strict model accepts times and similar types only from JSON.
        return _run_validator(name, lambda: adapter().validate_json(json.dumps(value)))

    def describe(definitions: Definitions) -> Schema:
        return definitions.refer(kind, name, lambda: _schema_of_model(adapter(), name, definitions))

    # A field with an alias has another name in JSON.
    tags = find_tags({name: one.annotation for name, one in _list_fields(kind).items() if not one.alias})
    bases = frozenset({kind})
    return Converter(name, _OBJECT, accepts, encode, decode, bases=bases, tags=tags, describe=describe)


def _is_same(before: Any, after: Any) -> bool:
    """Return whether a round trip changed nothing; an instance of a subclass comes back as its base."""
    if type(before) is type(after):
        return bool(before == after)
    hidden = "__pydantic_extra__", "__pydantic_private__"
    return all(
        getattr(before, name, None) == getattr(after, name, None)
        for name in (*_list_fields(type(after)), *hidden)
    )


def is_pydantic_field(kind: Any) -> bool:
    """Return whether this is a type of pydantic for fields, such as `EmailStr` or `HttpUrl`."""
    return (
        "pydantic" in sys.modules
        and kind.__module__.partition(".")[0] in _FIELD_MODULES
        and hasattr(kind, "__get_pydantic_core_schema__")
    )


def pydantic_field(kind: Any) -> Converter:
    """Return the converter of one of pydantic's field types, such as `EmailStr` or `HttpUrl`.

    pydantic itself encodes, decodes and validates its values.

    Raises:
        LossyTypeError: for a type that a round trip changes, such as `SecretStr`, or pydantic cannot use.
    """
    name = kind.__name__
    if _is_secret(kind):
        raise LossyTypeError("it is written as asterisks; annotate the parameter as pyasynq.Secret")
    try:
        adapter = _make_adapter(kind)
    except Exception as error:  # noqa: BLE001 - pydantic has several for it, as for a missing package
        raise LossyTypeError(f"pydantic cannot use it: {type(error).__name__}") from None
    schema = _adapter_schema(adapter, "{model}")

    def validate(value: Any) -> Any:
        return _run_validator(name, lambda: adapter.validate_python(value))

    def accepts(value: object) -> bool:
        try:
            checked = validate(value)
        except Mismatch:
            return False
        return type(checked) is type(value) and bool(checked == value)

    def encode(value: Any) -> Json:
        checked = validate(value)
        if type(checked) is not type(value) or checked != value:
            raise Mismatch(f"expected {name} as pydantic leaves it, got one that it changes")
        return UNDECLARED.encode(adapter.dump_python(value, mode="json"))

    def decode(value: Json) -> Any:
        return _run_validator(name, lambda: adapter.validate_json(json.dumps(value)))

    kinds = frozenset({_KINDS[schema["type"]]}) if schema.get("type") in _KINDS else UNDECLARED.writes
    return Converter(name, kinds, accepts, encode, decode, describe=lambda _definitions: dict(schema))


def _schema_of_model(adapter: Any, name: str, definitions: Definitions) -> Schema:
    schema = _adapter_schema(adapter, f"#/$defs/{name}.{{model}}")
    inner = schema.pop("$defs", {})
    definitions.schemas |= {f"{name}.{model}": one for model, one in inner.items()}
    return schema or {"title": name, "type": "object"}


def _adapter_schema(adapter: Any, ref_template: str) -> Schema:
    """Return the JSON Schema that pydantic makes for a type; empty if it cannot, as for some validators."""
    try:
        schema: Schema = adapter.json_schema(ref_template=ref_template)
    except Exception:  # noqa: BLE001 - pydantic has several for it, and a schema is an extra
        return {}
    return schema


def _find_changed(before: Any, after: Any) -> str:
    """Return the names of the fields that a round trip changed, for a message."""
    names = [name for name in _list_fields(type(before)) if getattr(before, name) != getattr(after, name)]
    return (
        f": {', '.join(map(repr, names))} would differ"
        if names
        else ": values that are not fields would be lost"
    )


def has_constraints(annotation: Any) -> bool:
    """Return whether an `Annotated` type has metadata that pydantic is to enforce.

    Raises:
        LossyTypeError: for metadata that would have no effect.
    """
    found = [one for one in annotation.__metadata__ if _is_check(one)]
    for one in found:
        name = type(one).__name__
        if name.endswith("Serializer") or _NOT_OF_PARAMETERS & _attributes_set(one):
            raise LossyTypeError(f"nothing would heed {name} here; use a pydantic model with such a field")
    if found and "pydantic" not in sys.modules:
        raise LossyTypeError(f"nothing would enforce {type(found[0]).__name__} here without pydantic")
    return bool(found)


def _is_check(metadata: Any) -> bool:
    kind = metadata if isinstance(metadata, type) else type(metadata)
    if kind.__module__.partition(".")[0] not in _CHECKING_LIBRARIES or kind.__name__ in _HARMLESS:
        return False
    attributes = _attributes_set(metadata)
    return not attributes or not attributes <= _DESCRIPTIONS


def _attributes_set(metadata: Any) -> frozenset[str]:
    """Return the names of the arguments that a pydantic `Field(...)` was given; none for other metadata."""
    return frozenset(getattr(metadata, "_attributes_set", ()))


def constrained(annotation: Any, inner: Converter) -> Converter:
    """Return a converter that also lets pydantic enforce the constraints of an `Annotated` type, both ways.

    Raises:
        LossyTypeError: for metadata that pydantic cannot use with this type.
    """
    try:
        adapter = _make_adapter(annotation)
    except Exception as error:  # noqa: BLE001 - pydantic has several for it, in modules of its own
        raise LossyTypeError(f"pydantic cannot enforce it: {type(error).__name__}") from None

    def check(value: Any) -> Any:
        return _run_validator(inner.name, lambda: adapter.validate_python(value))

    def encode(value: Any) -> Json:
        encoded = inner.encode(value)
        checked = check(value)
        if type(checked) is not type(value) or checked != value:
            raise Mismatch(f"expected {inner.name} as its validators leave it, got one that they change")
        return encoded

    def decode(value: Json) -> Any:
        return check(inner.decode(value))

    def describe(definitions: Definitions) -> Schema:
        told = _adapter_schema(adapter, "{model}")
        return inner.describe(definitions) | {name: told[name] for name in SCHEMA_CONSTRAINTS if name in told}

    reads = inner.reads | inner.kept
    return Converter(inner.name, inner.writes, inner.accepts, encode, decode, reads=reads, describe=describe)


def _run_validator(name: str, validate: Callable[[], Any]) -> Any:
    try:
        return validate()
    except sys.modules["pydantic"].ValidationError as error:
        problems = "; ".join(_without_input(error))
    except Exception as error:  # noqa: BLE001 - validators are the user's
        problems = type(error).__name__
    raise Mismatch(f"{name} refused it: {problems}")


def _without_input(error: Any) -> Iterator[str]:
    """Yield the error's messages without the values, which may be secrets and which str(error) would show."""
    problems: Iterable[Mapping[str, Any]] = error.errors(
        include_url=False, include_context=False, include_input=False
    )
    for one in problems:
        kind: str = one["type"]
        # A name further inside may be the key of a mapping, which is data.
        where = ".".join(
            str(step) if i == 0 or isinstance(step, int) else "..." for i, step in enumerate(one["loc"])
        )
        yield f"{where or 'value'}: {kind if kind in _TEXT_WITH_VALUES else one['msg']}"


# Checks of the declaration of a type.


def _list_fields(kind: Any) -> Mapping[str, Any]:
    found = getattr(kind, "__pydantic_fields__", None)
    fields: Mapping[str, Any] = kind.model_fields if found is None else found
    return fields


def _check_fields(kind: Any, seen: set[Any]) -> None:
    """Refuse a model with a field that a round trip loses; check the models in its fields too."""
    if kind in seen:
        return
    seen.add(kind)
    decorators = getattr(kind, "__pydantic_decorators__", None)
    if decorators is not None and decorators.model_serializers:
        return  # a serializer may write anything; every value is compared when it is sent
    for name, one in _list_fields(kind).items():
        if one.exclude:
            raise LossyTypeError(f"its field {name!r} has exclude=True, and would arrive as its default")
        if not _is_read_again(kind, name, one):
            raise LossyTypeError(f"its field {name!r} is written by a name under which it is not read")
        if _has_serializer(decorators, name, one):
            continue
        for inner in _classes_in(one.annotation):
            if _is_secret(inner):
                raise LossyTypeError(
                    f"its field {name!r} holds {inner.__name__}, which is written as asterisks: pass a name "
                    "and read the secret in the handler, or give the field a serializer"
                )
            if is_pydantic_type(inner):
                _check_fields(inner, seen)


def _is_read_again(kind: Any, name: str, one: Any) -> bool:
    config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
    written = one.serialization_alias or name
    read = one.validation_alias
    if read is None:
        return written == name
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    return written in getattr(read, "choices", [read]) or bool(by_name and written == name)


def _has_serializer(decorators: Any, name: str, one: Any) -> bool:
    if any(type(metadata).__name__.endswith("Serializer") for metadata in one.metadata):
        return True
    written = decorators.field_serializers.values() if decorators is not None else ()
    return any(name in serializer.info.fields or "*" in serializer.info.fields for serializer in written)


def _classes_in(annotation: Any) -> Iterator[type]:
    """Yield the classes in an annotation, and the classes in the fields of its plain dataclasses."""
    waiting, seen = [annotation], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        waiting += typing.get_args(one)
        kind = typing.get_origin(one) or one
        if isinstance(kind, type):
            yield kind
            if dataclasses.is_dataclass(kind) and not is_pydantic_type(kind):
                # An undefined name is not an error here: each value is compared when it is sent.
                with suppress(NameError):
                    waiting += typing.get_type_hints(kind, include_extras=True).values()


def _is_secret(kind: type) -> bool:
    pydantic = sys.modules["pydantic"]
    secrets = [getattr(pydantic, name, None) for name in ("Secret", "SecretBytes", "SecretStr")]
    return issubclass(kind, tuple(one for one in secrets if one is not None))
