"""Validation of the values in reports of task service instances, which other programs may have written.

Each function returns the decoded value, or raises an error for a wrong one.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any


def check_kind(value: Any, kind: type) -> Any:
    """Return a value of this type; a bool is not an int here.

    Raises:
        TypeError: for another type.
    """
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError
    return value


def to_float(value: Any) -> float:
    """Return a number in JSON as a float.

    Raises:
        TypeError: it is not a number.
        OverflowError: it is too large.
    """
    return float(value if isinstance(value, int) else check_kind(value, float))


def to_seconds(value: Any) -> float:
    """Return a Unix time that a `datetime` can represent.

    Raises:
        TypeError: it is not a number.
        ValueError: no `datetime` can represent it; OverflowError and OSError mean the same.
    """
    seconds = to_float(value)
    datetime.fromtimestamp(seconds, UTC)
    return seconds


def read_report_time(value: Any) -> datetime:
    """Return a Unix time as a `datetime`; raises what `to_seconds` raises."""
    return datetime.fromtimestamp(to_float(value), UTC)


def from_base64(value: Any) -> bytes:
    """Return the bytes that a Base64 string encodes.

    Raises:
        TypeError: it is not a string.
        ValueError: it is not Base64.
    """
    return base64.b64decode(check_kind(value, str), validate=True)
