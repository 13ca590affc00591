"""The timetable of a scheduler entry: which of its ticks to fire. Pure; it does no I/O."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.schedules import TICK_SLACK_SECONDS

if TYPE_CHECKING:
    from pyasynq._broker.schedules import EntryTicks
    from pyasynq._cron import Schedule
    from pyasynq.config import Misfire

LATENESS: Final = timedelta(seconds=60)
"""Grace period: with `misfire="skip"`, the last missed tick is still fired if it is not older than this.

Ticks are missed in an outage of Redis, while the process is paused, or at a restart of the scheduler.
"""

_SLACK: Final = timedelta(seconds=TICK_SLACK_SECONDS)
_SECOND: Final = timedelta(seconds=1)
_LATEST: Final = datetime.max.replace(microsecond=0, tzinfo=UTC)

TICKS_AT_ONCE: Final = 100
"""Number of missed ticks of an entry to fire before other entries get their turn."""


class Due(NamedTuple):
    """Ticks to fire now, the earliest first; `missed` is the last of the skipped ticks, if any."""

    ticks: list[datetime]
    missed: datetime | None = None


_NOTHING: Final = Due([])


class Learned(NamedTuple):
    """Findings about the stored ticks of an entry, for a report.

    Attributes:
        missed: the last of the skipped past ticks.
        ignored: a stored last tick in the future, which is ignored because it must be wrong; reported once.
    """

    missed: datetime | None = None
    ignored: datetime | None = None


class Timetable:
    """The ticks of one entry.

    Attributes:
        next: the first tick not yet fired or skipped; None before `begin`, and if none ever comes.
        previous: the last tick that was fired, by any scheduler.
    """

    __slots__ = ("_anchor", "_done", "_ignored", "_misfire", "_schedule", "next", "previous")

    def __init__(self, schedule: Schedule, misfire: Misfire) -> None:
        self._schedule = schedule
        self._misfire = misfire
        self._anchor: datetime | None = None
        self._done: datetime | None = None
        self._ignored: datetime | None = None
        self.next: datetime | None = None
        self.previous: datetime | None = None

    @property
    def begun(self) -> bool:
        """Whether the stored ticks have been read."""
        return self._done is not None

    def begin(self, ticks: EntryTicks, now: datetime) -> Learned:
        """Continue after the ticks stored in Redis; return skipped and ignored ticks, to be reported.

        Called at the start and with each heartbeat.
        """
        last = None if ticks.last is None else _moment(ticks.last)
        anchor = _moment(ticks.since)
        ignored = last if last is not None and last > now + _SLACK else None
        report = ignored if ignored != self._ignored else None
        self._ignored = ignored
        if self._done is not None:
            self._update(None if ignored else last, anchor, now)
            return Learned(ignored=report)
        self._anchor = anchor
        if ignored is not None:
            # The real last tick is unknown, so missed ones are not made up for.
            self._go_to(now)
            return Learned(ignored=report)
        self.previous = last
        start = last or min(anchor, now)
        missed = self._skip(start, now) if self._misfire == "skip" else None
        self._go_to(missed or start)
        return Learned(missed=missed)

    def _update(self, last: datetime | None, anchor: datetime, now: datetime) -> None:
        assert self._done is not None  # noqa: S101 - begin has looked
        if anchor != self._anchor:
            # The queue was removed, and with it the stored ticks and the entry's starting time.
            self._anchor = anchor
            self.next = self._schedule.next_after(self._done, anchor=anchor)
        if last is not None:
            self.fired(last)
        if self._done > now + _SLACK:
            # The clock of Redis was ahead and has been set back.
            self._go_to(now)

    def _skip(self, start: datetime, now: datetime) -> datetime | None:
        """Return the last tick since `start` that is skipped: it is too old, or a later tick is fired."""
        last = self._schedule.last_between(start, now, anchor=self._anchor)
        if last is None or now - last > LATENESS:
            return last
        return self._schedule.last_between(start, last - _SECOND, anchor=self._anchor)

    def due(self, now: datetime) -> Due:
        """Return the ticks to fire now; `fired` removes each afterwards. Drop ticks that are skipped."""
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
        """Record that this tick was fired, by any scheduler."""
        if self.previous is None or tick > self.previous:
            self.previous = tick
        self.leave_out(tick)

    def leave_out(self, tick: datetime) -> None:
        """Record that this tick and all earlier ticks must not be fired."""
        if self._done is None or tick > self._done:
            self._go_to(tick)

    def _go_to(self, moment: datetime) -> None:
        self._done = moment
        self.next = self._schedule.next_after(moment, anchor=self._anchor)


def _moment(seconds: int) -> datetime:
    """Return a stored Unix second as a datetime; clamp it to 1970 and the latest datetime."""
    return datetime.fromtimestamp(min(max(seconds, 0), int(_LATEST.timestamp())), UTC)
