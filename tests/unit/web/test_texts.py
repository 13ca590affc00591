"""Texts, addresses and drawings of the dashboard, without Redis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyasynq.operations import present
from pyasynq.web import charts, formats
from pyasynq.web.auth.rate_limit import RateLimit
from pyasynq.web.locations import Links, from_segment, to_segment
from pyasynq.web.pages.queue_tabs import first_words, quoted
from pyasynq.web.pages.schedules import describe_spec
from pyasynq.web.preferences import Preferences, change_preferences, read_preferences

NOW = datetime(2026, 11, 23, 12, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0002, "0 ms"),
        (0.212, "212 ms"),
        (0.9996, "1 s"),
        (1.24, "1.2 s"),
        (9.96, "10 s"),
        (41, "41 s"),
        (840, "14 min"),
        (11_400, "3 h 10 min"),
        (7_200, "2 h"),
        (90_000, "1 d 1 h"),
        (41 * 86_400, "41 d"),
    ],
)
def test_a_length_of_time_has_two_units_at_most(seconds: float, text: str) -> None:
    """It is rounded where the next unit begins."""
    assert text == formats.span(seconds)


def test_times_are_told_from_now_on_and_back() -> None:
    """Within a second it is now."""
    assert "34 s ago" == formats.relative(NOW - timedelta(seconds=34), NOW)
    assert "in 3 min" == formats.relative(NOW + timedelta(minutes=3), NOW)
    assert "now" == formats.relative(NOW, NOW)
    assert "23 Nov 2026, 12:04:05 UTC" == formats.exact(NOW)


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1 byte"), (214, "214 bytes"), (3_400_000, "3.4 MB"), (999_600, "1.0 MB")]
)
def test_sizes_go_in_steps_of_a_thousand(count: int, text: str) -> None:
    """A size below ten has one decimal digit."""
    assert text == formats.size(count)


@given(st.text())
def test_a_name_survives_the_way_through_a_path(name: str) -> None:
    """Whatever is in it; and the segment has no slash, percent sign or leading dot."""
    if not name.isprintable():
        name = "".join(character for character in name if not 0xD800 <= ord(character) <= 0xDFFF)
    segment = to_segment(name)
    assert name == from_segment(segment)
    assert not set(segment) & set("/%?# \\<>\"'")
    assert not segment.startswith(".")


def test_links_are_relative_to_their_page() -> None:
    """The links work under any URL prefix."""
    links = Links("/queues/emails/tasks/7", {"as": "hex", "data": "result"})
    assert "../../../" == links.to()
    assert "../../../queues/a~2Fb?state=retry" == links.to("queues", "a/b", state="retry", page=None)
    assert "7?data=result" == links.here(**{"as": None})
    assert "./" == Links("/", {}).to()


def test_a_sparkline_stays_in_its_box() -> None:
    """The largest value at the top, zeros near the ground, one value as a line."""
    assert "0,22 50,2 100,12" == charts.spark_points([0, 4, 2])
    assert "0,22 100,22" == charts.spark_points([])


def test_stacked_bars_stand_on_each_other() -> None:
    """The axis ends at a number that four steps divide well."""
    drawn = charts.stacked_bars([[2.0, 4.0], [2.0, 0.0]])
    assert ("M30 75h240v75h-240zM330 0h240v150h-240z", "M30 0h240v75h-240z") == drawn.paths
    assert ["0", "1", "2", "3", "4"] == [line.label for line in drawn.lines]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("*/5 * * * *", "every 5 minutes"),
        ("* * * * *", "every minute"),
        ("0 6 * * 1-5", "Monday to Friday at 06:00"),
        ("30 2 * * *", "every day at 02:30"),
        ("0 3 1 * *", "on day 1 of each month at 03:00"),
        ("0 */4 * * *", "every 4 hours at minute 0"),
        ("@every 30s", "every 30s"),
        ("CRON_TZ=Europe/Berlin 0 6 * * 1", "every Monday at 06:00, Europe/Berlin"),
        ("1,2,3 4-5 */7 JAN ?", ""),
        ("x" * 10_000_000, ""),
    ],
)
def test_common_expressions_are_told_in_words(spec: str, words: str) -> None:
    """Others have no words, which costs nothing however long they are."""
    assert words == describe_spec(spec)


def test_numbers_of_a_payload_lose_no_digit() -> None:
    """They are shown as they are written."""
    tree = present(b'{"id":12345678901234567890123,"ratio":0.10000000000000000001}').tree
    assert tree is not None
    assert tree.children is not None
    assert ["12345678901234567890123", "0.10000000000000000001"] == [child.text for child in tree.children]


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b"\xff\x00", b"{broken", b'["\\ud800"]']
)
def test_no_payload_breaks_the_page(data: bytes) -> None:
    """Deep, broken and binary data have a form too."""
    shown = present(data)
    assert shown.form in {"tree", "text", "hex"}


def test_a_large_payload_is_cut() -> None:
    """64 KB are shown; the rest is for the download."""
    shown = present(b"x" * 5_000_000)
    assert (65_536, "5.0 MB") == (len(shown.text), shown.size)


def test_tries_are_counted_in_a_sliding_window() -> None:
    """Each key has a count of its own."""
    now = 0.0
    limit = RateLimit(2, 60.0, clock=lambda: now)
    assert [True, True, False, True] == [limit.allow(key) for key in ("a", "a", "a", "b")]
    now = 61.0
    assert limit.allow("a")


def test_preferences_come_back_from_their_cookie() -> None:
    """A preference with an invalid value is left at its default."""
    chosen = change_preferences(Preferences(), {"theme": "dark", "zone": "Europe/Berlin", "density": "tiny"})
    assert ("dark", "Europe/Berlin", "comfortable") == (chosen.theme, chosen.zone, chosen.density)
    assert chosen == read_preferences(chosen.to_cookie())
    assert Preferences() == read_preferences("theme=%ff&zone=../../etc/passwd")


def test_values_of_queries_are_quoted_where_it_matters() -> None:
    """Plain words are not; quotes and backslashes are escaped."""
    assert "emails" == quoted("emails")
    assert '"a \\"b\\" \\\\c"' == quoted('a "b" \\c')


def test_a_signature_is_searched_by_its_longest_part() -> None:
    """Placeholders stand for what differs from task to task."""
    assert "from parcel API: upstream request timeout" == first_words(
        "<n> from parcel API: upstream request timeout"
    )
