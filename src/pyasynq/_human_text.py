"""Messages for people: singular and plural, durations, and foreign text that cannot break the line."""

from __future__ import annotations

import string
from typing import Any, Final

from pyasynq._visible_text import visible, visible_lines

_KILO: Final = 1_000
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return `1 task`, `1,203 tasks`; by default the plural is the singular with an s."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def bytes_text(count: int) -> str:
    """Return a number of bytes for people: `1 byte`, `214 bytes`, `3.4 MB`; units are powers of 1,000."""
    if count < _KILO:
        return counted(count, "byte")
    amount, larger = count / _KILO, ["TB", "GB", "MB", "kB"]
    # Above 999.5 rounding would reach the next unit.
    while amount >= 999.5 and len(larger) > 1:
        amount /= _KILO
        larger.pop()
    return f"{amount:.1f} {larger[-1]}" if amount < 9.95 else f"{amount:,.0f} {larger[-1]}"


def duration(seconds: float) -> str:
    """Return seconds in human form: `0.4 ms`, `12 ms`, `1.2 s`, `41 s`, `2 min 5 s`, `3 h`, `2 days`."""
    # Each limit is where rounding would reach the next unit.
    if seconds < 0.9995:
        return f"{max(seconds, 0.0) * 1_000:.{int(seconds < 0.0095)}f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return _two_units(whole, _MINUTE, "min", 1, "s")
    if whole < _DAY:
        return _two_units(whole, _HOUR, "h", _MINUTE, "min")
    hours = whole % _DAY // _HOUR
    return counted(whole // _DAY, "day") + (f" {hours} h" if hours else "")


def some(names: Any, most: int) -> str:
    """List the first `most` names, escaped, and the number of the others: `a, b and 3 more`."""
    listed = list(names)
    shown = ", ".join(visible(name) for name in listed[:most])
    return f"{shown} and {len(listed) - most:,} more" if len(listed) > most else shown


def shorten_middle(text: str, limit: int = 16_384) -> str:
    """Return text of at most about this many characters; the middle of longer text is left out."""
    if len(text) <= limit:
        return text
    head = limit // 4
    tail = limit - head
    left_out = f"\n... ({counted(len(text) - limit, 'character')} left out) ...\n"
    return text[:head] + left_out + text[-tail:]


def shorten_end(text: str, limit: int = 2_048) -> str:
    """Cut a text to its first `limit` characters, and append the number of characters left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}... ({counted(len(text) - limit, 'character')} left out)"


class MessageFormatter(string.Formatter):
    """Formats messages by templates such as `{tasks:task was|tasks were} lost after {seconds:time}`.

    The format `singular|plural` makes a count of a number, and `time` makes a duration of seconds. In other
    values, control characters become visible symbols; the format `lines` keeps line breaks, except at the
    end. Long texts of errors are shortened.
    """

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """Apply a conversion such as `!r` to a value; an error becomes text of limited length."""
        if isinstance(value, BaseException):
            return shorten_end(super().convert_field(value, conversion or "s"))
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, spec: str) -> str:
        """Format one value by its specification in the template."""
        if spec == "time":
            return duration(value)
        if "|" in spec:
            return counted(value, *spec.split("|"))
        if spec == "lines":
            return visible_lines(str(value).rstrip())
        return visible(format(value, spec))


def _two_units(whole: int, large: int, large_name: str, small: int, small_name: str) -> str:
    rest = whole % large // small
    return f"{whole // large} {large_name}" + (f" {rest} {small_name}" if rest else "")
