"""Schedules: the times at which something runs.

Go peers find the next time with robfig/cron, so the search here takes the same steps, also at changes of
daylight saving time. If only one side computed a tick, there would be one task too many or too few.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from pyasynq.errors import InvalidOptionError

_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_YEARS_TO_SEARCH = 5
_LONGEST_WALK = 100  # ticks; from there on a binary search is quicker
# Every zone can represent this time, because no zone is a day away from UTC.
_EARLIEST = datetime.min.replace(tzinfo=UTC) + _DAY


class Schedule(ABC):
    """The times at which something runs: its ticks, each at a whole second.

    Times are given as aware datetimes of any zone and returned in UTC, where they can be compared and
    subtracted safely. A naive datetime raises InvalidOptionError.
    """

    __slots__ = ()

    @abstractmethod
    def next_after(self, moment: datetime, *, anchor: datetime | None = None) -> datetime | None:
        """Return the first tick later than `moment`, or None if there is none in about five years.

        The ticks of `@every` are whole periods before and after `anchor`, a known tick. So all schedulers
        that know one tick compute the same other ticks. Without an anchor, they are whole periods after
        `moment`. Other schedules follow the calendar and ignore the anchor.
        """

    def ticks_between(
        self, after: datetime, until: datetime, *, limit: int = 1_000, anchor: datetime | None = None
    ) -> list[datetime]:
        """Return the ticks later than `after` and not later than `until`, the first `limit` of them."""
        until = _in_utc("until", until)
        ticks: list[datetime] = []
        tick = self.next_after(after, anchor=anchor)
        while tick is not None and tick <= until and len(ticks) < limit:
            ticks.append(tick)
            tick = self.next_after(tick, anchor=anchor)
        return ticks

    def last_between(
        self, after: datetime, until: datetime, *, anchor: datetime | None = None
    ) -> datetime | None:
        """Return the last tick later than `after` and not later than `until`, or None if there is none.

        It walks from tick to tick, as a scheduler does. After 100 ticks a binary search jumps near the end,
        where the walk continues. The walk matters where a zone changes its clock: there `next_after` can miss
        a tick from one moment and find it from another.
        """
        low, high = _in_utc("after", after), _in_utc("until", until)
        anchor = anchor or low
        walked = 0
        last = None
        while (tick := self.next_after(low, anchor=anchor)) is not None and low < tick <= high:
            last = low = tick
            walked += 1
            if walked == _LONGEST_WALK:
                last = low = self._search_last(tick, high, anchor)
        return last

    def _search_last(self, low: datetime, until: datetime, anchor: datetime) -> datetime:
        """Binary search: return a tick near the end of a long interval that begins with the tick `low`."""
        high = until.replace(microsecond=0)
        while low < high:
            middle = (low + (high - low) / 2).replace(microsecond=0)
            tick = self.next_after(middle, anchor=anchor)
            if tick is None or tick > high:
                high = middle
            else:
                low = tick
        return low


@dataclass(frozen=True, slots=True)
class IntervalSchedule(Schedule):
    """`@every`: ticks one period apart.

    Attributes:
        period: a whole number of seconds, at least one.
    """

    period: timedelta

    def next_after(self, moment: datetime, *, anchor: datetime | None = None) -> datetime | None:
        """Return the first tick later than `moment`; fractions of a second of the anchor are dropped."""
        moment = _in_utc("moment", moment)
        start = (moment if anchor is None else _in_utc("anchor", anchor)).replace(microsecond=0)
        try:
            return start + self.period * ((moment - start) // self.period + 1)
        except OverflowError:  # the calendar ends with the year 9999
            return None


@dataclass(frozen=True, slots=True)
class CalendarSchedule(Schedule):
    """Ticks at whole minutes whose wall-clock fields in a zone all match.

    Attributes:
        minutes: 0 to 59.
        hours: 0 to 23.
        days: days of the month, 1 to 31.
        months: 1 to 12.
        weekdays: 0 to 6, 0 is Sunday.
        both_days: whether a day must be in `days` and in `weekdays`; otherwise one is enough.
        zone: the zone.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    zone: tzinfo

    def next_after(self, moment: datetime, *, anchor: datetime | None = None) -> datetime | None:  # noqa: ARG002 - the calendar is the anchor
        """Return the first tick later than `moment`, or None if none comes in about five years."""
        moment = max(_in_utc("moment", moment).replace(microsecond=0), _EARLIEST)
        if not (self.minutes and self.hours and self.months):
            return None  # a field of commas only, which matches nothing
        try:
            return _Search(self, moment + _SECOND).run()
        except OverflowError:  # the calendar ends with the year 9999
            return None

    def includes_day(self, wall: datetime) -> bool:
        """Return whether the day of month and the day of week match."""
        in_days, in_weekdays = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        return in_days and in_weekdays if self.both_days else in_days or in_weekdays


class _Search:
    """A search for the next tick, from the largest field to the smallest.

    A field that does not match is increased until it matches. When it wraps around, the larger fields are
    checked again. The first increase also resets the smaller fields. Until then they keep the values of the
    moment from which the search starts.
    """

    __slots__ = ("_instant", "_schedule", "_stepped", "_wall")

    _instant: datetime  # in UTC
    _wall: datetime  # wall-clock time at that instant, without zone

    def __init__(self, schedule: CalendarSchedule, start: datetime) -> None:
        self._schedule = schedule
        self._stepped = False
        self._go_to(start)

    def run(self) -> datetime | None:
        last_year = self._wall.year + _YEARS_TO_SEARCH
        fields = (self._fit_month, self._fit_day, self._fit_hour, self._fit_minute, self._fit_second)
        while self._wall.year <= last_year:
            if all(fit() for fit in fields):
                return self._instant
        return None

    # Each of these methods makes one field match, and returns False if the field wrapped around.

    def _fit_month(self) -> bool:
        while self._wall.month not in self._schedule.months:
            if self._is_first_step():
                self._go_to_wall(self._wall.replace(day=1, hour=0, minute=0, second=0))
            self._go_to_wall(_add_month(self._wall))
            if self._wall.month == 1:
                return False
        return True

    def _fit_day(self) -> bool:
        while not self._schedule.includes_day(self._wall):
            if self._is_first_step():
                self._go_to_wall(self._wall.replace(hour=0, minute=0, second=0))
            self._go_to_next_day()
            if self._wall.day == 1:
                return False
        return True

    def _fit_hour(self) -> bool:
        while self._wall.hour not in self._schedule.hours:
            if self._is_first_step():
                self._go_to_wall(self._wall.replace(minute=0, second=0))
            self._go_to(self._instant + _HOUR)
            if self._wall.hour == 0:
                return False
        return True

    def _fit_minute(self) -> bool:
        while self._wall.minute not in self._schedule.minutes:
            if self._is_first_step():
                self._go_to(self._instant.replace(second=0))
            self._go_to(self._instant + _MINUTE)
            if self._wall.minute == 0:
                return False
        return True

    def _fit_second(self) -> bool:
        while self._wall.second != 0:
            self._stepped = True
            self._go_to(self._instant + _SECOND)
            if self._wall.second == 0:
                return False
        return True

    def _is_first_step(self) -> bool:
        stepped, self._stepped = self._stepped, True
        return not stepped

    def _go_to_next_day(self) -> None:
        today = self._instant
        self._go_to_wall(self._wall + _DAY)
        if self._instant <= today:
            # Samoa had no 30 December 2011: its midnight is that of the 29th. robfig/cron never ends here.
            self._go_to(today + _DAY)
        # Where daylight saving skips midnight, the clock shows the hour before or after it.
        if self._wall.hour > 12:
            self._go_to(self._instant + _HOUR * (24 - self._wall.hour))
        elif self._wall.hour > 0:
            self._go_to(self._instant - _HOUR * self._wall.hour)

    def _go_to(self, instant: datetime) -> None:
        self._instant = instant
        self._wall = instant.astimezone(self._schedule.zone).replace(tzinfo=None)

    def _go_to_wall(self, wall: datetime) -> None:
        """Go to the instant at which the wall clock shows this time.

        If the clock shows this time twice or never, the choice is that of Go's `time.Date`. It takes the wall
        time as UTC, corrects it by the zone's offset at that instant, and uses the offset at the result.
        """
        as_utc = wall.replace(tzinfo=UTC)
        guess = as_utc - self._offset_at(as_utc)
        self._go_to(as_utc - self._offset_at(guess))

    def _offset_at(self, instant: datetime) -> timedelta:
        return instant.astimezone(self._schedule.zone).replace(tzinfo=UTC) - instant


def _add_month(wall: datetime) -> datetime:
    """Return the same day and time of the next month; a 30th of February is the 2nd or 1st of March."""
    first = wall.replace(day=1)
    next_month = (first + 31 * _DAY).replace(day=1)
    return next_month + (wall - first)


def _in_utc(name: str, moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise InvalidOptionError(
            name,
            moment,
            "this datetime has no time zone; give it one, as in datetime(..., tzinfo=UTC) or .astimezone()",
        )
    return moment.astimezone(UTC)
