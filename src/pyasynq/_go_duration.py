"""Durations as Go writes them: `1h30m0s`, `1.5s`, `100µs`.

Go counts nanoseconds in a signed 64-bit number, so the limit is about 292 years either way.
"""

from __future__ import annotations

import re
from datetime import timedelta

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign, which Go writes
    "μs": 1_000,  # U+03BC, the Greek letter, which Go also reads
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_SMALL_UNITS = (("ns", 1), ("µs", 1_000), ("ms", 1_000_000))
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")


def to_nanoseconds(duration: timedelta) -> int:
    """Return a duration in nanoseconds, exactly."""
    return duration // timedelta(microseconds=1) * 1_000


def to_timedelta(nanoseconds: int) -> timedelta:
    """Return a number of nanoseconds as timedelta, cut toward zero to microseconds."""
    microseconds = abs(nanoseconds) // 1_000
    return timedelta(microseconds=microseconds if nanoseconds >= 0 else -microseconds)


def format_go_duration(duration: timedelta | int) -> str:
    """Return a timedelta, or a number of nanoseconds, as Go prints it.

    Raises ValueError when Go could not hold it.
    """
    nanoseconds = to_nanoseconds(duration) if isinstance(duration, timedelta) else duration
    if not _SMALLEST <= nanoseconds <= _LARGEST:
        message = f"the duration {duration} is longer than the 292 years that Go can hold"
        raise ValueError(message)
    sign = "-" if nanoseconds < 0 else ""
    return sign + _format_positive(abs(nanoseconds))


def parse_go_duration(text: str) -> int:
    """Parse a duration written by Go or by hand, such as `-1.5h` or `1h0m0.5s`, into nanoseconds.

    Fractions of a nanosecond are cut off. Raises ValueError naming the text.
    """
    body = text[1:] if text[:1] in ("+", "-") else text
    total = 0 if body == "0" else _add_parts(body, text)
    nanoseconds = -total if text.startswith("-") else total
    if not _SMALLEST <= nanoseconds <= _LARGEST:
        message = f"the duration {text!r} is longer than the 292 years that Go can hold"
        raise ValueError(message)
    return nanoseconds


def _format_positive(nanoseconds: int) -> str:
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < _NANOSECONDS["s"]:
        unit, size = next(pair for pair in reversed(_SMALL_UNITS) if nanoseconds >= pair[1])
        return _decimal(nanoseconds, size) + unit
    minutes, rest = divmod(nanoseconds, _NANOSECONDS["m"])
    seconds = _decimal(rest, _NANOSECONDS["s"]) + "s"
    if minutes == 0:
        return seconds
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}" if hours else f"{minutes}m{seconds}"


def _decimal(nanoseconds: int, size: int) -> str:
    """Return nanoseconds / size, where size is a power of ten, without trailing zeros."""
    whole, rest = divmod(nanoseconds, size)
    if rest == 0:
        return str(whole)
    digits = len(str(size)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")


def _add_parts(body: str, text: str) -> int:
    total = position = 0
    while position < len(body) or position == 0:
        part = _PART.match(body, position)
        if part is None or not (part[1] or part[2]):
            message = f"{text!r} is not a duration; write it as in 1h30m, 1.5s or 250ms"
            raise ValueError(message)
        unit, fraction = _NANOSECONDS[part[3]], part[2] or ""
        total += int(part[1] or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        position = part.end()
    return total
