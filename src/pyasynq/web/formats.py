"""Formatting of numbers, sizes, shares and times for display."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from pyasynq._human_text import bytes_text

NOT_KNOWN: Final = "–"  # noqa: RUF001 - the sign for a missing number
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def number(value: float | None) -> str:
    """Format a number: `1,204`, `0.4`, or a dash if it is unknown."""
    if value is None:
        return NOT_KNOWN
    return f"{value:,}" if isinstance(value, int) else significant(value)


def significant(value: float) -> str:
    """Format a measured number with about three digits: `0.42`, `5.8`, `148`, `1,204`."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") or "0"


def share(value: float | None) -> str:
    """Format a share between 0 and 1 as a percentage: `62 %`, or `0.4 %` with a decimal below 10 %."""
    if value is None:
        return NOT_KNOWN
    percent = value * 100
    if percent and abs(percent) < 9.95:
        return f"{percent:.1f}".removesuffix(".0") + " %"
    return f"{percent:.0f} %"


def size(count: int | None) -> str:
    """Format a size in bytes with decimal units (1 kB is 1,000 bytes): `214 bytes`, `3.4 MB`."""
    return NOT_KNOWN if count is None else bytes_text(count)


def span(length: timedelta | float | None) -> str:
    """Format a duration in at most two units: `212 ms`, `41 s`, `14 min`, `3 h 10 min`, `41 d`."""
    if length is None:
        return NOT_KNOWN
    seconds = length.total_seconds() if isinstance(length, timedelta) else float(length)
    return _short_span(max(seconds, 0.0)) if seconds < 9.95 else _long_span(round(seconds))


def _short_span(seconds: float) -> str:
    # The limits are the values that rounding would lift to the next unit.
    return f"{seconds * 1_000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f}".removesuffix(".0") + " s"


def _long_span(whole: int) -> str:
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        minutes = whole % _HOUR // _MINUTE
        return f"{whole // _HOUR} h" + (f" {minutes} min" if minutes else "")
    hours = whole % _DAY // _HOUR if whole < 10 * _DAY else 0
    return f"{whole // _DAY} d" + (f" {hours} h" if hours else "")


def relative(moment: datetime | None, now: datetime) -> str:
    """Format a time relative to now: `34 s ago`, `in 3 min` or `now`."""
    if moment is None:
        return NOT_KNOWN
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    text = span(float(round(abs(seconds))))
    return f"{text} ago" if seconds > 0 else f"in {text}"


def exact(moment: datetime, zone: tzinfo = UTC) -> str:
    """Format the exact time: `23 Nov 2026, 12:03:31 UTC`."""
    local = moment.astimezone(zone)
    day = f"{local.day} {_MONTHS[local.month - 1]} {local.year}"
    return f"{day}, {local:%H:%M:%S} {local.tzname() or ''}".rstrip()


def clock(moment: datetime, zone: tzinfo = UTC) -> str:
    """Format the time of day: `12:03:31`."""
    return f"{moment.astimezone(zone):%H:%M:%S}"


def machine(moment: datetime) -> str:
    """Return a time for the HTML attribute `datetime`: `2026-11-23T12:03:31Z`."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
