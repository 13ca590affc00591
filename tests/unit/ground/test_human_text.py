"""Numbers and durations in messages."""

from __future__ import annotations

import pytest

from pyasynq._human_text import MessageFormatter, counted, duration, some


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 tasks"), (1, "1 task"), (2, "2 tasks"), (1_203, "1,203 tasks")]
)
def test_one_is_singular(number: int, text: str) -> None:
    """Large numbers have commas. (D44)"""
    assert text == counted(number, "task")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00042, "0.4 ms"),
        (0.012, "12 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1.23, "1.2 s"),
        (9.96, "10 s"),
        (41.4, "41 s"),
        (59.7, "1 min"),
        (125, "2 min 5 s"),
        (3_599.9, "1 h"),
        (7_200, "2 h"),
        (5_400, "1 h 30 min"),
        (86_400, "1 day"),
        (180_000, "2 days 2 h"),
        (-1, "0.0 ms"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    """Two units at most, and none is rounded up to its own limit. (D34)"""
    assert text == duration(seconds)


def test_templates_choose_the_number_and_show_foreign_text() -> None:
    """The template names both forms; a value cannot break the line. (D44)"""
    shown = MessageFormatter().vformat(
        "{tasks:task was|tasks were} lost in {queue} after {seconds:time}: {error!r}",
        (),
        {"tasks": 1, "queue": "a\x1b[2J", "seconds": 61, "error": ValueError("no\u202e")},
    )
    assert "1 task was lost in a␛[2J after 1 min 1 s: ValueError('no\\u202e')" == shown


def test_lists_are_cut() -> None:
    """The items left out are counted."""
    assert "a␛, b and 1 more" == some(["a\x1b", "b", "c"], 2)
