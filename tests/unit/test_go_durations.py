"""Durations as Go prints and reads them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pyasynq._go_duration import format_go_duration, parse_go_duration, to_timedelta

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0s", 0),
        ("1ns", 1),
        ("999ns", 999),
        ("1µs", MICROSECOND),
        ("1.1µs", 1_100),
        ("100µs", 100 * MICROSECOND),
        ("1.5ms", 1_500 * MICROSECOND),
        ("2.2ms", 2_200 * MICROSECOND),
        ("999.999999ms", SECOND - 1),
        ("1s", SECOND),
        ("1.000000001s", SECOND + 1),
        ("3.3s", 3_300 * MILLISECOND),
        ("1m0s", 60 * SECOND),
        ("1m30s", 90 * SECOND),
        ("4m5.001s", 245_001 * MILLISECOND),
        ("1h0m0s", 3600 * SECOND),
        ("24h0m0s", 24 * 3600 * SECOND),
        ("-1.5s", -1_500 * MILLISECOND),
        ("2562047h47m16.854775807s", 2**63 - 1),
        ("-2562047h47m16.854775808s", -(2**63)),
    ],
)
def test_a_duration_is_printed_as_in_go_and_read_back(text: str, nanoseconds: int) -> None:
    """Below a second one unit, from a second on hours, minutes and seconds without leading zero parts."""
    assert text == format_go_duration(nanoseconds)
    assert nanoseconds == parse_go_duration(text)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0"),
        (0, "-0"),
        (5 * SECOND, "+5s"),
        (1_500 * MILLISECOND, "1.5s"),
        (5 * SECOND, "5.s"),
        (500 * MILLISECOND, ".5s"),
        (10 * MICROSECOND, "10us"),
        (10 * MICROSECOND, "10μs"),
        (int(-2.25 * 3600) * SECOND, "-2.25h"),
        (SECOND, "400ms0.6s"),
        (61 * SECOND, "1s1m"),
        (0, "0.9ns"),
    ],
)
def test_a_duration_written_by_hand_is_read(nanoseconds: int, text: str) -> None:
    """Any sequence of decimals with units, in any order, with a sign in front."""
    assert nanoseconds == parse_go_duration(text)


@pytest.mark.parametrize(
    "text", ["", "-", "1", "1.5", "s", ".s", "1 s", "1S", "1d", "1s-1s", "--1s", "1e3s", "1s\n", "٣s"]
)
def test_a_text_that_is_not_a_duration_is_refused(text: str) -> None:
    """The error shows the text and the right form."""
    with pytest.raises(ValueError, match="is not a duration; write it as in 1h30m"):
        parse_go_duration(text)


@pytest.mark.parametrize("text", ["2562047h47m16.854775808s", "-2562047h47m16.854775809s", "9999999999h"])
def test_a_duration_that_go_cannot_hold_is_not_read(text: str) -> None:
    """Go counts nanoseconds in 64 bits."""
    with pytest.raises(ValueError, match="292 years"):
        parse_go_duration(text)


def test_a_duration_that_go_cannot_hold_is_not_written() -> None:
    """A timedelta reaches much further."""
    with pytest.raises(ValueError, match="292 years"):
        format_go_duration(timedelta.max)


@pytest.mark.parametrize("nanoseconds", [1_999, -1_999])
def test_parts_of_a_microsecond_are_cut_toward_zero(nanoseconds: int) -> None:
    """Go rounds in the same way when it converts to a coarser unit."""
    assert timedelta(microseconds=1) == abs(to_timedelta(nanoseconds))
