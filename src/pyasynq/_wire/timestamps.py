"""Instants inside messages: protobuf Timestamps on one side, aware datetimes on the other.

Go's zero time, midnight of 1 January of the year 1, means "never" and is None here. An absent Timestamp
is not "never": protobuf reads it as the Unix epoch, and so do Go peers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

GO_ZERO_TIME_SECONDS = -62_135_596_800
"""Unix time, in seconds, of Go's zero time."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)


def write_timestamp(target: Timestamp, instant: datetime | None, *, field: str) -> None:
    """Set a Timestamp inside a message, so that the message carries it even when it is the epoch.

    None is written as Go's zero time. Raises ValueError naming `field` when the datetime is naive.
    """
    target.SetInParent()
    if instant is None:
        target.seconds = GO_ZERO_TIME_SECONDS
        return
    if instant.utcoffset() is None:
        message = f"{field} is the naive datetime {instant.isoformat()}; pass one with a time zone"
        raise ValueError(message)
    seconds, rest = divmod(instant - _EPOCH, _SECOND)
    target.seconds = seconds
    target.nanos = rest // _MICROSECOND * 1000


def read_timestamp(source: Timestamp) -> datetime | None:
    """Return the instant in UTC, nanoseconds cut to microseconds, or None for Go's zero time.

    Raises OverflowError for an instant outside the years 1 to 9999.
    """
    # The list of servers reads thousands: each attribute is read once, and keyword arguments would be slower.
    seconds, nanos = source.seconds, source.nanos
    if seconds == GO_ZERO_TIME_SECONDS and nanos == 0:
        return None
    return _EPOCH + timedelta(0, seconds, nanos // 1000)
