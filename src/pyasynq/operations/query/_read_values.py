"""Parsers of query values, by the kind of their field."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._clock import Instant
from pyasynq._visible_text import visible
from pyasynq.errors import QueryError
from pyasynq.errors import nearest as nearest_of
from pyasynq.task import TaskState

from ._fields import Field, Kind
from ._values import (
    MICROSECONDS,
    Anything,
    Contains,
    Exact,
    Glob,
    NumberRange,
    Signature,
    TimePeriod,
    TimePoint,
    ValueTest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?")
_SIZE: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)([kmg]?)b?", re.IGNORECASE)
_SIZES: Final = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_DURATION: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?(ms|min|s|m|h|d|w)")
_UNITS: Final = {
    "ms": 1_000,
    "s": MICROSECONDS,
    "m": 60 * MICROSECONDS,
    "min": 60 * MICROSECONDS,
    "h": 3_600 * MICROSECONDS,
    "d": 86_400 * MICROSECONDS,
    "w": 604_800 * MICROSECONDS,
}
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LONGEST: Final = 36_525 * 86_400 * MICROSECONDS
"""Maximum duration in microseconds, a hundred years; a longer duration is refused as a typing error."""
_OPERATORS: Final = (">=", "<=", ">", "<")
_SIGNATURE: Final = re.compile(r"[0-9a-f]{2,8}")


class RawValue(NamedTuple):
    """A value as written in the query.

    Attributes:
        text: text without quotes and escapes.
        is_quoted: whether it is in quotes, so that no character has a special meaning.
        start: its position in the query, in characters from 0.
        length: its length in the query in characters, quotes included.
    """

    text: str
    is_quoted: bool
    start: int
    length: int


class _Moment(NamedTuple):
    """A time as written in a query, such as a whole day: the first and last microsecond that it covers."""

    first: TimePoint
    last: TimePoint


def read_value(field: Field, name: str, raw: RawValue) -> ValueTest:
    """Parse a value; return the test that the value of a task must pass.

    Args:
        field: field that is compared with the value.
        name: the field as the query spells it, with its path.
        raw: the value.

    Raises:
        QueryError: when the field does not accept the value.
    """
    if raw.text == "*" and not raw.is_quoted and field.kind is not Kind.STATE:
        return Anything()
    return _READERS[field.kind](name, raw)


def _read_state(name: str, raw: RawValue) -> ValueTest:
    states = [state.value for state in TaskState]
    if raw.text in states:
        return Exact(raw.text)
    found = nearest_of(raw.text, states).split("'")
    guess = f"{name}:{found[1]}" if len(found) > 1 else ""
    raise _error(raw, f"There is no state {visible(raw.text)}; the states are {', '.join(states)}.", guess)


def _read_name(_name: str, raw: RawValue) -> ValueTest:
    if raw.is_quoted or "*" not in raw.text:
        return Exact(raw.text, is_quoted=raw.is_quoted)
    return Glob(tuple(raw.text.split("*")))


def _read_id(_name: str, raw: RawValue) -> ValueTest:
    if not raw.is_quoted and "*" in raw.text:
        raise _error(
            raw, "An id is looked up as a whole; for a part of one write the text alone.", f'"{raw.text}"'
        )
    if not raw.text.strip():
        raise _error(raw, "An id has one or more characters that are not blank.", "")
    return Exact(raw.text, is_quoted=raw.is_quoted)


def _read_text(_name: str, raw: RawValue) -> ValueTest:
    return Contains(raw.text, raw.text.encode())


def _read_error(name: str, raw: RawValue) -> ValueTest:
    if raw.is_quoted or not raw.text.startswith("sig:"):
        return _read_text(name, raw)
    digits = raw.text.removeprefix("sig:")
    if not _SIGNATURE.fullmatch(digits):
        sentence = "A signature is two to eight of the digits 0-9 and a-f; for text put it in quotes."
        raise _error(raw, sentence, f'{name}:"{raw.text}"')
    return Signature(digits)


def _read_path_value(name: str, raw: RawValue) -> ValueTest:
    if raw.is_quoted:
        return Exact(raw.text, is_quoted=True)
    if raw.text.startswith((">", "<")) or ".." in raw.text:
        return _read_range(name, raw, _parse_decimal, "a number")
    if "*" in raw.text:
        return Glob(tuple(raw.text.split("*")))
    return Exact(raw.text, _parse_decimal(raw.text))


def _read_number(name: str, raw: RawValue) -> ValueTest:
    return _read_range(name, raw, _parse_decimal, "a number")


def _read_size(name: str, raw: RawValue) -> ValueTest:
    return _read_range(name, raw, _parse_bytes, "a size such as 100kB")


def _read_share(name: str, raw: RawValue) -> ValueTest:
    return _read_range(name, raw, lambda text: _parse_decimal(text.removesuffix("%")), "a share such as 80%")


def _read_range(name: str, raw: RawValue, read: Callable[[str], Decimal | None], wanted: str) -> NumberRange:
    operator, texts = _split_range(raw.text)
    numbers = [read(text) if text else None for text in texts]
    if not any(texts) or any(text and number is None for text, number in zip(texts, numbers, strict=True)):
        raise _error(raw, f"{name}: takes {wanted}, or a range such as >3, <=3 or 3..5.", f"{name}:>3")
    low, high = numbers[0], numbers[-1]
    if operator == "..":
        if low is not None and high is not None and low > high:
            raise _error(raw, "The range ends before it begins.", f"{name}:{texts[1]}..{texts[0]}")
        return NumberRange(low, high)
    if not operator:
        return NumberRange(low, low)
    if operator[0] == ">":
        return NumberRange(low, None, low_is_open=operator == ">")
    return NumberRange(None, low, high_is_open=operator == "<")


def _read_past(name: str, raw: RawValue) -> ValueTest:
    return _read_times(name, raw, -1)


def _read_future(name: str, raw: RawValue) -> ValueTest:
    if raw.text == "past":
        return TimePeriod(None, TimePoint(0, is_relative=True))
    if raw.text == "future":
        return TimePeriod(TimePoint(1, is_relative=True), None)
    return _read_times(name, raw, 1)


def _read_times(name: str, raw: RawValue, direction: int) -> TimePeriod:
    """Parse a range of dates and times, or of durations before (direction -1) or after (1) the present.

    A longer duration before the present is an earlier time.
    """
    operator, texts = _split_range(raw.text)
    moments = [_read_moment(text, direction) if text else None for text in texts]
    if not any(texts) or any(text and not moment for text, moment in zip(texts, moments, strict=True)):
        sentence = f"{name}: takes an age such as <1h or 10m..2h, or a time such as >2026-01-31T12:00Z."
        raise _error(raw, sentence, f"{name}:<1h")
    given = [moment for moment in moments if moment]
    if len({moment.first.is_relative for moment in given}) > 1:
        raise _error(raw, "A range has two ages or two times, not one of each.", f"{name}:<1h")
    is_age = given[0].first.is_relative and direction < 0
    if not operator and given[0].first.is_relative:
        sentence = f"{name}: takes a range of ages: <{raw.text} is less, >{raw.text} is more."
        raise _error(raw, sentence, f"{name}:<{raw.text}")
    if operator in {"..", ""}:
        early, late = (moments[-1], moments[0]) if is_age else (moments[0], moments[-1])
        return _read_period(name, raw, early, late)
    is_early = (operator[0] == "<") != is_age
    return _read_open_period(given[0], is_early=is_early, is_included=operator.endswith("="))


def _read_period(name: str, raw: RawValue, early: _Moment | None, late: _Moment | None) -> TimePeriod:
    found = TimePeriod(early and early.first, late and late.last)
    if found.low and found.high and found.low.microseconds > found.high.microseconds:
        begin, _, end = raw.text.partition("..")
        raise _error(raw, "The range ends before it begins.", f"{name}:{end}..{begin}")
    return found


def _read_open_period(moment: _Moment, *, is_early: bool, is_included: bool) -> TimePeriod:
    first, last = moment
    if is_early:
        return TimePeriod(None, last if is_included else first.shifted(-1))
    return TimePeriod(first if is_included else last.shifted(1), None)


def _read_moment(text: str, direction: int) -> _Moment | None:
    duration = _parse_duration(text)
    if duration is not None:
        point = TimePoint(direction * duration, is_relative=True)
        return _Moment(point, point)
    if not _DATE.match(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    first = _count_microseconds(moment)
    length = 86_400 * MICROSECONDS - 1 if _DATE.fullmatch(text) else 0
    return _Moment(TimePoint(first, is_relative=False), TimePoint(first + length, is_relative=False))


def _count_microseconds(moment: datetime) -> int:
    return Instant.from_datetime(moment).to_microseconds()


def _parse_duration(text: str) -> int | None:
    """Parse a duration; return microseconds, or None if it is invalid or longer than a hundred years."""
    total = at = 0
    while at < len(text):
        part = _DURATION.match(text, at)
        if part is None:
            return None
        unit, fraction = _UNITS[part[3]], part[2] or ""
        total += int(part[1]) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        at = part.end()
    return total if text and total <= _LONGEST else None


def _split_range(text: str) -> tuple[str, list[str]]:
    """Split a value into operator (empty for none) and operands: two operands for `..`, otherwise one."""
    for operator in _OPERATORS:
        if text.startswith(operator):
            return operator, [text.removeprefix(operator)]
    if ".." in text:
        return "..", list(text.split("..", 1))
    return "", [text]


def _parse_decimal(text: str) -> Decimal | None:
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _parse_bytes(text: str) -> Decimal | None:
    found = _SIZE.fullmatch(text)
    return found and Decimal(found[1]) * _SIZES[found[2].lower()]


def _error(raw: RawValue, sentence: str, nearest: str) -> QueryError:
    return QueryError(raw.start, raw.length, sentence, nearest)


_READERS: Final[dict[Kind, Callable[[str, RawValue], ValueTest]]] = {
    Kind.STATE: _read_state,
    Kind.NAME: _read_name,
    Kind.ID: _read_id,
    Kind.TEXT: _read_text,
    Kind.ERROR: _read_error,
    Kind.PATH: _read_path_value,
    Kind.NUMBER: _read_number,
    Kind.SIZE: _read_size,
    Kind.PAST: _read_past,
    Kind.FUTURE: _read_future,
    Kind.SHARE: _read_share,
}
