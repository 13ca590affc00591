"""Which ticks are fired, as the clock goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.schedules import EntryTicks
from pyasynq._cron import parse_cron
from pyasynq._scheduler.timetable import TICKS_AT_ONCE, Learned, Timetable

if TYPE_CHECKING:
    from pyasynq.config import Misfire

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
START = int(NOON.timestamp())


def at(seconds: float) -> datetime:
    """Return the time this many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def timetable(
    spec: str = "@every 10s",
    misfire: Misfire = "skip",
    *,
    last: int | None = None,
    since: int = 0,
    now: float = 0,
) -> Timetable:
    """Return the timetable of an entry that begins `now`; all times in seconds after noon."""
    made = Timetable(parse_cron(spec), misfire)
    made.begin(EntryTicks(None if last is None else START + last, START + since), at(now))
    return made


def fire(table: Timetable, now: float) -> list[float]:
    """Fire what is due; return the ticks in seconds after noon."""
    ticks = table.due(at(now)).ticks
    for tick in ticks:
        table.fired(tick)
    return [(tick - NOON).total_seconds() for tick in ticks]


def test_nothing_is_due_before_the_ticks_are_known() -> None:
    """Somebody may have fired them."""
    table = Timetable(parse_cron("@every 1s"), "all")
    assert not table.begun
    assert [] == table.due(at(100)).ticks
    assert table.next is None


def test_a_tick_is_due_at_its_second_and_not_before() -> None:
    """Nor is it due again once it is fired."""
    table = timetable()
    assert at(10) == table.next
    assert [] == fire(table, 9.999)
    assert [10] == fire(table, 10)
    assert [] == fire(table, 19)
    assert (at(10), at(20)) == (table.previous, table.next)


def test_h18_every_counts_from_when_the_entry_was_first_seen() -> None:
    """Whenever a scheduler starts, and whichever tick was the last."""
    assert at(20) == timetable(since=0, last=10, now=13).next
    assert at(13) == timetable(since=3, now=12).next
    assert at(23) == timetable(since=3, last=13, now=14.5).next


def test_h18_ticks_that_fell_due_before_the_start_are_skipped() -> None:
    """Asynq skips them too; here the last one is reported."""
    table = Timetable(parse_cron("@every 100s"), "skip")
    assert at(300) == table.begin(EntryTicks(START + 100, START), at(361)).missed
    assert [] == fire(table, 399)
    assert [400] == fire(table, 400)


def test_a_tick_that_fell_due_during_a_short_restart_is_fired() -> None:
    """A scheduler that went on running would fire it up to a minute late, too. (D29)"""
    table = Timetable(parse_cron("@every 100s"), "skip")
    assert table.begin(EntryTicks(START + 100, START), at(260)) == Learned(missed=None)
    assert [200] == fire(table, 260)
    assert [300] == fire(table, 300)


def test_a_short_restart_fires_only_the_last_of_several_ticks() -> None:
    """As a scheduler does that stood still; those before it are reported. (D29)"""
    table = Timetable(parse_cron("@every 10s"), "skip")
    assert at(20) == table.begin(EntryTicks(START + 10, START), at(35)).missed
    assert [30] == fire(table, 35)
    assert [40] == fire(table, 40)


def test_a_last_tick_in_the_future_is_not_believed() -> None:
    """It was written while the clock of Redis was wrong, and would silence the entry for years. (D12)"""
    table = Timetable(parse_cron("@every 10s"), "skip")
    future = datetime(2033, 3, 4, tzinfo=UTC)
    stored = EntryTicks(int(future.timestamp()), START)
    assert Learned(ignored=future) == table.begin(stored, at(35))
    assert [40] == fire(table, 40)
    assert (at(40), at(50)) == (table.previous, table.next)


@pytest.mark.parametrize("misfire", ["once", "all"])
def test_nothing_is_made_up_for_when_the_last_tick_is_not_believed(misfire: Misfire) -> None:
    """Which ticks were fired is unknown, and firing them twice is worse. (D12)"""
    table = timetable(misfire=misfire, last=10**9, now=35)
    assert [] == fire(table, 35)
    assert [40] == fire(table, 40)


def test_a_last_tick_in_the_future_is_reported_once() -> None:
    """Each heartbeat sees it again, until a tick is fired. (D12)"""
    table = Timetable(parse_cron("@every 10s"), "skip")
    stored = EntryTicks(START + 10**9, START)
    assert table.begin(stored, at(35)).ignored
    assert Learned() == table.begin(stored, at(36))
    assert [40] == fire(table, 40)


def test_a_last_tick_a_little_ahead_is_believed() -> None:
    """After a fail-over, the clock of the new primary may be some seconds behind. (D12)"""
    table = timetable(last=20, now=0)
    assert [] == fire(table, 20)
    assert [30] == fire(table, 30)


def test_a_clock_of_redis_that_is_set_back_does_not_silence_a_running_scheduler() -> None:
    """The next heartbeat forgets the ticks that it fired in the future. (D12)"""
    table = timetable()
    assert [10**6] == fire(table, 10**6)
    assert at(10**6) == table.begin(EntryTicks(START + 10**6, START), at(35)).ignored
    assert [40] == fire(table, 40)


def test_an_entry_that_was_first_seen_in_the_future_has_ticks() -> None:
    """The clock of Redis was wrong then. (D12)"""
    table = timetable("0 * * * *", since=10**9, now=0)
    assert at(3600) == table.next


def test_a_stored_tick_beyond_the_calendar_is_not_believed() -> None:
    """Dates end with the year 9999. (D12)"""
    assert at(40) == timetable(last=10**18, now=35).next


def test_nothing_is_reported_as_missed_if_nothing_was() -> None:
    """The last tick was fired, or the entry is new."""
    table = Timetable(parse_cron("@every 10s"), "skip")
    assert Learned() == table.begin(EntryTicks(START + 30, START), at(35))
    assert Learned() == Timetable(parse_cron("@every 10s"), "skip").begin(EntryTicks(None, START), at(0))


@pytest.mark.parametrize("misfire", ["once", "all"])
def test_what_is_made_up_for_is_not_reported_as_missed(misfire: Misfire) -> None:
    """It is fired."""
    table = Timetable(parse_cron("@every 10s"), misfire)
    assert Learned() == table.begin(EntryTicks(START + 10, START), at(35))


def test_h18_once_fires_the_last_of_the_missed_ticks() -> None:
    """However many they were."""
    table = timetable(misfire="once", last=10, now=86_405)
    assert [86_400] == fire(table, 86_405)
    assert [86_410] == fire(table, 86_410)


def test_h18_all_fires_each_of_the_missed_ticks() -> None:
    """The ticks are fired in order, from the stored one on."""
    table = timetable(misfire="all", last=10, now=45)
    assert [20, 30, 40] == fire(table, 45)
    assert [50] == fire(table, 50)


def test_h18_ticks_missed_before_the_first_was_ever_fired_count() -> None:
    """From the time at which the entry was first seen."""
    assert [10, 20] == fire(timetable(misfire="all", since=0, now=25), 25)
    assert [20] == fire(timetable(misfire="once", since=0, now=25), 25)


def test_many_missed_ticks_are_fired_in_portions() -> None:
    """The other entries get their turn in between."""
    table = timetable("@every 1s", "all", last=0, now=250)
    assert [TICKS_AT_ONCE, TICKS_AT_ONCE, 50, 0] == [len(fire(table, 250)) for _ in range(4)]


def test_a_scheduler_that_stood_still_fires_once() -> None:
    """Asynq's scheduler also fires once when it wakes up."""
    table = timetable()
    assert [30] == fire(table, 35)
    assert at(40) == table.next


def test_a_tick_that_cannot_be_fired_stays_due_for_a_minute() -> None:
    """Redis was away; then it is left out, unless missed ticks are made up for."""
    skipping, catching_up = timetable("@hourly"), timetable("@hourly", "once")
    hour = timedelta(hours=1)
    for table in (skipping, catching_up):
        assert [NOON + hour] == table.due(NOON + hour).ticks
        assert [NOON + hour] == table.due(NOON + hour + timedelta(seconds=60)).ticks
    late = NOON + hour + timedelta(seconds=61)
    assert ([], NOON + hour) == skipping.due(late)
    assert ([], None) == skipping.due(late)
    assert ([NOON + hour], None) == catching_up.due(late)


def test_h18_what_another_scheduler_fired_is_not_due() -> None:
    """It is learned with the heartbeat, or by trying."""
    table = timetable(misfire="all")
    table.begin(EntryTicks(START + 30, START), at(31))
    assert [] == fire(table, 35)
    assert (at(30), at(40)) == (table.previous, table.next)


def test_an_old_reply_takes_nothing_back() -> None:
    """What was fired in the meantime stays so."""
    table = timetable(misfire="all")
    assert [10, 20] == fire(table, 20)
    table.begin(EntryTicks(START + 10, START), at(21))
    assert [] == fire(table, 25)
    assert at(20) == table.previous


def test_a_refused_tick_is_left_out_and_not_shown_as_fired() -> None:
    """Its task cannot be enqueued however often it is tried."""
    table = timetable()
    table.leave_out(at(10))
    assert (None, at(20)) == (table.previous, table.next)


def test_when_redis_forgot_an_entry_all_count_again() -> None:
    """Somebody removed the queue; the schedulers agree again after their next heartbeats."""
    table = timetable()
    assert [10] == fire(table, 10)
    table.begin(EntryTicks(None, START + 13), at(14))
    assert at(13) == table.next
    assert [13] == fire(table, 14)
    assert at(23) == table.next


def test_an_expression_that_never_comes_true_is_never_due() -> None:
    """The 30th of February."""
    table = timetable("0 0 30 2 *", "all", last=0, now=10**6)
    assert table.next is None
    assert [] == fire(table, 10**6)


def test_the_calendar_is_its_own_anchor() -> None:
    """A cron expression is evaluated in its own zone."""
    table = timetable("CRON_TZ=Europe/Berlin 30 13 * * *", "once", since=0, now=1)
    assert at(1800) == table.next
    assert [1800] == fire(table, 1800)


LORD_HOWE = "CRON_TZ=Australia/Lord_Howe 45 1 * * *"
TROLL = "CRON_TZ=Antarctica/Troll 30 1 * * *"


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
@pytest.mark.parametrize(
    ("spec", "tick"),
    [
        (LORD_HOWE, datetime(2026, 10, 3, 15, 45, tzinfo=UTC)),
        (TROLL, datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),
    ],
)
def test_the_next_tick_is_due_when_its_time_comes(spec: str, tick: datetime, misfire: Misfire) -> None:
    """A search that starts a little earlier misses this tick, because the clock is turned back there.

    Defect D58.
    """
    table = Timetable(parse_cron(spec), misfire)
    eve = tick - timedelta(hours=20)
    table.begin(EntryTicks(None, int(eve.timestamp())), eve)
    while table.next is not None and table.next < tick:
        table.fired(table.next)
    assert tick == table.next
    assert [tick] == table.due(tick + timedelta(seconds=1)).ticks
