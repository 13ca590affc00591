"""Time: instants (Unix time), the clock that a test can replace, and sleep for asyncio and for threads."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

LAST_SECOND: Final = 253_402_300_799
"""Unix time of the end of the year 9999, the latest that a datetime can hold. Go may write later times."""

_MICROSECONDS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


class Instant(NamedTuple):
    """A point of time as Redis TIME gives it: Unix seconds, and microseconds within the second."""

    seconds: int
    microseconds: int = 0

    @classmethod
    def from_timestamp(cls, timestamp: float) -> "Instant":
        """Return the instant of a Unix time in seconds."""
        return cls(*divmod(round(timestamp * _MICROSECONDS), _MICROSECONDS))

    @classmethod
    def from_datetime(cls, moment: datetime) -> "Instant":
        """Return the instant of an aware datetime, exactly."""
        seconds, rest = divmod(moment - _EPOCH, _SECOND)
        return cls(seconds, rest.microseconds)

    @property
    def timestamp(self) -> float:
        """Unix time in seconds."""
        return self.seconds + self.microseconds / _MICROSECONDS

    @property
    def ceiling(self) -> int:
        """The first whole Unix second that is not before this instant."""
        return self.seconds + (self.microseconds > 0)

    def to_microseconds(self) -> int:
        """Return the Unix time in microseconds."""
        return self.seconds * _MICROSECONDS + self.microseconds

    def to_datetime(self) -> datetime:
        """Return the instant as an aware datetime in UTC."""
        return _EPOCH + timedelta(0, self.seconds, self.microseconds)

    def plus(self, seconds: float) -> "Instant":
        """Return the instant this many seconds later."""
        whole, microseconds = divmod(self.microseconds + round(seconds * _MICROSECONDS), _MICROSECONDS)
        return Instant(self.seconds + whole, microseconds)


class Clock(Protocol):
    """The source of time for clients and servers."""

    def now(self) -> Instant:
        """Return the current time for values that a client writes: process times, `pending_since`."""

    def redis_now(self) -> Instant | None:
        """Return the current time for the Lua scripts of servers; with None, the scripts use Redis' TIME."""

    def monotonic(self) -> float:
        """Return monotonic seconds, for leases and deadlines inside this process."""


class SystemClock:
    """The clock of this host; servers use Redis' time, so skew between hosts does no harm."""

    def now(self) -> Instant:
        """Return the host's wall-clock time."""
        nanoseconds = time.time_ns()
        return Instant(nanoseconds // 1_000_000_000, nanoseconds // 1_000 % _MICROSECONDS)

    def redis_now(self) -> Instant | None:
        """Return None, so that scripts use Redis' TIME."""
        return None

    # Assigned directly, to save a call: a worker reads it several times for each task.
    monotonic = staticmethod(time.monotonic)


SYSTEM_CLOCK = SystemClock()


async def sleep_async(seconds: float) -> None:
    """Sleep without blocking the event loop."""
    import asyncio  # noqa: PLC0415 - blocking programs need none of it

    await asyncio.sleep(seconds)


def sleep_blocking(seconds: float) -> None:
    """Sleep in this thread."""
    time.sleep(seconds)
