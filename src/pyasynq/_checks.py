"""Checks of the values of options and settings, which all doors share."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final, TypeGuard

from pyasynq._clock import LAST_SECOND, Instant
from pyasynq.errors._configuration import InvalidOptionError

MAX_NAME_BYTES: Final = 1_000
"""Bytes of a task's type and id, and of the names of its queue, group and lock, that are written."""
_LARGEST_VALUE: Final = 500_000_000
_MOST_DIGITS: Final = 100


def is_whole(value: object, least: int) -> TypeGuard[int]:
    """Return whether a value is a whole number that is not below `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_whole(name: str, value: object, least: int) -> None:
    """Raise `InvalidOptionError` for anything but a whole number of at least `least`."""
    if not is_whole(value, least):
        raise InvalidOptionError(name, value, f"must be a whole number of at least {least}")


def page_bounds(page: int, page_size: int) -> tuple[int, int]:
    """Return the positions of the first item of a page and of the first one after it.

    Raises:
        InvalidOptionError: when either is not a whole number of at least 1.
    """
    check_whole("page", page, 1)
    check_whole("page_size", page_size, 1)
    return page_size * (page - 1), page_size * page


def check_switch(name: str, value: object) -> None:
    """Raise `InvalidOptionError` for anything but True and False."""
    if not isinstance(value, bool):
        raise InvalidOptionError(name, value, "must be True or False")


def check_function(name: str, value: object) -> None:
    """Raise `InvalidOptionError` for what cannot be called."""
    if not callable(value):
        raise InvalidOptionError(name, value, "must be a function")


def check_handler_rules(is_failure: object, crash_limit: object) -> None:
    """Check the rules that a handler may have of its own; None stands for the server's.

    Raises:
        InvalidOptionError: for a rule that cannot be.
    """
    if is_failure is not None:
        check_function("is_failure", is_failure)
    if crash_limit is not None:
        check_whole("crash_limit", crash_limit, 0)


def check_max_bytes(name: str, value: object) -> None:
    """Raise `InvalidOptionError` unless a value is a number of bytes that Redis could take."""
    if not is_whole(value, 1):
        raise InvalidOptionError(name, value, "must be a number of bytes, at least 1")
    if value > _LARGEST_VALUE:
        remedy = f"must be {_LARGEST_VALUE:,} at most: Redis takes no value over 512 MB"
        raise InvalidOptionError(name, value, remedy)


def seconds_of(name: str, value: object) -> float:
    """Return a duration in seconds.

    Raises:
        InvalidOptionError: when it is not a `timedelta` or number, is not finite, or is negative.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    else:
        raise InvalidOptionError(name, value, "a duration is a timedelta or a number of seconds")
    if not math.isfinite(seconds) or seconds > LAST_SECOND:
        raise InvalidOptionError(name, value, "a duration must be finite and end before the year 10000")
    if seconds < 0:
        raise InvalidOptionError(name, value, "a duration cannot be negative")
    return seconds


def positive_seconds_of(name: str, value: object) -> float:
    """Return a duration of more than nothing in seconds.

    Raises:
        InvalidOptionError: for what is not a duration, and for a duration of 0.
    """
    seconds = seconds_of(name, value)
    if seconds == 0:
        raise InvalidOptionError(name, value, "must be more than 0 seconds")
    return seconds


def instant_of(name: str, value: object) -> Instant:
    """Return an aware datetime as an instant.

    Raises:
        InvalidOptionError: when it is not a datetime, is naive, or lies before 1970 or too far ahead.
    """
    if not isinstance(value, datetime):
        raise InvalidOptionError(name, value, "a time is an aware datetime, such as datetime.now(UTC)")
    if value.utcoffset() is None:
        raise InvalidOptionError(
            name,
            value,
            "this datetime has no time zone; give it one, as in datetime(..., tzinfo=UTC) or .astimezone()",
        )
    instant = Instant.from_datetime(value)
    if instant.seconds < 0:
        raise InvalidOptionError(name, value, "a time cannot lie before 1970")
    return check_representable(name, value, instant)


def check_representable(name: str, value: object, instant: Instant) -> Instant:
    """Return an instant that a datetime can hold after it has been rounded up to a whole second.

    Raises:
        InvalidOptionError: otherwise; it names the option and the value that the instant was made of.
    """
    if instant.ceiling > LAST_SECOND:
        raise InvalidOptionError(name, value, "a time must lie before the last second of the year 9999")
    return instant


def whole_number_of(text: str) -> int | None:
    """Return the number that ASCII digits stand for; None for other text, and for thousands of digits.

    `str.isdigit` alone takes digits that `int` refuses, and Python reads no more than 4,300 of them.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def checked_name(name: str, value: object) -> str:
    """Return a name that is not blank and can be written as UTF-8.

    Raises:
        InvalidOptionError: otherwise.
    """
    if not isinstance(value, str):
        raise InvalidOptionError(name, value, "must be text")
    if not value.strip():
        raise InvalidOptionError(name, value, "must contain one or more characters that are not blank")
    utf8_size(name, value)
    return value


def new_name_of(name: str, value: object) -> str:
    """Return a name that may be written to Redis: as `checked_name`, and of 1,000 bytes at most.

    Names that are only looked for are not bounded: peers in Go may have written longer ones.

    Raises:
        InvalidOptionError: otherwise.
    """
    # Nearly all names end here, which spares 2 % of an enqueue.
    if type(value) is str and value.isascii() and len(value) <= MAX_NAME_BYTES and value.strip():
        return value
    text = checked_name(name, value)
    # A character takes at most four bytes.
    if len(text) * 4 > MAX_NAME_BYTES and utf8_size(name, text) > MAX_NAME_BYTES:
        remedy = f"must have at most {MAX_NAME_BYTES:,} bytes as UTF-8"
        raise InvalidOptionError(name, f"{text[:50]}...", remedy)
    return text


def utf8_size(name: str, value: str) -> int:
    """Return the bytes of a text as UTF-8; raises `InvalidOptionError` for one that it cannot carry."""
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise InvalidOptionError(
            name, value, "must be text that UTF-8 can carry, without lone surrogates"
        ) from None
