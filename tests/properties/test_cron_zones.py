"""Every time zone, a list of expressions, and some years: all that ask for a tick find the same ones.

`make cron-zones` compares everything over ten years. `make test` compares some expressions in some zones over
three years: those that are drawn, and those that once differed.
"""

from __future__ import annotations

import os
import random
import zoneinfo
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from pyasynq._broker.schedules import EntryTicks
from pyasynq._cron import parse_cron
from pyasynq._scheduler.timetable import Timetable

if TYPE_CHECKING:
    from pyasynq._cron import Schedule

pytestmark = pytest.mark.timeout(1_200)  # a zone of many ticks, on a machine that is busy

SPECS: Final = (
    "45 1 * * *",
    "30 1 * * *",
    "0 0 * * *",
    "15 2 * * *",
    "0 3,23 * * *",
    "59 23 * * 0",
    "0 0 1 * *",
    "0 12 27 3-4 *",
    "30 2 31 3,10 *",
    "*/20 0-3 * * sun",
)
START: Final = datetime(2016, 1, 1, tzinfo=UTC)
ALL_ZONES: Final = sorted(zoneinfo.available_timezones())
ONCE_DIFFERENT: Final = {"Australia/Lord_Howe": "45 1 * * *", "Antarctica/Troll": "30 1 * * *"}
DRAWN: Final = 2
COMPARES_ALL: Final = os.environ.get("PYASYNQ_CRON_ZONES") == "all"
END: Final = datetime(2026 if COMPARES_ALL else 2019, 1, 1, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
STRIDE: Final = timedelta(hours=6)
"""No zone changes its offset twice within this time."""


def cases() -> list[tuple[str, str]]:
    """Return the zones and expressions to compare: all, or drawn ones and those that once differed."""
    if COMPARES_ALL:
        different = {offsets(zoneinfo.ZoneInfo(zone)): zone for zone in reversed(ALL_ZONES)}
        return [(zone, spec) for zone in sorted(different.values()) for spec in SPECS]
    every = [(zone, spec) for zone in ALL_ZONES for spec in SPECS]
    # The processes of xdist need the same cases, so the draw changes with the zone data only.
    drawn = random.Random(len(every)).sample(every, DRAWN)
    return sorted({*ONCE_DIFFERENT.items(), *drawn})


def offsets(zone: zoneinfo.ZoneInfo) -> tuple[tuple[datetime, timedelta | None], ...]:
    """Return when a zone's offset changes, and the new offsets. Zones with the same have the same ticks."""
    found: list[tuple[datetime, timedelta | None]] = []
    moment = START
    while moment < END:
        offset = moment.astimezone(zone).utcoffset()
        if not found or found[-1][1] != offset:
            low, high = max(START, moment - STRIDE), moment
            while high - low > MINUTE:
                middle = (low + (high - low) / 2).replace(second=0)
                if middle.astimezone(zone).utcoffset() == offset:
                    high = middle
                else:
                    low = middle
            found.append((high, offset))
        moment += STRIDE
    return tuple(found)


def walk(schedule: Schedule) -> list[datetime]:
    """Return the ticks of the ten years, each found from the one before."""
    ticks = [START]
    while (tick := schedule.next_after(ticks[-1])) is not None and tick <= END:
        assert ticks[-1] < tick
        ticks.append(tick)
    return ticks[1:]


def near_clock_changes(ticks: list[datetime], zone: zoneinfo.ZoneInfo) -> list[tuple[datetime, datetime]]:
    """Return pairs of consecutive ticks within two days of a change of the clock."""
    margin = timedelta(days=2)
    return [
        (one, other)
        for one, other in pairwise(ticks)
        if (one - margin).astimezone(zone).utcoffset() != (other + margin).astimezone(zone).utcoffset()
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "spec"), cases())
def test_all_ways_to_a_tick_find_the_same_ticks(name: str, spec: str) -> None:
    """The next tick, the last one of an interval, and what a timetable fires. (D58)"""
    zone = zoneinfo.ZoneInfo(name)
    schedule = parse_cron(spec, location=zone)
    ticks = walk(schedule)
    for one, other in near_clock_changes(ticks, zone):
        assert other == schedule.last_between(one, other)
        assert None is schedule.last_between(one, other - SECOND)
        table = Timetable(schedule, "skip")
        table.begin(EntryTicks(int(one.timestamp()), int(START.timestamp())), one + SECOND)
        assert other == table.next
        assert [] == table.due(other - SECOND).ticks
        assert [other] == table.due(other).ticks
    # Longer than what is walked from tick to tick.
    for first, until in zip(ticks, ticks[150::150], strict=False):
        last = schedule.last_between(first, until)
        following = last and schedule.next_after(last)
        assert last is not None
        assert last <= until
        assert following is None or until < following
