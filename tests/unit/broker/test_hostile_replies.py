"""Damaged values of other programs are left out or reported; values next to them are read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyasynq._broker.cancellation import CancelRequest, read_requests
from pyasynq._broker.dequeue import DequeuedTask
from pyasynq._broker.groups import list_groups
from pyasynq._broker.inspecting.queues import history
from pyasynq._broker.inspecting.tasks import get_task
from pyasynq._broker.leases import list_expired
from pyasynq._broker.queue_registry import queue_names
from pyasynq._broker.stored import check_task_id, decode_name, parse_number
from pyasynq._broker.stored_limits import get_limits
from pyasynq._broker.task_events import decode_event
from pyasynq._broker.task_records import decode_task_info
from pyasynq._redis.facts import read_redis_facts
from pyasynq._redis.redis_py import pack_command
from pyasynq._scheduler.entry import option_texts
from pyasynq._wire.engine_text import decode_engine
from pyasynq._wire.history import decode_attempts, decode_progress
from pyasynq.errors import InvalidOptionError, UndecodableMessageError
from pyasynq.limits import QueueLimits
from tests.factories import NOW, message_bytes
from tests.fuzz.fuzzer import DEEP, answer

FIELDS = {"score": None, "result": None, "crashes": None, "trace": None, "token": None, "pending_since": None}


def described(state: str = "pending", message: bytes | None = None, **fields: bytes) -> Any:
    """Return what is said of a task with these fields in its hash."""
    values = (FIELDS | fields).values()
    row = [b"id", message or message_bytes("id"), state.encode(), *values, None, None]
    return decode_task_info(answer(get_task("default", "id"), [row]), NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize("crashes", [b"many", b"\xff", b"", b"9" * 5_000, b"1e3"])
def test_a_count_of_crashes_that_is_not_a_number_is_none(crashes: bytes) -> None:
    """The task is described without its count of crashes."""
    assert 0 == described(crashes=crashes).crashes


def test_a_token_that_is_not_text_is_shown_with_its_bytes() -> None:
    """As text of which every terminal can print all characters."""
    assert r"se\xffrver" == described("active", token=b"se\xffrver/1", score=b"1").server_id


@pytest.mark.parametrize("since", [b"yesterday", b"9" * 30, b"-1e9"])
def test_a_pending_time_that_is_none_is_unknown_or_the_last_there_is(since: bytes) -> None:
    """A datetime cannot hold it."""
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert described(pending_since=since).in_state_since in (None, last)


@pytest.mark.parametrize("field", ["timeout", "retention", "deadline", "completed_at", "last_failed_at"])
@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63), -1])
def test_times_that_no_datetime_can_hold_are_the_first_or_last_that_it_can(field: str, seconds: int) -> None:
    """Protobuf has 64 bits for them."""
    info = described(message=message_bytes("id", **{field: seconds}))  # type: ignore[arg-type]
    assert isinstance(getattr(info, field), datetime | timedelta)


@pytest.mark.parametrize("decode", [decode_attempts, decode_progress, decode_engine])
def test_deeply_nested_json_is_what_cannot_be_read(decode: Any) -> None:
    """It exceeds the recursion limit of Python's parser."""
    text = f"pyasynq {DEEP.decode()}" if decode is decode_engine else DEEP
    assert decode(text) in ((), None, ("pyasynq", {}))


def test_a_deeply_nested_event_is_none() -> None:
    """Such an event is left out, as any other that cannot be read."""
    assert decode_event("default", "1-0", DEEP) is None


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"x retry t/1", b"1 retry", b"1 explode t/1", b"9" * 40 + b" retry t/1"]
)
def test_a_request_to_cancel_in_an_unknown_form_asks_for_nothing(text: bytes) -> None:
    """The value next to it is read."""
    found = answer(read_requests("default", ["damaged", "sound"]), [[text, b"7 retry t/1 2"]])
    assert {"sound": CancelRequest(7, "retry", "t/1 2")} == found


@pytest.mark.parametrize(
    ("plan", "reply"),
    [(queue_names, [b"b", b"\xff", b"a"]), (lambda: list_groups("default"), [b"0", [b"b", b"\xff", b"a"]])],
)
def test_names_that_are_not_utf8_do_not_hide_the_others(plan: Any, reply: Any) -> None:
    """No client, ours or in Go, can have enqueued there."""
    assert ["a", "b"] == answer(plan(), [reply])


def test_a_counter_that_is_not_a_number_counts_as_zero() -> None:
    """The history of the other days is told."""
    days: Any = answer(history("default", 1, now=NOW), [1, [b"many", b"3"]])
    [day] = days
    assert (0, 3) == (day.processed, day.failed)


@pytest.mark.parametrize(
    ("reply", "limits"),
    [
        ([b"x", None, None, None, None], QueueLimits()),
        ([b"3", b"fast", b"1", b"1", None], QueueLimits(3)),
        ([None, b"nan", b"1", b"1", None], QueueLimits()),
        ([None, b"5", b"inf", b"1", b"1"], QueueLimits(ordered=True)),
        ([None, b"5", b"1", b"", None], QueueLimits()),
    ],
)
def test_a_stored_limit_that_cannot_be_read_is_none(reply: list[bytes | None], limits: QueueLimits) -> None:
    """The others are told."""
    assert limits == answer(get_limits("default"), [reply])


def test_an_uptime_that_is_not_a_number_is_unknown() -> None:
    """Proxies make INFO up."""
    facts: Any = answer(
        read_redis_facts(), [b"redis_version:7.0\r\nuptime_in_seconds:long\r\n", [b"1", b"2"]]
    )
    assert 0 == facts.uptime_seconds


def test_an_id_that_is_not_utf8_goes_back_to_redis_as_it_was() -> None:
    """So that it can be archived, and does not stop the recovery of the others."""
    row = [b"\xff\x00", b"", 0, b"token", b"1", b"", 0, b""]
    expired: Any = answer(list_expired("default", now=NOW), [[1, *row]])
    [task] = expired
    assert b"*2\r\n$3\r\nGET\r\n$2\r\n\xff\x00\r\n" == pack_command([("GET", task.id)])


def test_a_task_whose_id_is_not_utf8_is_undecodable() -> None:
    """No record of a worker could name it, so it is quarantined; others are not."""
    check_task_id("ÿ", b"")
    with pytest.raises(UndecodableMessageError, match="its id is not UTF-8"):
        check_task_id(DequeuedTask(decode_name(b"\xff"), b"message", 0, 0).id, b"message")


def test_numbers_of_more_than_64_bits_are_none() -> None:
    """Python would read 4,300 digits, and refuse more with an error."""
    assert [0, 0, -5, 7] == [
        parse_number(b"9" * 21),
        parse_number(None),
        parse_number(b"-5"),
        parse_number(7),
    ]


def test_a_schedule_with_a_duration_that_go_cannot_hold_is_refused() -> None:
    """With the option's name: dashboards could not be shown the entry."""
    with pytest.raises(InvalidOptionError, match=r"unique=.*292 years"):
        list(option_texts({"unique": timedelta(days=106_752)}))


def test_a_json_number_of_a_progress_may_be_huge() -> None:
    """It is not a date."""
    assert decode_progress(json.dumps({"done": 1, "at": 10**400}).encode()) is None
