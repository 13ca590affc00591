"""Texts as Go writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pyasynq.web.asynqmon.go_texts import (
    encode_json,
    format_data,
    format_latency,
    format_set_time,
    format_time,
    quote_for_go,
)


def test_json_is_written_as_go_writes_it() -> None:
    """Without spaces, the signs of HTML escaped, other letters as they are, a newline at the end."""
    value = {"a": [1, None, True], "b": "<é&\u2028>", "c": "\ud800"}

    assert b'{"a":[1,null,true],"b":"\\u003c\xc3\xa9\\u0026\\u2028\\u003e","c":"?"}\n' == encode_json(value)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (None, "0001-01-01T00:00:00Z"),
        (datetime(2026, 11, 25, 13, 5, 9, 120_000, UTC), "2026-11-25T13:05:09.12Z"),
        (datetime(2026, 11, 25, 13, 5, 9, 0, UTC), "2026-11-25T13:05:09Z"),
        (datetime(2026, 11, 25, 13, 5, 9, 0, timezone(timedelta(hours=3))), "2026-11-25T10:05:09Z"),
    ],
)
def test_a_time_has_the_fraction_that_it_needs(
    moment: datetime | None, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zero offset is `Z`. None is Go's zero time."""
    monkeypatch.setattr("pyasynq.web.asynqmon.go_texts.local_time", lambda one: one.astimezone(UTC))

    assert text == format_time(moment, fraction=True)


def test_a_time_shows_the_offset_of_the_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time has no fraction of a second, as in other texts."""
    zone = timezone(timedelta(hours=-3, minutes=-30))
    monkeypatch.setattr("pyasynq.web.asynqmon.go_texts.local_time", lambda one: one.astimezone(zone))

    assert "2026-11-25T09:35:09-03:30" == format_time(datetime(2026, 11, 25, 13, 5, 9, 1, UTC))
    assert "" == format_set_time(None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.004, "0s"), (0.005, "10ms"), (1.234, "1.23s"), (3_725.5, "1h2m5.5s")],
)
def test_a_latency_is_rounded_to_ten_milliseconds(seconds: float, text: str) -> None:
    """Halves go up."""
    assert text == format_latency(timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"a": 1}', '{"a": 1}'),
        ("größe".encode(), "größe"),
        (b"", "non-printable bytes"),
        (b"   ", "non-printable bytes"),
        (b"two\nlines", "non-printable bytes"),
        (b"\xff", "non-printable bytes"),
        ("\u202egnp.exe".encode(), "non-printable bytes"),
    ],
)
def test_only_printable_text_is_shown(data: bytes, text: str) -> None:
    """Asynqmon's formatter decides in the same way."""
    assert text == format_data(data, None)


def test_a_long_text_is_cut() -> None:
    """After this many characters, not bytes."""
    assert "ööö…" == format_data("öööö".encode(), 3)
    assert "öööö" == format_data("öööö".encode(), 4)


def test_a_quoted_text_has_no_sign_that_is_not_seen() -> None:
    """The text is quoted like Go's verb %q."""
    assert r'"a\"\\\n\x00\u202e\U000e0001é"' == quote_for_go('a"\\\n\x00\u202e\U000e0001é')
