"""Virtual time: a clock that tests move, expiry of Redis keys by this clock, and times when work is due."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from pyasynq._broker.arguments import chunks
from pyasynq._broker.stored import whole_second
from pyasynq._checks import check_representable, parse_instant
from pyasynq._clock import Instant
from pyasynq._redis.plan import CommandCall, Plan, Replay, ask
from pyasynq._wire.constants import STATISTICS_SECONDS
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyasynq._redis.driver import BlockingDriver

_T = TypeVar("_T")

_KEYS_AT_ONCE: Final = 1_000
_UNITS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
# Daily counters expire at a fixed calendar time, other keys after a number of seconds.
_DAY_COUNTER: Final = re.compile(rb":\d{4}-\d\d-\d\d$")


class VirtualClock:
    """Fake clock that stands still until a test moves it. Any thread may read it."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._now = Instant(start)

    def now(self) -> Instant:
        """Return the current virtual time."""
        return self._now

    def redis_now(self) -> Instant:
        """Return the current virtual time, which scripts use instead of Redis' own clock."""
        return self._now

    def monotonic(self) -> float:
        """Return virtual monotonic seconds: the seconds since the start, plus 1,000."""
        return 1_000.0 + self._now.seconds - self._start + self._now.microseconds / 1_000_000

    def after(self, seconds: int) -> Instant:
        """Return the instant this many seconds from now.

        Raises:
            InvalidOptionError: if the instant is after the year 9999, the last year of `datetime`.
        """
        moment = self._now.plus(seconds)
        return check_representable("duration", seconds, moment)

    def move_to(self, moment: Instant) -> None:
        """Set the virtual time."""
        self._now = moment


def parse_start(start: datetime | None) -> int:
    """Return the Unix second at which a virtual clock starts.

    Raises:
        InvalidOptionError: for a naive time, a fraction of a second, or the past.
    """
    present = int(datetime.now(UTC).timestamp())
    if start is None:
        return present
    instant = parse_instant("start", start)
    if instant.microseconds:
        raise InvalidOptionError("start", start, "must be a whole second, as times in Redis are")
    if instant.seconds < present:
        raise InvalidOptionError(
            "start",
            start,
            "must not be in the past, because Redis would delete the counters of a day long ago; a date of "
            "the same weekday in a later year also works, such as datetime(2040, 1, 2, tzinfo=UTC)",
        )
    return instant.seconds


def whole_seconds(duration: timedelta | None, **units: float) -> int:
    """Return a duration, given as `timedelta` or as days, hours, minutes and seconds, in whole seconds.

    Raises:
        InvalidOptionError: for a fraction of a second, for a negative duration, and for both forms or none.
    """
    given = {name: value for name, value in units.items() if value}
    if (duration is None) is (not given):
        raise InvalidOptionError(
            "duration", duration, "give a timedelta, or days, hours, minutes and seconds by name"
        )
    if duration is None:
        try:
            duration = timedelta(seconds=sum(value * _UNITS[name] for name, value in given.items()))
        except (OverflowError, ValueError, TypeError):
            name, value = next(iter(given.items()))
            remedy = "days, hours, minutes and seconds are numbers that end before the year 10000"
            raise InvalidOptionError(name, value, remedy) from None
    if not isinstance(duration, timedelta):
        raise InvalidOptionError("duration", duration, "must be a timedelta; numbers are given by name")
    if duration < timedelta(0) or duration.microseconds:
        raise InvalidOptionError(
            "duration", duration, "must be whole seconds and not negative, as times in Redis are"
        )
    return duration.days * 86_400 + duration.seconds


def age_keys(driver: BlockingDriver, seconds: int) -> None:
    """Shorten the time to live (TTL) of every key that has one by this many seconds; overdue keys expire."""
    # A scan may return a key twice, which must not age twice.
    found: dict[bytes, None] = {}
    cursor = b""
    while cursor != b"0":
        scan = CommandCall(("SCAN", cursor or b"0", "COUNT", _KEYS_AT_ONCE), None, Replay.SAFE)
        cursor, keys = driver.run(ask(scan))
        found.update(dict.fromkeys(keys))
    for keys in chunks(list(found)):
        names = [key.decode("utf-8", "surrogateescape") for key in keys]
        left = _run_all(driver, [("PTTL", key) for key in keys], names)
        commands = [
            ("EXPIRE", key, _remaining_seconds(key, milliseconds) - seconds)
            for key, milliseconds in zip(keys, left, strict=True)
            if milliseconds > 0
        ]
        _run_all(driver, commands, [name for name, one in zip(names, left, strict=True) if one > 0])


def _remaining_seconds(key: bytes, milliseconds: int) -> int:
    # Expiries are whole seconds; the missing fraction is the real time that the test has taken.
    whole = math.ceil(milliseconds / 1_000)
    return min(whole, STATISTICS_SECONDS) if _DAY_COUNTER.search(key) else whole


def _run_all(
    driver: BlockingDriver, commands: Sequence[tuple[str | bytes | int, ...]], keys: list[str]
) -> list[int]:
    plans = [
        ask(CommandCall(command, key, Replay.NEVER)) for command, key in zip(commands, keys, strict=True)
    ]
    return require_results(driver.run_batch(plans)) if plans else []


def require_results(results: Iterable[_T | Exception]) -> list[_T]:
    """Return the results of a batch, or raise the first error among them."""
    good = []
    for result in results:
        if isinstance(result, Exception):
            raise result
        good.append(result)
    return good


def make_due_plans(
    queues: Iterable[str], *, now: int, own_slack: int, foreign_slack: int
) -> list[Plan[int | None]]:
    """Return plans; each returns the Unix second at which a worker next has work, or None for never.

    Work is a due task, an expired completed task, an expired lease, a stale aggregation, or the end of a
    pause.

    Args:
        queues: names of the queues.
        now: the current Unix second.
        own_slack: seconds after the end of a lease at which a pyasynq worker's task is recovered.
        foreign_slack: the same for the task of a worker in Go.
    """
    return [plan for queue in queues for plan in _make_due_plans(queue, now, own_slack, foreign_slack)]


def _make_due_plans(queue: str, now: int, own_slack: int, foreign_slack: int) -> Iterator[Plan[int | None]]:
    keys = queue_keys(queue)
    for key in (keys.scheduled, keys.retry, keys.completed, keys.aggregation_sets):
        yield _read_first_score(key, "-inf", 0)
    for slack in (0, own_slack, foreign_slack):
        yield _read_first_score(keys.lease, f"({now - slack}", slack)
    yield _read_expiry(keys.paused, now)


def _read_first_score(key: str, least: str, later: int) -> Plan[int | None]:
    command = ("ZRANGEBYSCORE", key, least, "+inf", "WITHSCORES", "LIMIT", 0, 1)
    found = yield from ask(CommandCall(command, key, Replay.SAFE))
    second = whole_second(found[1]) if found else None
    return None if second is None else second + later


def _read_expiry(key: str, now: int) -> Plan[int | None]:
    left = yield from ask(CommandCall(("PTTL", key), key, Replay.SAFE))
    return now + math.ceil(left / 1_000) if left > 0 else None
