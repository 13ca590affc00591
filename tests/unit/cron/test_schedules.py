"""When a schedule is due next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from pyasynq._cron import parse_cron
from pyasynq.errors import InvalidOptionError

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2024, 3, 14, 12, tzinfo=UTC)


def walls(text: str, zone: tzinfo, start: datetime, count: int) -> list[str]:
    """Return the next ticks as the zone's wall clock shows them."""
    schedule = parse_cron(text, location=zone)
    ticks = schedule.ticks_between(start, start + timedelta(days=3650), limit=count)
    return [tick.astimezone(zone).strftime("%m-%d %H:%M %Z") for tick in ticks]


def test_a_tick_is_later_than_the_moment() -> None:
    """From a tick on, the next one is sought; a microsecond before it, it is this one."""
    schedule = parse_cron("0 12 * * *")

    assert NOON + timedelta(days=1) == schedule.next_after(NOON)
    assert NOON == schedule.next_after(NOON - timedelta(microseconds=1))


def test_a_tick_is_in_utc_whatever_the_zones_of_moment_and_schedule() -> None:
    """Times of one zone that changes its clock cannot be compared with one another."""
    tick = parse_cron("0 9 * * *", location=BERLIN).next_after(NOON.astimezone(ZoneInfo("Asia/Tokyo")))

    assert (datetime(2024, 3, 15, 8, tzinfo=UTC), UTC) == (tick, tick and tick.tzinfo)


def test_the_second_of_two_equal_wall_times_is_told_from_the_first() -> None:
    """The `fold` of the datetime makes the difference."""
    first = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
    schedule = parse_cron("45 2 * * *", location=BERLIN)

    assert datetime(2024, 10, 27, 0, 45, tzinfo=UTC) == schedule.next_after(first)
    assert datetime(2024, 10, 27, 1, 45, tzinfo=UTC) == schedule.next_after(first.replace(fold=1))


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("0 0 13 * 5", ["03-15", "03-22", "03-29", "04-05", "04-12", "04-13"]),
        ("0 0 13 * *", ["04-13", "05-13"]),
        ("0 0 * * fri", ["03-15", "03-22"]),
        ("0 0 */10 * fri", ["03-15", "03-21", "03-22", "03-29", "03-31", "04-01"]),
        ("0 0 13 * 5,*", ["04-13", "05-13"]),
        ("0 0 , * fri", ["03-15", "03-22"]),
    ],
)
def test_either_day_field_is_enough_unless_one_is_starred(text: str, days: list[str]) -> None:
    """Day 13 or any Friday; with a star, day 13 and any weekday."""
    assert days == [wall[:5] for wall in walls(text, UTC, NOON, len(days))]


@pytest.mark.parametrize(
    "text", ["0 0 30 2 *", ", * * * *", "* , * * *", "* * , * *", "* * * , *", "* * , * ,"]
)
def test_what_never_comes_is_none(text: str) -> None:
    """A 30th of February, or a field that asks for nothing."""
    assert None is parse_cron(text).next_after(NOON)


def test_five_years_are_searched_and_the_rest_of_the_last() -> None:
    """2100 is not a leap year, so after 2096 comes 2104."""
    schedule = parse_cron("0 0 29 2 *")

    assert None is schedule.next_after(datetime(2098, 12, 31, tzinfo=UTC))
    assert datetime(2104, 2, 29, tzinfo=UTC) == schedule.next_after(datetime(2099, 1, 1, tzinfo=UTC))


def test_an_hour_that_the_clock_skips_has_no_ticks() -> None:
    """The next day has."""
    start = datetime(2024, 3, 30, 12, tzinfo=UTC)

    assert ["04-01 02:30 CEST", "04-02 02:30 CEST"] == walls("30 2 * * *", BERLIN, start, 2)


def test_an_hour_that_the_clock_repeats_has_its_ticks_twice() -> None:
    """Each hour of the wall clock has its ticks, so a repeated hour has them again."""
    start = datetime(2024, 10, 26, 12, tzinfo=UTC)

    assert ["10-27 02:30 CEST", "10-27 02:30 CET"] == walls("30 2 * * *", BERLIN, start, 2)


def test_west_of_greenwich_a_day_without_midnight_has_its_other_ticks() -> None:
    """Brazil began its summer time at midnight, so the first hour of that day was 1:00."""
    sao_paulo = ZoneInfo("America/Sao_Paulo")
    start = datetime(2018, 11, 3, 12, tzinfo=UTC)

    assert ["11-04 01:30 -02", "11-05 01:30 -02"] == walls("30 1 * * *", sao_paulo, start, 2)
    assert ["11-05 00:00 -02"] == walls("0 0 * * *", sao_paulo, start, 1)


def test_east_of_greenwich_a_search_by_day_misses_a_day_without_midnight() -> None:
    """The Go library steps an hour back into the day before, and on to the day after; peers must agree."""
    beirut = ZoneInfo("Asia/Beirut")
    start = datetime(2022, 3, 1, tzinfo=UTC)

    assert ["04-27 12:00 EEST"] == walls("0 12 27 3-4 *", beirut, start, 1)


def test_a_day_that_a_zone_drops_does_not_hold_up_the_search() -> None:
    """Samoa went from 29 to 31 December 2011."""
    apia = ZoneInfo("Pacific/Apia")
    start = datetime(2011, 12, 28, tzinfo=UTC)

    assert ["12-31 12:00 +14"] == walls("0 12 30,31 * *", apia, start, 1)


def test_every_lies_a_period_after_the_moment_without_its_parts_of_a_second() -> None:
    """As Asynq does it: the phase is that of the process."""
    moment = NOON + timedelta(seconds=7, microseconds=999_999)

    assert NOON + timedelta(seconds=97) == parse_cron("@every 90s").next_after(moment)


@pytest.mark.parametrize(
    ("seconds", "tick"),
    [(0, 90), (89.9, 90), (90, 180), (1000, 1080), (-0.1, 0), (-90, 0), (-91, -90), (-1000, -990)],
)
def test_h18_every_is_aligned_to_the_anchor(seconds: float, tick: int) -> None:
    """All schedulers that know one tick agree on all, also one whose clock is behind."""
    schedule = parse_cron("@every 90s")

    assert NOON + timedelta(seconds=tick) == schedule.next_after(
        NOON + timedelta(seconds=seconds), anchor=NOON + timedelta(microseconds=999_999)
    )


def test_h18_the_calendar_is_the_anchor_of_other_schedules() -> None:
    """So a scheduler may pass what it has stored, whatever the schedule."""
    schedule = parse_cron("*/7 * * * *")

    assert schedule.next_after(NOON) == schedule.next_after(NOON, anchor=NOON - timedelta(seconds=1))


def test_ticks_between_leaves_out_the_first_moment_and_not_the_last() -> None:
    """So that intervals put end to end give each tick once."""
    schedule = parse_cron("0 * * * *")
    until = NOON + timedelta(hours=2)

    assert [NOON + timedelta(hours=1), until] == schedule.ticks_between(NOON, until)
    assert [] == schedule.ticks_between(until, until)
    assert [] == schedule.ticks_between(until, NOON)


def test_ticks_between_gives_the_first_ones_up_to_the_limit() -> None:
    """A scheduler that was away for a year catches up step by step."""
    ticks = parse_cron("@every 1s").ticks_between(NOON, NOON + timedelta(days=365), limit=3)

    assert [NOON + timedelta(seconds=seconds) for seconds in (1, 2, 3)] == ticks


def test_ticks_between_are_aligned_to_the_anchor() -> None:
    """`ticks_between` counts `@every` from the anchor, as single ticks do."""
    ticks = parse_cron("@every 1h").ticks_between(
        NOON, NOON + timedelta(hours=2), anchor=NOON + timedelta(minutes=5)
    )

    assert [NOON + timedelta(minutes=5), NOON + timedelta(minutes=65)] == ticks


@pytest.mark.parametrize("text", ["* * * * *", "@every 1s", "0 0 29 2 *", "@yearly"])
def test_the_last_tick_of_many_years_is_found_at_once(text: str) -> None:
    """The search does not walk through millions of ticks."""
    schedule = parse_cron(text)
    until = datetime(2024, 2, 29, tzinfo=UTC) if text != "@yearly" else datetime(2024, 1, 1, tzinfo=UTC)

    assert until == schedule.last_between(datetime(1999, 1, 1, tzinfo=UTC), until)


def test_there_is_no_last_tick_where_there_is_none() -> None:
    """An interval without ticks, an empty one, and one that ends before it begins."""
    schedule = parse_cron("@daily")

    assert None is schedule.last_between(NOON, NOON + timedelta(hours=11))
    assert None is schedule.last_between(NOON, NOON)
    assert None is schedule.last_between(NOON, NOON - timedelta(days=5))


@pytest.mark.parametrize("text", ["0 0 1 1 *", "@every 1000000h"])
def test_after_the_last_year_of_the_calendar_there_are_no_ticks(text: str) -> None:
    """Python's ends with the year 9999."""
    assert None is parse_cron(text).next_after(datetime(9999, 12, 31, 23, tzinfo=UTC))


def test_the_first_moment_of_the_calendar_can_stand_for_never() -> None:
    """Although a zone west of Greenwich cannot show it."""
    tick = parse_cron("TZ=America/New_York @daily").next_after(datetime.min.replace(tzinfo=UTC))

    assert 1 == (tick and tick.year)


@pytest.mark.parametrize("text", ["@daily", "@every 1h"])
def test_a_moment_without_zone_is_refused(text: str) -> None:
    """It could be that of any place."""
    with pytest.raises(InvalidOptionError, match=r"moment=.*: this datetime has no time zone"):
        parse_cron(text).next_after(NOON.replace(tzinfo=None))


def test_the_other_times_without_zone_are_refused_by_their_names() -> None:
    """Each where it is an argument."""
    schedule, naive = parse_cron("@every 1h"), NOON.replace(tzinfo=None)

    with pytest.raises(InvalidOptionError, match="until="):
        schedule.ticks_between(NOON, naive)
    with pytest.raises(InvalidOptionError, match="after="):
        schedule.last_between(naive, NOON)
    with pytest.raises(InvalidOptionError, match="anchor="):
        schedule.next_after(NOON, anchor=naive)


def test_schedules_of_equal_meaning_are_equal() -> None:
    """Equal schedules have equal hashes, so they can be keys of a dict."""
    assert {parse_cron("*/30 * * * *")} == {parse_cron("0,30 0-23 * * ?"), parse_cron("0/30 * * * *")}
    assert parse_cron("@daily") != parse_cron("@daily", location=timezone(timedelta(hours=1)))
