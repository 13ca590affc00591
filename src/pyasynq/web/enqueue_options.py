"""Options of a task as form fields: their labels, and reading the user's input. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyasynq._visible_text import visible
from pyasynq.web.schema_form import read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import tzinfo

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART: Final = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_PLAIN: Final = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,6})?")
_LONGEST_DURATION: Final = 3_153_600_000.0
"""Longest accepted duration: a hundred years in seconds; a longer one is a typing error."""
_DURATION_HINT: Final = "such as 90, 15m or 1h30m"
DECLARED: Final = ("max_retry", "timeout", "retention", "unique", "until")
"""Options for which a worker's declaration of the type gives the default value."""


@dataclass(frozen=True, slots=True)
class OptionField:
    """Form field of one task option."""

    name: str
    label: str
    hint: str
    kind: str = "text"
    value: str = ""
    placeholder: str = ""
    error: str = ""


_FIELDS: Final = (
    OptionField("process_in", "Run in", f"Time from now, {_DURATION_HINT}; at once if empty."),
    OptionField("process_at", "Run at", "In your time zone, {zone}.", "datetime-local"),
    OptionField("max_retry", "Retries", "How often it is tried again after a failure."),
    OptionField("timeout", "Timeout", f"Longest run of an attempt, {_DURATION_HINT}."),
    OptionField("retention", "Keep for", f"How long it is kept after it succeeded, {_DURATION_HINT}."),
    OptionField("unique", "Unique for", f"While an equal task may not be enqueued, {_DURATION_HINT}."),
    OptionField("task_id", "Id", "A random one if empty."),
    OptionField("headers", "Headers", "A JSON object of texts.", "json"),
)


def build_option_fields(
    form: Mapping[str, str], errors: Mapping[str, str], declared: Mapping[str, Any], zone: str
) -> tuple[OptionField, ...]:
    """Return the form fields with the user's input, the errors, and the defaults of the task type."""
    return tuple(
        OptionField(
            one.name,
            one.label,
            one.hint.replace("{zone}", zone),
            one.kind,
            form.get(one.name, ""),
            visible(str(declared[one.name]))[:40] if one.name in DECLARED and one.name in declared else "",
            errors.get(one.name, ""),
        )
        for one in _FIELDS
    )


def read_options(form: Mapping[str, str], zone: tzinfo) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options read from a form, and error messages by option. Empty fields are left out."""
    options: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, read in _READERS.items():
        text = form.get(name, "").strip()
        if not text:
            continue
        try:
            options[name] = read(text, zone)
        except ValueError as error:
            errors[name] = str(error)
    if "process_in" in options and "process_at" in options:
        errors["process_at"] = "is given next to “Run in”; empty one of them"
    return options, errors


def read_duration(text: str) -> float:
    """Parse a duration into seconds. Raises `ValueError` for any other text."""
    if _PLAIN.fullmatch(text):
        seconds = float(text)
    else:
        parts = _PART.findall(text)
        if not parts or "".join(map("".join, parts)) != text:
            raise ValueError(f"must be a duration, {_DURATION_HINT}")
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > _LONGEST_DURATION:
        raise ValueError("must be at most a hundred years")
    return seconds


def read_moment(text: str, zone: tzinfo) -> datetime:
    """Parse a time, by default in the viewer's time zone. Raises `ValueError` for any other text."""
    try:
        moment = datetime.fromisoformat(text)
        # A zone's offset may move the time beyond the years of `datetime`.
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("must be a date and a time, such as 2030-12-31T09:30") from None


def _read_duration(text: str, _: tzinfo) -> float:
    return read_duration(text)


def read_count(text: str) -> int:
    """Parse a whole number from 0 on. Raises `ValueError` for any other text."""
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise ValueError("must be a whole number from 0 on")
    return int(text)


def _read_max_retry(text: str, _: tzinfo) -> int:
    return read_count(text)


def _read_headers(text: str, _: tzinfo) -> dict[str, str]:
    headers = read_json(text)
    if not isinstance(headers, dict) or not all(isinstance(one, str) for one in headers.values()):
        raise ValueError("must be a JSON object with texts as values")
    return headers


def _read_id(text: str, _: tzinfo) -> str:
    return text


_READERS: Final[Mapping[str, Callable[[str, tzinfo], Any]]] = {
    "process_in": _read_duration,
    "process_at": read_moment,
    "max_retry": _read_max_retry,
    "timeout": _read_duration,
    "retention": _read_duration,
    "unique": _read_duration,
    "task_id": _read_id,
    "headers": _read_headers,
}
