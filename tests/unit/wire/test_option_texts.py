"""Options as text, as schedulers publish them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pyasynq._wire.options_text import (
    Option,
    OptionName,
    OptionValue,
    UnknownOption,
    format_option,
    format_options,
    parse_option,
)

INSTANT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("MaxRetry(3)", OptionName.MAX_RETRY, 3),
        ('Queue("low")', OptionName.QUEUE, "low"),
        ('TaskID("x")', OptionName.TASK_ID, "x"),
        ("Timeout(30s)", OptionName.TIMEOUT, timedelta(seconds=30)),
        ("Deadline(Tue Nov 14 22:13:20 UTC 2023)", OptionName.DEADLINE, INSTANT),
        ("Unique(1h0m0s)", OptionName.UNIQUE, timedelta(hours=1)),
        (
            "ProcessAt(Sat Nov  4 02:03:04 UTC 2023)",
            OptionName.PROCESS_AT,
            datetime(2023, 11, 4, 2, 3, 4, tzinfo=UTC),
        ),
        ("ProcessIn(5m0s)", OptionName.PROCESS_IN, timedelta(minutes=5)),
        ("Retention(24h0m0s)", OptionName.RETENTION, timedelta(days=1)),
        ('Group("g")', OptionName.GROUP, "g"),
        ('Header(["k","v"])', OptionName.HEADER, ("k", "v")),
        (r'Queue("a \"b\" \\ \n \u200b é")', OptionName.QUEUE, 'a "b" \\ \n \u200b é'),
        (r'Header(["\u003ca\u003e","\u0026 \"\u2028"])', OptionName.HEADER, ("<a>", '& "\u2028')),
    ],
)
def test_an_option_is_written_as_go_writes_it_and_read_back(
    text: str, name: OptionName, value: OptionValue
) -> None:
    """Each option has one text form."""
    assert text == format_option(name, value)
    assert Option(name, value) == parse_option(text)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        (r'Queue("a\x29b")', Option(OptionName.QUEUE, "a)b")),
        (r'Header(["a\u0029","b"])', Option(OptionName.HEADER, ("a)", "b"))),
    ],
)
def test_w28_a_parenthesis_in_a_text_is_escaped(text: str, option: Option) -> None:
    """Asynq's own reader ends the value at the first parenthesis, and understands the escape."""
    assert text == format_option(*option)
    assert option == parse_option(text)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ('Queue("a)b")', Option(OptionName.QUEUE, "a)b")),
        ('Header(["a(b)","c)"])', Option(OptionName.HEADER, ("a(b)", "c)"))),
        ('TaskID("nightly (1)")', Option(OptionName.TASK_ID, "nightly (1)")),
        ('Group("user:1")', Option(OptionName.GROUP, "user:1")),
    ],
)
def test_w28_what_asynq_writes_and_cannot_read_is_read(text: str, option: Option) -> None:
    """Asynq drops task id and group, and breaks at a parenthesis inside a text."""
    assert option == parse_option(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it does not have the form Name(value)"),
        ("MaxRetry", "it does not have the form Name(value)"),
        ("MaxRetry(3", "it does not have the form Name(value)"),
        ('Colour("red")', "no option is named 'Colour'"),
        ("maxretry(3)", "no option is named 'maxretry'"),
        ("MaxRetry(three)", "'three' is not a whole number"),
        ("MaxRetry(1_0)", "'1_0' is not a whole number"),
        ("MaxRetry(٣)", "'٣' is not a whole number"),
        ("Queue(low)", "'low' is not a text between double quotes as Go writes it"),
        ('Queue("a" + "b")', "is not a text between double quotes"),
        ("Timeout(30)", "'30' is not a duration; write it as in 1h30m, 1.5s or 250ms"),
        ("Deadline(2023-11-14)", "'2023-11-14' is not a date of the form Tue Nov 14 22:13:20 UTC 2023"),
        ("Deadline(Tue Nov 31 22:13:20 UTC 2023)", "day is out of range for month"),
        ("Deadline(Tue Nov 14 22:13:20 CST 2023)", "the time zone 'CST' has no certain distance from UTC"),
        ("Header(k, v)", "'k, v' is not a JSON array of two texts"),
        ('Header(["k"])', "is not a JSON array of two texts"),
        ('Header(["k",1])', "is not a JSON array of two texts"),
        (r'Header(["k","\ud800"])', "the header 'k' is not valid Unicode (a lone surrogate)"),
        ("Header(" + "[" * 100_000 + ")", "is not a JSON array of two texts"),
        ("MaxRetry(" + "9" * 100_000 + ")", "Exceeds the limit"),
    ],
)
def test_w28_a_text_that_is_not_an_option_is_reported_and_not_raised(text: str, reason: str) -> None:
    """A peer may write anything; one text must not hide the other options, and not be lost silently."""
    unknown = parse_option(text)
    assert isinstance(unknown, UnknownOption)
    assert text == unknown.text
    assert reason in unknown.reason


@pytest.mark.parametrize(
    ("zone", "hours"),
    [("UTC", 0.0), ("GMT", 0.0), ("+00", 0.0), ("-03", -3.0), ("+0545", 5.75), ("-0330", -3.5)],
)
def test_a_date_in_a_zone_with_a_known_distance_is_read(zone: str, hours: float) -> None:
    """Go writes the distance for zones that have no abbreviation."""
    expected = datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone(timedelta(hours=hours)))
    assert Option(OptionName.DEADLINE, expected) == parse_option(f"Deadline(Tue Nov 14 22:13:20 {zone} 2023)")


def test_an_instant_is_written_in_utc_without_parts_of_a_second() -> None:
    """The reader needs no table of time zones."""
    instant = datetime(2024, 3, 1, 0, 30, 5, 999_999, tzinfo=timezone(timedelta(hours=1)))
    assert "ProcessAt(Thu Feb 29 23:30:05 UTC 2024)" == format_option(OptionName.PROCESS_AT, instant)


def test_options_keep_their_order() -> None:
    """Later options win over earlier ones, so the order matters."""
    options: list[tuple[OptionName, OptionValue]] = [
        (OptionName.QUEUE, "a"),
        (OptionName.MAX_RETRY, 0),
        (OptionName.QUEUE, "b"),
    ]
    assert ('Queue("a")', "MaxRetry(0)", 'Queue("b")') == format_options(options)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (OptionName.MAX_RETRY, "3", "MaxRetry takes a value of type int, not str"),
        (OptionName.MAX_RETRY, True, "MaxRetry takes a value of type int, not bool"),
        (OptionName.TIMEOUT, 30, "Timeout takes a value of type timedelta, not int"),
        (OptionName.HEADER, "k=v", "Header takes a value of type tuple, not str"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(name: OptionName, value: OptionValue, message: str) -> None:
    """The error names the option and both types."""
    with pytest.raises(TypeError, match=message):
        format_option(name, value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (OptionName.DEADLINE, datetime(2026, 1, 2), "Deadline: 2026-01-02T00:00:00 has no time zone"),  # noqa: DTZ001
        (OptionName.QUEUE, "\ud800", "Queue: .* is not valid Unicode"),
        (OptionName.HEADER, ("k", "\ud800"), "Header: the header 'k' is not valid Unicode"),
        (OptionName.RETENTION, timedelta(days=200_000), "Retention: .* 292 years"),
    ],
)
def test_a_value_without_text_form_is_refused(name: OptionName, value: OptionValue, message: str) -> None:
    """The error names the option and the reason."""
    with pytest.raises(ValueError, match=message):
        format_option(name, value)
