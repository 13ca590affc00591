"""Cron expressions: their syntax, their meaning, and the errors for invalid ones."""

from __future__ import annotations

import sys
import zoneinfo
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from pyasynq._cron import parse_cron
from pyasynq._cron.schedule import CalendarSchedule, IntervalSchedule
from pyasynq.errors import ConfigurationError, CronError

if TYPE_CHECKING:
    from collections.abc import Iterator


def calendar(text: str) -> CalendarSchedule:
    """Return the schedule of five fields or a descriptor."""
    schedule = parse_cron(text)
    assert isinstance(schedule, CalendarSchedule)
    return schedule


def refusal(text: str) -> CronError:
    """Return the error that the text is refused with."""
    with pytest.raises(CronError) as caught:
        parse_cron(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("7", {7}),
        ("007", {7}),
        ("+7", {7}),
        ("*", set(range(60))),
        ("?", set(range(60))),
        ("5-8", {5, 6, 7, 8}),
        ("5-5", {5}),
        ("*/20", {0, 20, 40}),
        ("5/20", {5, 25, 45}),
        ("5-30/20", {5, 25}),
        ("5-5/20", {5}),
        ("*/99", {0}),
        ("1,3-4,50/5", {1, 3, 4, 50, 55}),
        (",1,,2,", {1, 2}),
        (",", set()),
        ("*-", set(range(60))),
        ("*-5/30", {0, 30}),
        ("?-x-y", set(range(60))),
    ],
)
def test_a_field_is_a_comma_list_of_stars_numbers_and_ranges_each_with_a_step(
    text: str, minutes: set[int]
) -> None:
    """A number with a step goes on to the field's end; empty items and what follows `*-` say nothing."""
    assert minutes == calendar(f"{text} * * * *").minutes


def test_the_five_fields_are_minute_hour_day_month_and_weekday() -> None:
    """In this order, parted by any white space, with names of three letters for months and weekdays."""
    schedule = calendar("\t1  2 3\nFEB-apr\u3000Sun,2 ")

    assert [{1}, {2}, {3}, {2, 3, 4}, {0, 2}] == [
        set(values)
        for values in (
            schedule.minutes,
            schedule.hours,
            schedule.days,
            schedule.months,
            schedule.weekdays,
        )
    ]


@pytest.mark.parametrize(
    ("text", "both"),
    [
        ("0 0 13 * 5", False),
        ("0 0 * * 5", True),
        ("0 0 13 * *", True),
        ("0 0 13 * ?", True),
        ("0 0 13 * */1", True),
        ("0 0 13,* * 5", True),
        ("0 0 */2 * 5", False),
        ("0 0 ?/2 * 5", False),
        ("0 0 1-31 * 5", False),
    ],
)
def test_a_day_needs_to_match_both_day_fields_only_if_one_is_starred(text: str, both: bool) -> None:
    """A star that a step thins out is not a star for this rule, nor is a full range."""
    assert both == calendar(text).both_days


@pytest.mark.parametrize(
    ("descriptor", "fields"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_a_descriptor_stands_for_five_fields(descriptor: str, fields: str) -> None:
    """Descriptors such as `@daily` are read in lower case only."""
    assert parse_cron(fields) == parse_cron(descriptor)


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("1h30m", 5400), ("1.9s", 1), ("90.5s", 90), ("0.5s", 1), ("0", 1), ("-1h", 1), ("2000h", 7_200_000)],
)
def test_every_has_a_period_of_whole_seconds(duration: str, seconds: int) -> None:
    """Parts of a second are dropped, and less than one second is one second."""
    assert IntervalSchedule(timedelta(seconds=seconds)) == parse_cron(f"@every {duration}")


@pytest.mark.parametrize("prefix", ["TZ", "CRON_TZ"])
def test_a_zone_in_front_goes_before_the_location(prefix: str) -> None:
    """With one of two names for the prefix; what is behind it may have white space around."""
    schedule = parse_cron(f"{prefix}=Europe/Berlin   @daily ", location=ZoneInfo("Asia/Kolkata"))

    assert parse_cron("0 0 * * *", location=ZoneInfo("Europe/Berlin")) == schedule


@pytest.mark.parametrize(
    ("prefix", "zone"),
    [
        ("", timezone(timedelta(hours=3))),
        ("TZ=Local ", timezone(timedelta(hours=3))),
        ("TZ=UTC ", UTC),
        ("TZ= ", UTC),
    ],
)
def test_without_a_zone_or_with_local_the_location_counts(prefix: str, zone: timezone) -> None:
    """An empty name is UTC, as for Go."""
    schedule = parse_cron(f"{prefix}* * * * *", location=timezone(timedelta(hours=3)))

    assert isinstance(schedule, CalendarSchedule)
    assert zone == schedule.zone


def test_the_location_is_utc_if_none_is_given() -> None:
    """The default zone is UTC, as in Asynq's scheduler."""
    assert UTC is calendar("@daily").zone


@pytest.mark.parametrize(
    ("text", "field", "value", "remedy"),
    [
        ("0 0 * * 7", "day of week", "7", "not a number from 0 to 6.*Sunday is 0"),
        ("0 0 * * 5-7", "day of week", "5-7", "'7' in it is not a number from 0 to 6.*Sunday is 0"),
        ("0 0 * * monday", "day of week", "monday", "nor one of sun mon tue wed thu fri sat"),
        ("0 0 * * 5L", "day of week", "5L", "not a number from 0 to 6"),
        ("0 0 * january *", "month", "january", "nor one of jan feb"),
        ("0 0 * 13 *", "month", "13", "not a number from 1 to 12"),
        ("0 0 0 * *", "day of month", "0", "not a number from 1 to 31"),
        ("0 24/2 * * *", "hour", "24/2", "'24' in it is not a number from 0 to 23"),
        ("60 * * * *", "minute", "60", "it is not a number from 0 to 59"),
        ("1,5- * * * *", "minute", "5-", "'' in it is not a number from 0 to 59"),
        ("-5 * * * *", "minute", "-5", "'' in it is not a number from 0 to 59"),
        ("٣ * * * *", "minute", "٣", "not a number from 0 to 59"),
        ("** * * * *", "minute", "**", "not a number from 0 to 59"),
        ("1e1 * * * *", "minute", "1e1", "not a number from 0 to 59"),
        ("0 22-2 * * *", "hour", "22-2", "runs backwards; write 22-23,0-2"),
        ("0 0 * * fri-sun", "day of week", "fri-sun", "runs backwards; write 5-6,0-0"),
        ("1-2-3 * * * *", "minute", "1-2-3", "more than one -"),
        ("1/2/3 * * * *", "minute", "1/2/3", "more than one /"),
        ("*/0 * * * *", "minute", "*/0", "a number of 1 or more"),
        ("*/-2 * * * *", "minute", "*/-2", "a number of 1 or more"),
        ("*/ * * * *", "minute", "*/", "a number of 1 or more"),
        ("*/9223372036854775808 * * * *", "minute", "*/9223372036854775808", "a number of 1 or more"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_the_remedy(
    text: str, field: str, value: str, remedy: str
) -> None:
    """The message begins with the expression, because a program may register many."""
    with pytest.raises(CronError, match=remedy) as caught:
        parse_cron(text)

    assert str(caught.value).startswith(f"cron expression {text!r}: {field} {value!r}: ")
    assert (text, field, value) == (caught.value.expression, caught.value.field, caught.value.value)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "it is blank; write five fields"),
        (" \t", "it is blank; write five fields"),
        ("* * * *", "write five fields, not 4: minute, hour"),
        ("0 * * * * *", "write five fields, not 6: .*none for seconds or years"),
        ("TZ=UTC ", "write five fields, not 0"),
        ("TZ=UTC", "put a space after it and write five fields"),
        (" @daily", "remove the white space in front"),
        ("\tCRON_TZ=UTC @daily", "remove the white space in front"),
        ("@Daily", "write @yearly, .*@hourly or '@every 1h30m'"),
        ("@daily ", "there is no such descriptor"),
        ("@reboot", "there is no such descriptor"),
        ("@every", "there is no such descriptor"),
        ("@every 5 minutes", "'5 minutes': this is not a duration .*; write it as in 1h30m"),
        ("@every 1d", "this is not a duration"),
        ("@every 2562048h", "not a duration of up to 292 years"),
        ("* * * * *\0", r"'\\x00': this character is not allowed"),
        ("*-\x1b * * * *", r"'\\x1b': this character is not allowed"),
        ("*-\ud800 * * * *", r"'\\ud800': this character is not allowed"),
        ("TZ=Europe/Berlni * * * * *", "'Europe/Berlni': .*did you mean 'Europe/Berlin'"),
        ("TZ=qqqqqqqqqqqqqqqq * * * * *", "there is no such time zone; write an IANA name"),
        ("TZ=../UTC * * * * *", "there is no such time zone"),
        ("TZ=/etc/localtime * * * * *", "there is no such time zone"),
        ("TZ=Europe * * * * *", "there is no such time zone"),
        ("TZ=Ü * * * * *", "there is no such time zone"),
        ("TZ=UTC\t* * * * *", "there is no such time zone"),
    ],
)
def test_an_invalid_expression_is_refused_with_the_remedy(text: str, remedy: str) -> None:
    """The error has no field then."""
    with pytest.raises(CronError, match=remedy) as caught:
        parse_cron(text)

    assert None is caught.value.field


def test_a_huge_text_is_refused_without_being_repeated() -> None:
    """It would only fill the log."""
    error = refusal("1," * 1_000_000 + "1 * * * *")

    assert "it has 2,000,009 characters, more than 1,000; use ranges and steps" in str(error)
    assert 250 > len(str(error))


def test_every_value_of_every_field_may_be_listed() -> None:
    """The limit of the length leaves room for that."""
    fields = [range(60), range(24), range(1, 32), range(1, 13), range(7)]
    text = " ".join(",".join(f"{value:02d}" for value in values) for values in fields)

    assert set(range(1, 32)) == calendar(text).days
    assert set(range(7)) == calendar(text).weekdays


def test_the_error_is_one_of_configuration_and_a_value_error() -> None:
    """So that code that knows nothing of cron expressions treats it sensibly."""
    assert isinstance(refusal(""), ConfigurationError)
    assert isinstance(refusal(""), ValueError)


@pytest.fixture
def host_without_zones(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the time zones of the host and those of the package tzdata."""
    for name in [name for name in sys.modules if name.startswith("tzdata.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zoneinfo.reset_tzpath(to=[])
    ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath()
    ZoneInfo.clear_cache()


@pytest.mark.usefixtures("host_without_zones")
def test_a_host_without_time_zones_is_told_the_package_to_install() -> None:
    """Windows and some containers have none."""
    assert "this host has no time zone data; install the package tzdata" in str(
        refusal("TZ=Europe/Rome @daily")
    )


@pytest.mark.usefixtures("host_without_zones")
def test_utc_needs_no_time_zone_data() -> None:
    """Neither as the default nor by name."""
    moment = datetime(2024, 2, 29, 23, 59, tzinfo=UTC)

    assert datetime(2024, 3, 1, tzinfo=UTC) == parse_cron("TZ=UTC @daily").next_after(moment)
