"""Text form of the options of a scheduler entry: `Queue("low")`, `Timeout(1m30s)`.

Schedulers publish them for people and dashboards; inspectors parse them. Asynq's own parser stops at the
first closing parenthesis, so a parenthesis inside a text is written as an escape, which it understands.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from pyasynq._go_duration import format_go_duration, parse_go_duration, to_timedelta
from pyasynq._wire.go_quote import quote_go, unquote_go

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

OptionValue = int | str | timedelta | datetime | tuple[str, str]
"""Value of an option: number of retries, name, duration, instant, or key and value of a header."""


class OptionName(StrEnum):
    """The options that have a text form."""

    MAX_RETRY = "MaxRetry"
    QUEUE = "Queue"
    TASK_ID = "TaskID"
    TIMEOUT = "Timeout"
    DEADLINE = "Deadline"
    UNIQUE = "Unique"
    PROCESS_AT = "ProcessAt"
    PROCESS_IN = "ProcessIn"
    RETENTION = "Retention"
    GROUP = "Group"
    HEADER = "Header"


class Option(NamedTuple):
    """An option and its value."""

    name: OptionName
    value: OptionValue


class UnknownOption(NamedTuple):
    """A text that is not a known option, and the reason."""

    text: str
    reason: str


class _Kind(NamedTuple):
    """One kind of option value: its Python type, and how to format and parse it."""

    type: type
    format: Callable[..., str]
    parse: Callable[[str], OptionValue]


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DATE = re.compile(
    rf"(?:{'|'.join(_DAYS)}) (?P<month>{'|'.join(_MONTHS)}) +(?P<day>[0-9]{{1,2}})"
    r" (?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2}) (?P<zone>\S+) (?P<year>[0-9]{4})"
)
_ZONE = re.compile(r"(?P<sign>[+-])(?P<hours>[0-9]{2})(?P<minutes>[0-9]{2})?")
# Go's JSON is meant to be safe inside HTML, so these are escaped; escaping the parenthesis is our addition.
_HEADER_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029)"})


def format_option(name: OptionName, value: OptionValue) -> str:
    """Return the text of one option. Instants are written in UTC, without fractions of a second.

    Raises TypeError when the value is not of the option's type, and ValueError when it has no text form: a
    naive datetime, a duration over 292 years, a text with a lone surrogate.
    """
    kind = _KINDS[name]
    if not isinstance(value, kind.type) or isinstance(value, bool):
        message = f"{name} takes a value of type {kind.type.__name__}, not {type(value).__name__}"
        raise TypeError(message)
    try:
        return f"{name}({kind.format(value)})"
    except ValueError as error:
        message = f"{name}: {error}"
        raise ValueError(message) from error


def format_options(options: Iterable[tuple[OptionName, OptionValue]]) -> tuple[str, ...]:
    """Return the text forms of some options, in their order. Raises what `format_option` raises."""
    return tuple(format_option(name, value) for name, value in options)


def parse_option(text: str) -> Option | UnknownOption:
    """Parse the text of an option; return an `UnknownOption` with the reason for other text. Never raises.

    Fractions of a microsecond are cut off. Instants lose fractions of a second, which Go does not write.
    """
    name, parenthesis, rest = text.strip().partition("(")
    if not parenthesis or not rest.endswith(")"):
        return UnknownOption(text, "it does not have the form Name(value)")
    try:
        option = OptionName(name)
    except ValueError:
        return UnknownOption(text, f"no option is named {name!r}")
    try:
        return Option(option, _KINDS[option].parse(rest[:-1]))
    except ValueError as error:
        return UnknownOption(text, str(error))


def _parse_integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        message = f"{text!r} is not a whole number"
        raise ValueError(message)
    return int(text)


def _format_text(text: str) -> str:
    # quote_go never writes a parenthesis as part of an escape.
    return quote_go(text).replace(")", r"\x29")


def _parse_duration(text: str) -> timedelta:
    return to_timedelta(parse_go_duration(text))


def _format_instant(instant: datetime) -> str:
    if instant.utcoffset() is None:
        message = f"{instant.isoformat()} has no time zone"
        raise ValueError(message)
    utc = instant.astimezone(UTC)
    # Not strftime: its names follow the locale of the process.
    day, month = _DAYS[utc.weekday()], _MONTHS[utc.month - 1]
    return f"{day} {month} {utc.day:2} {utc:%H:%M:%S} UTC {utc.year:04}"


def _parse_instant(text: str) -> datetime:
    match = _DATE.fullmatch(text)
    if match is None:
        message = f"{text!r} is not a date of the form Tue Nov 14 22:13:20 UTC 2023"
        raise ValueError(message)
    month = _MONTHS.index(match["month"]) + 1
    day, hour, minute, second = (int(match[part]) for part in ("day", "hour", "minute", "second"))
    zone = _parse_zone(match["zone"])
    return datetime(int(match["year"]), month, day, hour, minute, second, tzinfo=zone)


def _parse_zone(text: str) -> timezone:
    if text in ("UTC", "GMT"):
        return UTC
    match = _ZONE.fullmatch(text)
    if match is None:
        # CST is three zones; the text does not say which one.
        message = f"the time zone {text!r} has no certain distance from UTC"
        raise ValueError(message)
    distance = timedelta(hours=int(match["hours"]), minutes=int(match["minutes"] or 0))
    return timezone(-distance if match["sign"] == "-" else distance)


def _format_header(header: tuple[str, str]) -> str:
    key, value = header
    _require_unicode(key, value)
    return json.dumps([key, value], ensure_ascii=False, separators=(",", ":")).translate(_HEADER_ESCAPES)


def _parse_header(text: str) -> tuple[str, str]:
    try:
        pair = json.loads(text)
    except (ValueError, RecursionError):
        pair = None
    match pair:
        case [str(key), str(value)]:
            _require_unicode(key, value)
            return key, value
    message = f"{text!a} is not a JSON array of two texts"
    raise ValueError(message)


def _require_unicode(key: str, value: str) -> None:
    try:
        f"{key}{value}".encode()
    except UnicodeEncodeError:
        message = f"the header {key!a} is not valid Unicode (a lone surrogate)"
        raise ValueError(message) from None


_NUMBER = _Kind(int, str, _parse_integer)
_TEXT = _Kind(str, _format_text, unquote_go)
_DURATION = _Kind(timedelta, format_go_duration, _parse_duration)
_INSTANT = _Kind(datetime, _format_instant, _parse_instant)
_HEADER = _Kind(tuple, _format_header, _parse_header)

_KINDS = {
    OptionName.MAX_RETRY: _NUMBER,
    OptionName.QUEUE: _TEXT,
    OptionName.TASK_ID: _TEXT,
    OptionName.TIMEOUT: _DURATION,
    OptionName.DEADLINE: _INSTANT,
    OptionName.UNIQUE: _DURATION,
    OptionName.PROCESS_AT: _INSTANT,
    OptionName.PROCESS_IN: _DURATION,
    OptionName.RETENTION: _DURATION,
    OptionName.GROUP: _TEXT,
    OptionName.HEADER: _HEADER,
}
