"""Checks of option and setting values, shared by all public interfaces."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final, TypeGuard

from pyasynq._clock import LAST_SECOND, Instant
from pyasynq.errors._configuration import InvalidOptionError

MAX_NAME_BYTES: Final = 1_000
"""Largest size in bytes of a task's type and id, and of names of queues, groups and locks that we write."""
MAX_VALUE_BYTES: Final = 500_000_000
_MOST_DIGITS: Final = 100
_LONGEST_LABEL: Final = 100


def is_whole(value: object, least: int) -> TypeGuard[int]:
    """Return whether a value is a whole number of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_whole(name: str, value: object, least: int) -> None:
    """Raise `InvalidOptionError` for anything but a whole number of at least `least`."""
    if not is_whole(value, least):
        raise InvalidOptionError(name, value, f"must be a whole number of at least {least}")


def page_bounds(page: int, page_size: int) -> tuple[int, int]:
    """Return the positions of a page's first item and of the item after its last one (offset pagination).

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


def check_text(name: str, value: object) -> None:
    """Raise `InvalidOptionError` for a value that is not text."""
    if not isinstance(value, str):
        raise InvalidOptionError(name, value, "must be text")


def check_label(name: str, value: object) -> None:
    """Raise `InvalidOptionError` for a value that is not text, or has more than 100 characters."""
    check_text(name, value)
    if len(str(value)) > _LONGEST_LABEL:
        raise InvalidOptionError(name, len(str(value)), f"must have at most {_LONGEST_LABEL} characters")


def check_function(name: str, value: object) -> None:
    """Raise `InvalidOptionError` for a value that cannot be called."""
    if not callable(value):
        raise InvalidOptionError(name, value, "must be a function")


def check_max_bytes(name: str, value: object) -> None:
    """Raise `InvalidOptionError` unless a value is a number of bytes that Redis could accept."""
    if not is_whole(value, 1):
        raise InvalidOptionError(name, value, "must be a number of bytes, at least 1")
    if value > MAX_VALUE_BYTES:
        remedy = f"must be {MAX_VALUE_BYTES:,} at most: Redis takes no value over 512 MB"
        raise InvalidOptionError(name, value, remedy)


def parse_seconds(name: str, value: object) -> float:
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


def parse_positive_seconds(name: str, value: object) -> float:
    """Return a duration above zero in seconds.

    Raises:
        InvalidOptionError: for a value that is not a duration, and for a duration of 0.
    """
    seconds = parse_seconds(name, value)
    if seconds == 0:
        raise InvalidOptionError(name, value, "must be more than 0 seconds")
    return seconds


def parse_instant(name: str, value: object) -> Instant:
    """Convert an aware datetime to an `Instant` (Unix time).

    Raises:
        InvalidOptionError: for a value that is not an aware datetime, and for a time before 1970 or after
            the year 9999.
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
    """Return the instant, if a datetime can hold it when it is rounded up to a whole second.

    Raises:
        InvalidOptionError: otherwise; the message names the option, and shows the value given for it.
    """
    if instant.ceiling > LAST_SECOND:
        raise InvalidOptionError(name, value, "a time must lie before the last second of the year 9999")
    return instant


def parse_whole_number(text: str) -> int | None:
    """Parse ASCII digits; None for other text, and for more than 100 digits.

    `str.isdigit` alone also accepts digits that `int` refuses, and `int` parses at most 4,300 digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def check_name(name: str, value: object) -> str:
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


def check_new_name(name: str, value: object) -> str:
    """Return a name that may be written to Redis: valid for `check_name`, and at most 1,000 bytes.

    Names that are only searched for have no size limit: programs in Go may have written longer names.

    Raises:
        InvalidOptionError: otherwise.
    """
    # Fast path for nearly all names, which saves 2 % of an enqueue.
    if type(value) is str and value.isascii() and len(value) <= MAX_NAME_BYTES and value.strip():
        return value
    text = check_name(name, value)
    # A character takes at most four bytes.
    if len(text) * 4 > MAX_NAME_BYTES and utf8_size(name, text) > MAX_NAME_BYTES:
        remedy = f"must have at most {MAX_NAME_BYTES:,} bytes as UTF-8"
        raise InvalidOptionError(name, f"{text[:50]}...", remedy)
    return text


def utf8_size(name: str, value: str) -> int:
    """Return the size of a text as UTF-8; raise `InvalidOptionError` for text with lone surrogates."""
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise InvalidOptionError(
            name, value, "must be text that UTF-8 can carry, without lone surrogates"
        ) from None
