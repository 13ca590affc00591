"""Properties of schedules: against a walk through every minute, and against another implementation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pyasynq._cron import parse_cron
from pyasynq.errors import CronError

BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
HORIZON = timedelta(days=3)
# Zones that change by a whole hour, and not at midnight: there, and only there, the walk finds what Go finds.
ZONES: list[tzinfo] = [
    UTC,
    timezone(timedelta(hours=-3, minutes=-30)),
    ZoneInfo("Asia/Kolkata"),
    ZoneInfo("Europe/Berlin"),
    ZoneInfo("America/New_York"),
]
CHANGES = [
    datetime(2024, 3, 31, 1, tzinfo=UTC),
    datetime(2024, 10, 27, 1, tzinfo=UTC),
    datetime(2024, 3, 10, 7, tzinfo=UTC),
    datetime(2024, 11, 3, 6, tzinfo=UTC),
    datetime(2023, 12, 31, 23, tzinfo=UTC),
]
MOMENTS_NEAR_CHANGES = st.builds(
    lambda change, seconds: change + timedelta(seconds=seconds),
    st.sampled_from(CHANGES),
    st.floats(-4 * 86_400, 2 * 86_400),
)
MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2080, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


class Field(NamedTuple):
    """A field as text, the values that it must stand for, and whether it must count as a star."""

    text: str
    values: frozenset[int]
    starred: bool


class Expression(NamedTuple):
    """Five fields."""

    fields: tuple[Field, ...]

    @property
    def text(self) -> str:
        return " ".join(field.text for field in self.fields)

    def matches(self, wall: datetime) -> bool:
        minute, hour, day, month, weekday = self.fields
        in_days, in_weekdays = wall.day in day.values, wall.isoweekday() % 7 in weekday.values
        day_matches = (
            (in_days and in_weekdays) if day.starred or weekday.starred else (in_days or in_weekdays)
        )
        return (
            wall.minute in minute.values
            and wall.hour in hour.values
            and day_matches
            and wall.month in month.values
        )


@st.composite
def items(draw: st.DrawFn, least: int, most: int) -> Field:
    """Return one item of a comma list."""
    low, high = sorted((draw(st.integers(least, most)), draw(st.integers(least, most))))
    form, first, last = draw(
        st.sampled_from(
            [("*", least, most), ("?", least, most), (str(low), low, low), (f"{low}-{high}", low, high)]
        )
    )
    step = draw(st.one_of(st.none(), st.integers(1, 12)))
    if step is not None and form == str(low):
        last = most
    text = form if step is None else f"{form}/{step}"
    return Field(text, frozenset(range(first, last + 1)[:: step or 1]), form in "*?" and step in (None, 1))


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    """Return five fields of one to three items."""
    fields = []
    for least, most in BOUNDS:
        parts = draw(st.lists(items(least, most), min_size=1, max_size=3))
        values = frozenset[int]().union(*(part.values for part in parts))
        fields.append(
            Field(",".join(part.text for part in parts), values, any(part.starred for part in parts))
        )
    return Expression(tuple(fields))


@st.composite
def plain_expressions(draw: st.DrawFn) -> str:
    """Return an expression that cronsim takes to mean the same.

    To cronsim `*/2` is a star in the rule of the two day fields, 7 is a Sunday too (so `5/2` reaches it),
    and `5-5/2` is `5/2`.
    """
    fields = []
    for least, most in BOUNDS:
        low = draw(st.integers(least, most - 1))
        high = draw(st.integers(low + 1, most))
        step = draw(st.integers(1, 12))
        forms = ["*", f"*/{step}", str(low), f"{low}-{high}", f"{low}-{high}/{step}", f"{low},{high}"]
        if (least, most) != (0, 6):
            forms.append(f"{low}/{step}")
        fields.append(draw(st.sampled_from(forms)))
    if fields[2] != "*" and fields[4] != "*":
        fields[2], fields[4] = (field if "*" not in field else "2-5" for field in (fields[2], fields[4]))
    return " ".join(fields)


def first_minute(expression: Expression, zone: tzinfo, after: datetime) -> datetime | None:
    """Walk through the minutes up to the horizon."""
    minute = after.replace(second=0, microsecond=0)
    while minute <= after + HORIZON:
        minute += timedelta(minutes=1)
        if expression.matches(minute.astimezone(zone)):
            return minute
    return None


@given(expression=expressions(), zone=st.sampled_from(ZONES), moment=MOMENTS_NEAR_CHANGES)
def test_the_next_tick_is_the_first_minute_whose_wall_clock_matches(
    expression: Expression, zone: tzinfo, moment: datetime
) -> None:
    """Found by looking at every minute."""
    expected = first_minute(expression, zone, moment)
    tick = parse_cron(expression.text, location=zone).next_after(moment)

    if expected is not None:
        assert expected == tick
    else:
        assert tick is None or tick > moment + HORIZON


@given(expression=expressions(), moment=MOMENTS, zone=st.sampled_from(ZONES))
def test_a_tick_is_later_and_matches_however_far_away(
    expression: Expression, moment: datetime, zone: tzinfo
) -> None:
    """At a whole minute of the wall clock."""
    tick = parse_cron(expression.text, location=zone).next_after(moment)

    assume(tick is not None)
    assert tick is not None
    assert moment < tick
    assert (0, 0) == (tick.second, tick.microsecond)
    assert expression.matches(tick.astimezone(zone))


@given(text=plain_expressions(), moment=MOMENTS)
@example("0 0 29 2 *", datetime(2095, 1, 1, tzinfo=UTC))
def test_cronsim_agrees_where_its_grammar_does(text: str, moment: datetime) -> None:
    """In UTC; it follows Debian's cron where the clock changes."""
    ticks = parse_cron(text).ticks_between(moment, moment + timedelta(days=4 * 365), limit=5)

    assume(ticks)  # it refuses days that never come, such as 30 February
    simulation = CronSim(text, moment)
    assert [next(simulation) for _ in ticks] == ticks


@given(
    text=st.one_of(expressions().map(lambda expression: expression.text), st.just("@every 7m13s")),
    moment=MOMENTS_NEAR_CHANGES,
    hours=st.floats(0, 60),
    zone=st.sampled_from(ZONES),
)
def test_the_last_tick_of_an_interval_is_the_last_of_all_its_ticks(
    text: str, moment: datetime, hours: float, zone: tzinfo
) -> None:
    """The short way and the long way end at one place."""
    schedule, until = parse_cron(text, location=zone), moment + timedelta(hours=hours)
    ticks = schedule.ticks_between(moment, until, limit=100_000)

    assert (ticks[-1] if ticks else None) == schedule.last_between(moment, until)


@given(seconds=st.integers(1, 10**9), anchor=MOMENTS, moment=MOMENTS)
def test_h18_anchored_ticks_form_one_grid(seconds: int, anchor: datetime, moment: datetime) -> None:
    """Whole periods from the anchor's second, the first of them later than the moment."""
    period = timedelta(seconds=seconds)
    tick = parse_cron(f"@every {seconds}s").next_after(moment, anchor=anchor)

    assert tick is not None
    assert moment < tick <= moment + period
    assert timedelta(0) == (tick - anchor.replace(microsecond=0)) % period
    assert tick == parse_cron(f"@every {seconds}s").next_after(moment, anchor=tick)


@given(
    st.one_of(
        st.text(),
        st.text("0123456789*?/-, @LW#+\t\0anjrfmo\u0663\ud800"),
        st.builds("{} {}".format, st.sampled_from(["TZ=UTC", "CRON_TZ=", "@every", "TZ=Asia/"]), st.text()),
        st.builds("{}{}".format, expressions().map(lambda expression: expression.text), st.text(max_size=2)),
    )
)
def test_any_text_is_an_expression_or_refused_with_its_own_error(text: str) -> None:
    """And what is accepted can be asked for its ticks; the message can be written as UTF-8."""
    try:
        schedule = parse_cron(text)
    except CronError as error:
        message = str(error)
    else:
        tick = schedule.next_after(CHANGES[0])
        assert tick is None or tick > CHANGES[0]
        message = repr(schedule)

    assert message.encode()
