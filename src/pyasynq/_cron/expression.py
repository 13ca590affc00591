"""Parser of cron expressions: `*/5 8-18 * * mon-fri`, `@every 1h30m`, `CRON_TZ=Europe/Berlin 0 9 * * *`.

It accepts the same expressions with the same meaning as robfig/cron 3.0.1 (its standard parser), because
expressions are shared with peers that use it.
"""

from __future__ import annotations

import re
import zoneinfo
from datetime import UTC, timedelta, tzinfo
from typing import NamedTuple

from pyasynq._cron.schedule import CalendarSchedule, IntervalSchedule, Schedule
from pyasynq._go_duration import parse_go_duration
from pyasynq.errors import CronError, nearest

_LONGEST = 1_000  # characters; five fields that list every value have under 400
_FORMS = "write five fields, as in '*/5 * * * *', or a descriptor, as in '@daily' or '@every 1h30m'"
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ZONE = re.compile(r"(?:CRON_)?TZ=([^ ]*)( ?)")
# Go's white space; Python also counts U+001C to U+001F.
_SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_GAP = re.compile(f"[{_SPACES}]+")
_INVISIBLE = re.compile("[\0-\x08\x0e-\x1f\x7f\ud800-\udfff]")
_NUMBER = re.compile(r"\+?0*([0-9]{1,19})")
_LARGEST_STEP = 2**63 - 1


class _Field(NamedTuple):
    """One of the five fields of a cron expression; `names` are aliases of the numbers from `least` on."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 6, _WEEKDAYS),
)


def parse_cron(text: str, *, location: tzinfo | None = None) -> Schedule:
    """Parse a cron expression into a schedule.

    Args:
        text: five fields or a descriptor. ``CRON_TZ=<zone>`` and a space before them set the zone.
        location: the zone of an expression that names none, or ``Local``. None is UTC.

    Raises:
        CronError: when the text is not a cron expression, or its zone is unknown.
    """
    _check_text(text)
    zone, rest = _split_zone(text, UTC if location is None else location)
    if rest.startswith(_EVERY):
        return _parse_interval(text, rest.removeprefix(_EVERY))
    if rest.startswith("@"):
        if rest not in _DESCRIPTORS:
            known = ", ".join(_DESCRIPTORS)
            raise CronError(text, rest, f"there is no such descriptor; write {known} or '@every 1h30m'")
        rest = _DESCRIPTORS[rest]
    return _parse_fields(text, rest, zone)


def read_fields(text: str) -> str:
    """Return the five fields of a valid expression, without its zone.

    A descriptor such as `@daily` is replaced by its fields; `@every 1h30m` is returned as it is.
    """
    prefix = _ZONE.match(text)
    rest = text if prefix is None else text[prefix.end() :].strip(_SPACES)
    return _DESCRIPTORS.get(rest, rest)


def uses_location(text: str) -> bool:
    """Return whether an expression uses its scheduler's zone.

    That is the case if it names no zone, or `Local`, and is not an `@every`.
    """
    prefix = _ZONE.match(text)
    if prefix is None:
        return not text.startswith(_EVERY)
    return prefix[1] == "Local" and not text[prefix.end() :].strip(_SPACES).startswith(_EVERY)


def _check_text(text: str) -> None:
    if len(text) > _LONGEST:
        raise CronError(
            text, text, f"it has {len(text):,} characters, more than {_LONGEST:,}; use ranges and steps"
        )
    if found := _INVISIBLE.search(text):
        raise CronError(text, found[0], "this character is not allowed in an expression; remove it")
    stripped = text.lstrip(_SPACES)
    if not stripped:
        raise CronError(text, text, f"it is blank; {_FORMS}")
    if stripped != text and (stripped.startswith("@") or _ZONE.match(stripped)):
        raise CronError(
            text, text, "remove the white space in front, which hides the zone or descriptor from Asynq"
        )


def _split_zone(text: str, location: tzinfo) -> tuple[tzinfo, str]:
    prefix = _ZONE.match(text)
    if prefix is None:
        return location, text
    if not prefix[2]:
        raise CronError(text, prefix[0], f"nothing follows the zone; put a space after it and {_FORMS}")
    return _find_zone(text, prefix[1], location), text[prefix.end() :].strip(_SPACES)


def _find_zone(text: str, name: str, location: tzinfo) -> tzinfo:
    if name in ("", "UTC"):  # to Go an empty name is UTC
        return UTC
    if name == "Local":
        return location
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = zoneinfo.available_timezones()
    if not known:
        raise CronError(text, name, "this host has no time zone data; install the package tzdata")
    hint = nearest(name, known) or "; write an IANA name, as in CRON_TZ=Europe/Berlin"
    raise CronError(text, name, f"there is no such time zone{hint}")


def _parse_interval(text: str, duration: str) -> Schedule:
    try:
        nanoseconds = parse_go_duration(duration)
    except ValueError:
        remedy = "this is not a duration of up to 292 years; write it as in 1h30m, 90s or 1.5h"
        raise CronError(text, duration, remedy) from None
    return IntervalSchedule(timedelta(seconds=max(1, nanoseconds // 1_000_000_000)))


def _parse_fields(text: str, rest: str, zone: tzinfo) -> Schedule:
    parts = [part for part in _GAP.split(rest) if part]
    if len(parts) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        remedy = f"write five fields, not {len(parts)}: {names}; none for seconds or years"
        raise CronError(text, rest, remedy)
    minutes, hours, days, months, weekdays = (
        _FieldReader(text, field).read(part) for field, part in zip(_FIELDS, parts, strict=True)
    )
    return CalendarSchedule(
        minutes=minutes.values,
        hours=hours.values,
        days=days.values,
        months=months.values,
        weekdays=weekdays.values,
        both_days=days.starred or weekdays.starred,
        zone=zone,
    )


class _Values(NamedTuple):
    """The values of a field; `starred` is set if an item is `*` or `?` without a step."""

    values: frozenset[int]
    starred: bool


class _FieldReader:
    """Parser of one field of an expression."""

    def __init__(self, expression: str, field: _Field) -> None:
        self._expression = expression
        self._field = field

    def read(self, text: str) -> _Values:
        """Return the values of a comma-separated list; an empty item adds no value."""
        items = [self._read_item(item) for item in text.split(",") if item]
        return _Values(
            values=frozenset(value for item in items for value in item.values),
            starred=any(item.starred for item in items),
        )

    def _read_item(self, item: str) -> _Values:
        span, *steps = item.split("/")
        if len(steps) > 1:
            raise self._error(item, "there is more than one / in it; put a comma between items")
        step = self._read_step(item, steps[0]) if steps else 1
        low, *highs = span.split("-")
        if low in ("*", "?"):
            # As in robfig/cron, the part after the dash in `*-5` is ignored.
            return _Values(frozenset(range(self._field.least, self._field.most + 1, step)), step == 1)
        if len(highs) > 1:
            raise self._error(item, "there is more than one - in it; put a comma between items")
        first = self._read_number(item, low)
        last = self._field.most if steps else first
        if highs:
            last = self._read_number(item, highs[0])
        if first > last:
            ends = f"{first}-{self._field.most},{self._field.least}-{last}"
            raise self._error(item, f"it runs backwards; write {ends}")
        return _Values(frozenset(range(first, last + 1, step)), starred=False)

    def _read_step(self, item: str, text: str) -> int:
        number = _NUMBER.fullmatch(text)
        step = int(number[1]) if number else 0
        if not 1 <= step <= _LARGEST_STEP:
            raise self._error(item, "the step after the / must be a number of 1 or more")
        return step

    def _read_number(self, item: str, text: str) -> int:
        field, number = self._field, _NUMBER.fullmatch(text)
        if text.lower() in field.names:
            return field.least + field.names.index(text.lower())
        if number is not None and field.least <= int(number[1]) <= field.most:
            return int(number[1])
        place = "it" if text == item else f"{text!r} in it"
        names = f", nor one of {' '.join(field.names)}" if field.names else ""
        sunday = "; Sunday is 0" if field.names == _WEEKDAYS else ""
        raise self._error(item, f"{place} is not a number from {field.least} to {field.most}{names}{sunday}")

    def _error(self, item: str, remedy: str) -> CronError:
        return CronError(self._expression, item, remedy, field=self._field.name)
