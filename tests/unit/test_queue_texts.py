"""The texts of flags and variables about queues."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._queue_texts import read_max_run, read_ordered, read_rates, read_weights, show_queues
from pyasynq.errors import InvalidOptionError
from pyasynq.limits import Queue, read_rate

if TYPE_CHECKING:
    from collections.abc import Callable


def test_weights_are_read_with_1_where_none_is_given() -> None:
    """Blanks around names and numbers do not count."""
    assert {"critical": 6, "default": 1} == read_weights("queues", " critical = 6 ,default")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("50/s", {"rate": 50.0, "period": 1.0}),
        ("0.5/10m", {"rate": 0.5, "period": 600.0}),
        ("100/h+5", {"rate": 100.0, "period": 3_600.0, "burst": 5}),
    ],
)
def test_rates_are_read(text: str, fields: dict[str, Any]) -> None:
    """Tasks per period, and what may start at once."""
    assert fields == read_rate("rate", text)
    assert {"mail": fields} == read_rates("queue_rate", f"mail={text}")


def test_limits_are_read_by_queue() -> None:
    """Each is a part of what `Queue` takes."""
    assert {"a": {"max_run": 1}, "b": {"max_run": 20}} == read_max_run("queue_max_run", "a=1,b=20")
    assert {"a": {"ordered": True}, "b": {"ordered": True}} == read_ordered("queue_ordered", "a, b")


def test_the_text_none_removes_a_limit() -> None:
    """The word is the one of other optional settings."""
    assert {"a": {"max_run": None}, "b": {"max_run": 2}} == read_max_run("queue_max_run", "a=none,b=2")
    assert {"a": {"rate": None}} == read_rates("queue_rate", "a = None")


def test_a_queue_takes_a_rate_as_text() -> None:
    """It is the same as its parts."""
    assert Queue(rate=5) == Queue(rate="5/s")
    queue = Queue(rate="100/m+10", max_run=3)
    assert Queue(rate=100, period=60, burst=10, max_run=3) == queue == replace(queue, priority=1)


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        ({"rate": "5"}, "write 50/s, 100/m"),
        ({"rate": "0/s"}, "must be a number above 0"),
        ({"rate": "5/m", "period": 60}, "has period and burst in its text"),
        ({"rate": "5/m", "burst": 2}, "has period and burst in its text"),
    ],
)
def test_a_wrong_rate_of_a_queue_is_refused(fields: dict[str, Any], remedy: str) -> None:
    """The error says what to write."""
    with pytest.raises(InvalidOptionError, match=rf"^rate=.*{remedy}"):
        Queue(**fields)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_weights, ""),
        (read_weights, "a,,b"),
        (read_weights, "a=1,a=2"),
        (read_weights, "a=0"),
        (read_weights, "a=b"),
        (read_max_run, "a"),
        (read_max_run, "a="),
        (read_max_run, "a=0"),
        (read_max_run, "a=²"),
        (read_max_run, f"a={'9' * 5_000}"),
        (read_rates, "a"),
        (read_rates, "a=50"),
        (read_rates, "a=0/s"),
        (read_rates, "a=1.2.3/s"),
        (read_rates, "a=50/s+0"),
        (read_rates, f"a=5/s+{'9' * 5_000}"),
        (read_ordered, "a=1"),
        (read_ordered, "a,"),
    ],
)
def test_other_texts_are_refused(read: Callable[[str, str], object], text: str) -> None:
    """The error names the flag or the variable."""
    with pytest.raises(InvalidOptionError, match=r"^FLAG="):
        read("FLAG", text)


def test_queues_are_shown_with_their_limits() -> None:
    """The text is the one that `--show-config` prints."""
    assert "a=3, b=1 (max_run 2)" == show_queues({"a": 3, "b": Queue(max_run=2)})
