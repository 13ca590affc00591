from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from pyasynq._broker.enqueueing.chunks import as_task
from pyasynq._broker.enqueueing.compose import compose, new_task_info
from pyasynq._clock import Instant
from pyasynq.errors import InvalidOptionError
from pyasynq.options import merge_options, resolve_options
from pyasynq.task import Task

NOW = Instant(1_700_000_000)
SOON = datetime(2030, 1, 1, tzinfo=UTC)
FOREVER = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("queue", b"critical"),
        ("queue", "  "),
        ("queue", "half \ud800"),
        ("task_id", 7),
        ("max_retry", True),
        ("max_retry", 3.0),
        ("max_retry", -1),
        ("timeout", None),
        ("timeout", "5m"),
        ("timeout", -1),
        ("timeout", 10**400),
        ("retention", float("nan")),
        ("process_in", timedelta.max),
        ("unique", True),
        ("unique", 0.5),
        ("until", "done"),
        ("until", None),
        ("unique_key", " "),
        ("unique_key", 5),
        ("on_duplicate", "skip"),
        ("on_duplicate", ["raise"]),
        ("on_conflict", "replace"),
        ("deadline", date(2030, 1, 1)),
        ("deadline", 1_900_000_000),
        ("process_at", datetime(2030, 1, 1)),  # noqa: DTZ001 - naive is what is wrong with it
        ("process_at", datetime(1969, 1, 1, tzinfo=UTC)),
        ("headers", None),
        ("headers", {"tenant": 7}),
        ("headers", {7: "tenant"}),
        ("headers", {"tenant": "half \ud800"}),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_name_of_its_option(option: str, value: Any) -> None:
    """What a user would naturally try; never another error than ours."""
    with pytest.raises(InvalidOptionError, match=option):
        resolve_options({option: value})


def test_options_that_have_been_seen_before_are_checked_by_their_types_too() -> None:
    """The cached result for 1 does not apply to True and 1.0, which are equal to it."""
    assert 1 == resolve_options({"max_retry": 1}).max_retry == resolve_options({"max_retry": 1}).max_retry
    for lookalike in (True, 1.0):
        with pytest.raises(InvalidOptionError, match="max_retry"):
            resolve_options({"max_retry": lookalike})


@pytest.mark.parametrize("value", [["critical"], {"critical": 1}])
def test_a_value_that_cannot_be_hashed_is_refused_like_others(value: Any) -> None:
    """By the option's name; nothing of Python's own shows."""
    with pytest.raises(InvalidOptionError, match="queue"):
        resolve_options({"queue": value})


@pytest.mark.parametrize("option", ["deadline", "process_at"])
def test_a_time_that_no_datetime_can_tell_again_is_refused(option: str) -> None:
    """Rounded up it lies in the year 10000: the task would be enqueued, and could not be described."""
    with pytest.raises(InvalidOptionError, match=option):
        resolve_options({option: FOREVER})


def test_a_delay_beyond_the_year_9999_is_refused() -> None:
    """Checked when the present is known; up to there a task can be described."""
    longest = 253_402_300_799 - NOW.seconds
    with pytest.raises(InvalidOptionError, match="process_in"):
        compose(Task("t", process_in=longest + 1), {}, now=NOW)
    info = new_task_info(compose(Task("t", process_in=longest), {}, now=NOW), NOW)
    assert datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) == info.next_process_at


def test_a_process_time_and_a_delay_in_one_call_are_refused() -> None:
    """The later of two layers wins; within one layer a repetition is ambiguous."""
    with pytest.raises(InvalidOptionError, match="not both"):
        compose(Task("t"), {"process_at": SOON, "process_in": 5}, now=NOW)
    assert {"process_in": 5} == merge_options({"process_at": SOON}, {"process_in": 5})
    assert {"process_at": SOON} == merge_options({"process_in": 5}, {"process_at": SOON})


@pytest.mark.parametrize("headers", [None, 5])
def test_invalid_headers_are_refused_along_with_valid_ones_too(headers: Any) -> None:
    """Merging them with the task's headers raises the same error as alone, not a TypeError."""
    with pytest.raises(InvalidOptionError, match="headers"):
        compose(Task("t", headers={"a": "1"}), {"headers": headers}, now=NOW)
    assert {"a": "1"} == merge_options({"headers": headers}, {"headers": {"a": "1"}})["headers"]


@pytest.mark.parametrize("payload", ["geheim", {"password": "geheim"}, bytearray(b"geheim")])
def test_an_error_about_a_payload_does_not_show_it(payload: Any) -> None:
    """Payloads never appear in errors; what was given instead of bytes is one as well."""
    with pytest.raises(InvalidOptionError, match="payload") as alone:
        Task("t", payload)
    with pytest.raises(InvalidOptionError, match="payload") as with_a_task:
        as_task(Task("t"), payload)
    assert "geheim" not in f"{alone.value} {with_a_task.value}"


def test_a_number_given_with_a_task_is_refused_as_a_payload() -> None:
    """A Task carries its own payload, so a second argument of any type is an error."""
    with pytest.raises(InvalidOptionError, match="a Task carries its own payload"):
        as_task(Task("t"), 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "headers", [{"token": "geheim", "a": 1}, {"token": "geheim \ud800"}, [("token", "geheim")]]
)
def test_an_error_about_headers_does_not_show_their_values(headers: Any) -> None:
    """They may be credentials; their names say which one is wrong."""
    with pytest.raises(InvalidOptionError) as caught:
        resolve_options({"headers": headers})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(9000, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC),
        datetime(9000, 1, 1, 0, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=-5, microseconds=2))),
    ],
)
def test_a_far_datetime_is_as_exact_as_a_near_one(moment: datetime) -> None:
    """A float of seconds has no room for microseconds there, and would round into the next second."""
    assert moment == Instant.from_datetime(moment).to_datetime()


@pytest.mark.parametrize("headers", [{"a": 1}, {"a": "half \ud800"}, {"a": "x" * 1_000_000}])
def test_an_error_about_headers_shows_the_type_that_was_given(headers: Any) -> None:
    """The error does not show the type of the list of header names."""
    with pytest.raises(InvalidOptionError, match=r"^headers=<dict>: "):
        resolve_options({"headers": headers})


def test_a_payload_of_a_wrong_type_is_shown_like_any_other_option() -> None:
    """The error shows the type of the payload in the same form."""
    with pytest.raises(InvalidOptionError, match=r"^payload=<str>: must be bytes"):
        Task("t", "text")  # type: ignore[arg-type]
