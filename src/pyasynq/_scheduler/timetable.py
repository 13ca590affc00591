"""Which ticks of an entry are to be fired: pure, it neither waits nor asks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyasynq._broker.schedules import EntryTicks
    from pyasynq._cron import Schedule
    from pyasynq.config import Misfire

LATENESS: Final = timedelta(seconds=60)
"""So late a tick is still fired when missed ones are skipped: Redis was away, or the process stood still."""

TICKS_AT_ONCE: Final = 100
"""So many missed ticks of an entry are fired before the other entries have their turn."""


class Due(NamedTuple):
    """Ticks to be fired now, the earliest first; `missed` is the last of those that are left out."""

    ticks: list[datetime]
    missed: datetime | None = None


_NOTHING: Final = Due([])


class Timetable:
    """The ticks of one entry.

    Attributes:
        next: the first tick that is not yet fired or left out; None before `begin`, and if none ever comes.
        previous: the last tick that was fired, by whichever scheduler.
    """

    __slots__ = ("_anchor", "_done", "_misfire", "_schedule", "next", "previous")

    def __init__(self, schedule: Schedule, misfire: Misfire) -> None:
        self._schedule = schedule
        self._misfire = misfire
        self._anchor: datetime | None = None
        self._done: datetime | None = None
        self.next: datetime | None = None
        self.previous: datetime | None = None

    @property
    def begun(self) -> bool:
        """Whether it is known which ticks were fired before."""
        return self._done is not None

    def begin(self, ticks: EntryTicks, now: datetime) -> datetime | None:
        """Learn what Redis knows; return the last tick of the past that is left out, if there is one."""
        last = None if ticks.last is None else datetime.fromtimestamp(ticks.last, UTC)
        anchor = datetime.fromtimestamp(ticks.since, UTC)
        if self._done is not None:
            # Whoever removed the queue removed its ticks, and with them the time that they count from.
            if anchor != self._anchor:
                self._anchor = anchor
                self.next = self._schedule.next_after(self._done, anchor=anchor)
            if last is not None:
                self.fired(last)
            return None
        self._anchor, self.previous = anchor, last
        start, missed = last or anchor, None
        if self._misfire == "skip" and now > start:
            missed = self._schedule.last_between(start, now, anchor=anchor)
            start = now
        self._go_to(start)
        return missed

    def due(self, now: datetime) -> Due:
        """Return the ticks that are to be fired now; `fired` takes each off when that is done."""
        if self._done is None or self.next is None or self.next > now:
            return _NOTHING
        if self._misfire == "all":
            limit = TICKS_AT_ONCE
            return Due(self._schedule.ticks_between(self._done, now, limit=limit, anchor=self._anchor))
        last = self._schedule.last_between(self._done, now, anchor=self._anchor) or self.next
        if self._misfire == "skip" and now - last > LATENESS:
            self._go_to(last)
            return Due([], last)
        return Due([last])

    def fired(self, tick: datetime) -> None:
        """Note that this tick was fired, by whichever scheduler."""
        if self.previous is None or tick > self.previous:
            self.previous = tick
        self.leave_out(tick)

    def leave_out(self, tick: datetime) -> None:
        """Note that this tick and those before it are not to be fired."""
        if self._done is None or tick > self._done:
            self._go_to(tick)

    def _go_to(self, moment: datetime) -> None:
        self._done = moment
        self.next = self._schedule.next_after(moment, anchor=self._anchor)
