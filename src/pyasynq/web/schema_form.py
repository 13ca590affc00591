"""Forms from JSON Schemas: a field for each property of a payload, and errors in the input. Pure.

Schemas come from Redis, so they may contain anything: an unknown construct becomes a field for JSON.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyasynq._visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX: Final = "p:"
"""Prefix of the form names of payload fields, so that they cannot clash with other fields of the form."""
MOST_FIELDS: Final = 100
"""Maximum number of properties of a schema that are shown as fields; with more, the form shows JSON only."""
_DEEPEST: Final = 32
_MOST_ERRORS: Final = 20
_LONGEST_CHOICE: Final = 200
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_SCALARS: Final = ("string", "integer", "number", "boolean")
_WORDS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


@dataclass(frozen=True, slots=True)
class PayloadField:
    """Form field for one property of a payload."""

    name: str
    """Name of the field in the form."""
    label: str
    kind: str
    """`string`, `integer`, `number`, `choice`, or `json` for every other type."""
    required: bool
    is_nullable: bool
    is_secret: bool
    hint: str
    choices: tuple[tuple[str, str], ...]
    """JSON text and label of each choice."""
    value: str = ""
    error: str = ""


class NotShownAsFieldsError(ValueError):
    """Error: a JSON value has more than the fields of a form can show."""


def build_fields(
    schema: object, values: Mapping[str, str], errors: Mapping[str, str]
) -> tuple[PayloadField, ...]:
    """Return the fields of an object's schema; none for a schema of anything else.

    Args:
        schema: JSON Schema of the payload.
        values: typed texts by form name.
        errors: error messages by form name.
    """
    root = schema if isinstance(schema, dict) else {}
    properties = _mapping(resolve_schema(root, root).get("properties"))
    if not 0 < len(properties) <= MOST_FIELDS:
        return ()
    needed = resolve_schema(root, root).get("required")
    required = {name for name in needed if isinstance(name, str)} if isinstance(needed, list) else set()
    return tuple(
        _build_field(root, name, described, values, errors, required=name in required)
        for name, described in properties.items()
    )


def _build_field(
    root: Mapping[str, Any],
    name: str,
    described: object,
    values: Mapping[str, str],
    errors: Mapping[str, str],
    *,
    required: bool,
) -> PayloadField:
    facts, is_nullable = _without_null(root, resolve_schema(root, described))
    choices = _choices(facts)
    kind = facts.get("type")
    if isinstance(kind, list) and "string" in kind and all(one in _SCALARS for one in kind):
        kind = "string"
    if choices:
        kind = "choice"
    elif kind not in ("string", "integer", "number"):
        kind = "json"
    key = PREFIX + name
    return PayloadField(
        name=key,
        label=visible(name),
        kind=str(kind),
        required=required,
        is_nullable=is_nullable,
        is_secret=facts.get("writeOnly") is True,
        hint=_hint(facts, described, is_nullable=is_nullable, required=required),
        choices=choices,
        value=values.get(key, ""),
        error=errors.get(key, ""),
    )


def read_fields(schema: object, form: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the payload typed into a form, and an error message for each wrong field, by its form name.

    An empty field is left out of the payload; if it is required and nullable, it becomes null.
    """
    payload: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for field in build_fields(schema, form, {}):
        name, text = field.name.removeprefix(PREFIX), form.get(field.name, "")
        if not text.strip():
            if field.required and field.is_nullable:
                payload[name] = None
            elif field.required:
                errors[field.name] = "is required; edit as JSON to give an empty text"
            continue
        try:
            payload[name] = _read_text(field, text)
        except ValueError as error:
            errors[field.name] = str(error)
    for path, sentence in check_value(schema, payload):
        key = PREFIX + (path[0] if path else "")
        if path and key not in errors and path[0] in payload:
            errors[key] = f"{_path_text(path[1:])}{sentence}"
    return payload, errors


def write_fields(schema: object, payload: object) -> dict[str, str]:
    """Return the text of each form field for a payload.

    Raises:
        NotShownAsFieldsError: the payload is not an object, or no field can show one of its properties.
    """
    if not isinstance(payload, dict):
        raise NotShownAsFieldsError("it is not a JSON object")
    fields = {field.name: field for field in build_fields(schema, {}, {})}
    texts: dict[str, str] = {}
    for name, value in payload.items():
        field = fields.get(PREFIX + name)
        if field is None:
            raise NotShownAsFieldsError(f"the form has no field for {visible(name)}")
        is_plain = field.kind == "string" and isinstance(value, str)
        is_other = field.kind == "string" and isinstance(value, (int, float))
        if is_other or (is_plain and (not value.strip() or "\n" in value or "\r" in value)):
            what = "would make a text" if is_other else "cannot show the text"
            raise NotShownAsFieldsError(f"a field {what} of {visible(name)}")
        if value is not None or field.kind not in ("string", "integer", "number"):
            texts[field.name] = value if is_plain else json.dumps(value, ensure_ascii=False)
    return texts


def read_json(text: str) -> Any:
    """Parse JSON. Raises `ValueError` with a sentence that names the position, but repeats no value."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"is not JSON: {error.msg.lower()} in line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def check_value(schema: object, value: object) -> list[tuple[tuple[str, ...], str]]:
    """Return at most 20 violations of a schema, each as path and sentence; unknown keywords are ignored."""
    root = schema if isinstance(schema, dict) else {}
    found = []
    for problem in _check(root, root, value, (), 0):
        found.append(problem)
        if len(found) == _MOST_ERRORS:
            break
    return found


_Problem = tuple[tuple[str, ...], str]


def _check(
    root: Mapping[str, Any], schema: object, value: Any, path: tuple[str, ...], depth: int
) -> Iterator[_Problem]:
    if depth > _DEEPEST:
        return
    facts = resolve_schema(root, schema)
    parts = facts.get("anyOf")
    if isinstance(parts, list) and parts:
        tries = [next(_check(root, part, value, path, depth + 1), None) for part in parts[:_MOST_ERRORS]]
        if None not in tries:
            yield path, "must " + " or ".join(dict.fromkeys(_name_type(root, part) for part in parts[:5]))
            return
    wanted = facts.get("type")
    if isinstance(wanted, str) and wanted in _TYPES and not _is_of_type(value, wanted):
        yield path, f"must be {_WORDS[wanted]}"
        return
    choices = [facts["const"]] if "const" in facts else facts.get("enum")
    if isinstance(choices, list) and not any(_is_same(value, choice) for choice in choices):
        yield path, "must be one of the choices"
        return
    yield from _check_bounds(facts, value, path)
    if isinstance(value, dict):
        yield from _check_object(root, facts, value, path, depth)
    if isinstance(value, list) and isinstance(facts.get("items"), dict):
        for at, item in enumerate(value):
            yield from _check(root, facts["items"], item, (*path, str(at)), depth + 1)


def _check_object(
    root: Mapping[str, Any],
    facts: Mapping[str, Any],
    value: dict[str, Any],
    path: tuple[str, ...],
    depth: int,
) -> Iterator[_Problem]:
    properties = _mapping(facts.get("properties"))
    required = facts.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            yield (*path, name), "is required"
    others = facts.get("additionalProperties")
    for name, item in value.items():
        if name in properties:
            yield from _check(root, properties[name], item, (*path, name), depth + 1)
        elif others is False:
            yield (*path, visible(name)), "is not a field of this type"
        elif isinstance(others, dict):
            yield from _check(root, others, item, (*path, name), depth + 1)


def _check_bounds(facts: Mapping[str, Any], value: object, path: tuple[str, ...]) -> Iterator[_Problem]:
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    length = len(value) if isinstance(value, (str, list)) else None
    sizes = ("minLength", "maxLength") if isinstance(value, str) else ("minItems", "maxItems")
    unit = "characters" if isinstance(value, str) else "items"
    for name, measured, words in (
        ("minimum", number, "at least {}"),
        ("maximum", number, "at most {}"),
        ("exclusiveMinimum", number, "more than {}"),
        ("exclusiveMaximum", number, "less than {}"),
        (sizes[0], length, f"at least {{}} {unit} long"),
        (sizes[1], length, f"at most {{}} {unit} long"),
    ):
        bound = facts.get(name)
        if measured is None or isinstance(bound, bool) or not isinstance(bound, (int, float)):
            continue
        is_low = name.startswith(("min", "exclusiveMin"))
        is_open = name.startswith("exclusive")
        if (measured < bound if is_low else measured > bound) or (is_open and measured == bound):
            yield path, f"must be {words.format(bound)}"


def resolve_schema(root: Mapping[str, Any], schema: object) -> Mapping[str, Any]:
    """Return a schema with its `$ref` to `$defs` resolved."""
    facts = _mapping(schema)
    for _ in range(_DEEPEST):
        reference = facts.get("$ref")
        if not isinstance(reference, str):
            return facts
        facts = _mapping(_mapping(root.get("$defs")).get(reference.removeprefix("#/$defs/")))
    return {}


def _without_null(root: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return a schema without its null alternative, and whether it had one."""
    parts = facts.get("anyOf")
    if isinstance(parts, list):
        others = [part for part in parts if resolve_schema(root, part).get("type") != "null"]
        if len(others) == 1 and len(parts) == 2:
            return resolve_schema(root, others[0]), True
        return facts, len(others) < len(parts)
    return facts, facts.get("type") == "null"


def _choices(facts: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    values = [facts["const"]] if "const" in facts else facts.get("enum")
    if facts.get("type") == "boolean" and values is None:
        values = [True, False]
    if not isinstance(values, list) or not 0 < len(values) <= _LONGEST_CHOICE:
        return ()
    texts = [(json.dumps(value), value) for value in values]
    return tuple(
        (text, visible(value if isinstance(value, str) else text)[:_LONGEST_CHOICE]) for text, value in texts
    )


def _hint(facts: Mapping[str, Any], described: object, *, is_nullable: bool, required: bool) -> str:
    words = []
    about = _mapping(described).get("description") or facts.get("description")
    if isinstance(about, str):
        words.append(visible(about[:_LONGEST_CHOICE]))
    kind = facts.get("format") or facts.get("contentEncoding") or facts.get("type")
    if isinstance(kind, str) and kind not in ("string", "boolean"):
        words.append(
            visible(_WORDS.get(kind, kind)[:40]) + (" as JSON" if kind in {"array", "object"} else "")
        )
    if "default" in _mapping(described):
        default = _mapping(described)["default"]
        text = default if isinstance(default, str) and default.strip() else json.dumps(default)
        words.append(f"{visible(text[:100])} if empty")
    elif is_nullable and required:
        words.append("null if empty")
    elif not required:
        words.append("optional")
    return ", ".join(words)


def _read_text(field: PayloadField, text: str) -> Any:
    match field.kind:
        case "string":
            return text
        case "integer":
            try:
                return int(text.strip())
            except ValueError:
                raise ValueError("must be a whole number") from None
        case "number":
            try:
                number = float(text.strip())
            except ValueError:
                raise ValueError("must be a number") from None
            if not math.isfinite(number):
                raise ValueError("must be a finite number")
            return int(number) if number.is_integer() and text.strip().lstrip("+-").isdecimal() else number
        case _:
            return read_json(text)


def _name_type(root: Mapping[str, Any], part: object) -> str:
    kind = resolve_schema(root, part).get("type")
    return f"be {_WORDS[kind]}" if isinstance(kind, str) and kind in _WORDS else "fit another form"


def _is_of_type(value: object, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, _TYPES[wanted]) or (
        wanted == "integer" and isinstance(value, float) and value.is_integer()
    )


def _is_same(value: object, choice: object) -> bool:
    return value == choice and isinstance(value, bool) == isinstance(choice, bool)


def _path_text(path: tuple[str, ...]) -> str:
    return f"{visible('.'.join(path))[:_LONGEST_CHOICE]} " if path else ""


def _refuse_constant(name: str) -> None:
    raise ValueError(f"has {name}, which JSON has not")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
