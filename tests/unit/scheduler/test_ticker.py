"""The rounds of the service that fires ticks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from pyasynq._background.calls import CallsInProgress
from pyasynq._background.redis_time import RedisTime
from pyasynq._broker.schedules import EntryTicks
from pyasynq._scheduler.book import EntryBook
from pyasynq._scheduler.entry import make_entry
from pyasynq._scheduler.services import SchedulerParts, Ticker
from pyasynq._scheduler.timetable import Due
from pyasynq.config import SchedulerConfig
from pyasynq.events import Events
from pyasynq.task import Task
from tests.fake_clock import FakeClock
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq._scheduler.timetable import Timetable

NOON = datetime(2033, 5, 18, 12, tzinfo=UTC)


class NothingDue:
    """A timetable whose next tick has passed, and which finds no tick to fire."""

    begun = True
    next = NOON - timedelta(seconds=1)

    def due(self, now: datetime) -> Due:
        return Due([])


@run_async
async def test_a_round_that_fires_nothing_is_followed_by_a_rest() -> None:
    """Otherwise a tick that only one function finds keeps a core busy. (D58)"""
    events = Events()
    clock = FakeClock(int(NOON.timestamp()))
    book = EntryBook(events)
    entry = make_entry("e", "@hourly", Task("t"), "skip", UTC)
    entry.timetable.begin(EntryTicks(None, int(NOON.timestamp())), NOON)
    book.add(entry._replace(timetable=cast("Timetable", NothingDue())))
    unused: Any = None
    parts = SchedulerParts(
        "s", SchedulerConfig(), events, clock, RedisTime(clock), unused, book, CallsInProgress()
    )
    assert 0 < await Ticker(parts, unused).round() <= 1
