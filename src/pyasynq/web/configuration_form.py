"""Form for the configuration of a task type: its fields, reading the input, and differences. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from difflib import ndiff
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import parse_whole_number
from pyasynq._visible_text import visible, visible_lines
from pyasynq.errors import InvalidOptionError
from pyasynq.gateway.configurations import TaskConfiguration, parse_task_configuration
from pyasynq.web.schema_form import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

_KIND: Final = "worker"
_KINDS: Final = frozenset({_KIND, "http"})
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))
_DURATIONS: Final = frozenset({"timeout", "retention"})
_NUMBERS: Final = frozenset({"max_run", "max_pending", "max_retry"})
_LONGEST_SCHEMA: Final = 64_000
_LONGEST_TEXT: Final = 1_000
_MOST_LINES: Final = 2_000
"""Maximum number of lines of two schemas together for a line-by-line diff; longer schemas are shown one after
the other."""


@dataclass(frozen=True, slots=True)
class ConfigurationField:
    """A field of the form that edits the configuration of a task type."""

    name: str
    label: str
    hint: str
    kind: str = "text"
    """Type of the input: `text`, `numeric`, `switch`, or `area` for several lines."""
    unset: str = "not set"
    """Text that is shown if the field is not set."""
    value: str = ""
    error: str = ""


FORM_FIELDS: Final = (
    ConfigurationField(
        "max_run", "At once", "Tasks that run at once, in all workers together.", "numeric", "no limit"
    ),
    ConfigurationField(
        "max_pending",
        "Waiting at most",
        "Waiting tasks from which the service takes no more.",
        "numeric",
        "no limit",
    ),
    ConfigurationField(
        "rate", "Rate", "Starts per time, in all workers together: 50/s, 100/m+10.", unset="no limit"
    ),
    ConfigurationField(
        "ordered", "Ordered", "One task after the other, in the order of arrival.", "switch", unset="no"
    ),
    ConfigurationField(
        "timeout", "Timeout", "Longest run of an attempt: 30s, 10m, 1h30m.", unset="30 minutes"
    ),
    ConfigurationField("max_retry", "Retries", "Tries after the first one failed.", "numeric", "25"),
    ConfigurationField(
        "retry",
        "Delays",
        "Waits between attempts: 5s, 1m, 10m. Or first 5s, factor 2, most 1h, jitter 0.1.",
        unset="the back-off of Asynq",
    ),
    ConfigurationField(
        "retention", "Keep for", "Time for which a task is kept after its success: 24h.", unset="not kept"
    ),
    ConfigurationField("schema", "Schema of params", "JSON Schema, draft 2020-12.", "area", "any params"),
)
"""All fields that can be edited, in the order of the form."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A field whose value differs between the compared configurations."""

    label: str
    texts: tuple[str, ...]
    """Value of the field in each compared configuration, as text."""
    lines: tuple[tuple[str, str], ...] = ()
    """Lines of a long value: `+`, `-` or empty, and the text."""
    by: str = ""
    """Author of the change since both users opened the form: `you`, `the other`, `both` or `both, alike`."""


def is_editable(content: Mapping[str, Any]) -> bool:
    """Return whether this version of pyasynq knows the kind and every field of a stored configuration."""
    known = {one.name for one in fields(TaskConfiguration)}
    return content.keys() <= known and content.get("kind", _KIND) in tuple(_KINDS)


def select_fields(content: Mapping[str, Any], *, shown: bool = True) -> dict[str, Any]:
    """Return the fields of a configuration that the form shows; with `shown=False`, all other fields."""
    names = {one.name for one in FORM_FIELDS}
    return {name: value for name, value in content.items() if (name in names) == shown}


def write_field(name: str, value: object) -> str:
    """Return a stored value as text for its field in the form."""
    if value is None or value is False:
        return ""
    if name == "ordered":
        return "yes"
    if name in _DURATIONS:
        return write_duration(value)
    if name == "retry":
        return _write_retry(value)
    if name == "schema":
        return json.dumps(value, indent=2, ensure_ascii=False)[:_LONGEST_SCHEMA]
    return str(value)[:_LONGEST_TEXT]


def write_form(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each field of the form for a stored configuration."""
    return {one.name: write_field(one.name, content.get(one.name)) for one in FORM_FIELDS}


def write_duration(value: object) -> str:
    """Return seconds as text for the form: `90` is `1m30s`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)[:_LONGEST_TEXT]
    if value < 1 or (isinstance(value, float) and not value.is_integer()):
        return f"{value:g}s"
    rest, text = int(value), ""
    for seconds, unit in _UNITS:
        if rest >= seconds:
            text += f"{rest // seconds}{unit}"
            rest %= seconds
    return text[:_LONGEST_TEXT] + (f"{rest}s" if rest else "")


def _write_retry(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(write_duration, value[:100]))
    if isinstance(value, dict):
        return ", ".join(
            f"{name} {write_duration(one) if name in {'first', 'most'} else one}"
            for name, one in list(value.items())[:10]
        )
    return str(value)[:_LONGEST_TEXT]


def build_form(texts: Mapping[str, str], errors: Mapping[str, str]) -> tuple[ConfigurationField, ...]:
    """Return the fields of the form with the text and the error message of each."""
    return tuple(
        ConfigurationField(
            one.name,
            one.label,
            one.hint,
            one.kind,
            one.unset,
            texts.get(one.name, ""),
            errors.get(one.name, ""),
        )
        for one in FORM_FIELDS
    )


def read_form(
    name: str, texts: Mapping[str, str], stored: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the configuration to store for a submitted form, and the error message of each wrong field.

    An empty field is not set. The service's own reader checks each field.

    Args:
        name: name of the type.
        texts: typed texts by field.
        stored: the stored configuration; its fields that the form does not show are kept.
    """
    content: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for one in FORM_FIELDS:
        text = texts.get(one.name, "").strip()
        if not text:
            continue
        try:
            value = _read_text(one, text)
            parse_task_configuration("", {one.name: value}, name=_KIND)
            content[one.name] = value
        except InvalidOptionError as error:
            errors[one.name] = _sentence(one.name, error)
        except ImportError:
            errors[one.name] = "cannot be checked here: it needs the extra service, pyasynq[service]"
        except ValueError as error:
            errors[one.name] = str(error)
    if errors:
        return {}, errors
    others = select_fields(stored, shown=False)
    try:
        whole = parse_task_configuration("", {**others, **content, "managed": "api"}, name=name)
    except InvalidOptionError as error:
        place = error.option.partition(".")[0]
        return {}, {place: _sentence(place, error)}
    return whole.to_json(), {}


def _read_text(field: ConfigurationField, text: str) -> Any:
    """Parse the text of a field. Raises `ValueError` with a sentence for an invalid text."""
    if field.kind == "switch":
        return True
    if field.name in _NUMBERS:
        number = parse_whole_number(text)
        if number is None:
            raise ValueError("must be a whole number")
        return number
    if field.name == "retry":
        return _read_retry(text)
    return read_json(text) if field.name == "schema" else text


def _read_retry(text: str) -> Any:
    parts = [part.strip() for part in text.split(",")]
    if not any(" " in part for part in parts):
        return parts
    rule: dict[str, Any] = {}
    for part in parts:
        name, _, value = part.partition(" ")
        if name in rule:
            raise ValueError(f"names {visible(name)} twice")
        rule[name] = value.strip()
        if name in {"factor", "jitter"}:
            try:
                rule[name] = float(value)
            except ValueError:
                raise ValueError(f"{name} must be a number") from None
    return rule


def _sentence(field: str, error: InvalidOptionError) -> str:
    """Return the remedy of an error, with the part of the field that is wrong."""
    part = error.option.removeprefix(field).removeprefix(".")
    if part.startswith("["):
        part = f"delay {int(part[1:-1]) + 1}"
    return visible(f"{part} {error.remedy}" if part and part != error.option else error.remedy)


def show_field(name: str, content: Mapping[str, Any]) -> str:
    """Return the value of a field as readable text; for an unset field, its effect, such as `no limit`."""
    text = write_field(name, content.get(name))
    return visible_lines(text) or next(one.unset for one in FORM_FIELDS if one.name == name)


def find_differences(*sides: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the fields that differ between two or three configurations; for three, also who changed each.

    Three configurations are the one that both users opened, the stored one, and the one to store.
    """
    found = []
    for one in FORM_FIELDS:
        values = [side.get(one.name) or None for side in sides]
        if all(value == values[0] for value in values):
            continue
        texts = tuple(show_field(one.name, side) for side in sides)
        by = _find_author(*values) if len(values) > 2 else ""
        lines = _compare_lines(texts[-2], texts[-1]) if one.kind == "area" else ()
        found.append(Difference(one.label, texts, lines, by))
    return tuple(found)


def _find_author(base: object, theirs: object, mine: object) -> str:
    if theirs == mine:
        return "both, alike"
    return "the other" if mine == base else "you" if theirs == base else "both"


def _compare_lines(before: str, after: str) -> tuple[tuple[str, str], ...]:
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > _MOST_LINES:
        return (*(("-", line) for line in old), *(("+", line) for line in new))
    return tuple((line[0].strip(), line[2:]) for line in ndiff(old, new) if not line.startswith("?"))


def merge_changes(
    base: Mapping[str, Any], theirs: Mapping[str, Any], mine: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the stored configuration with the user's own changes applied (three-way merge)."""
    merged = dict(theirs)
    for one in FORM_FIELDS:
        if mine.get(one.name) != base.get(one.name):
            merged.pop(one.name, None)
            if one.name in mine:
                merged[one.name] = mine[one.name]
    return merged
