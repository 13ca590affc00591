"""Records of servers, workers and schedulers: bytes, instants, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from pyasynq import info
from pyasynq._wire import asynq_pb2
from pyasynq._wire.messages import (
    InvalidTextError,
    SchedulerEnqueueEvent,
    SchedulerEntry,
    ServerInfo,
    UndecodableMessageError,
    WorkerInfo,
)
from pyasynq._wire.running_tasks import decode_running_task

INSTANT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)  # Unix time 1700000000
SERVER = ServerInfo(
    host="h",
    pid=7,
    server_id="s",
    concurrency=4,
    queues={"default": 1},
    strict_priority=False,
    status="active",
    start_time=INSTANT,
    active_worker_count=0,
)
WORKER = WorkerInfo(
    host="h",
    pid=7,
    server_id="s",
    task_id="i",
    task_type="t",
    task_payload=b"\xff",
    queue="default",
    start_time=INSTANT,
    deadline=None,
)
ENTRY = SchedulerEntry(
    id="e",
    spec="@every 30s",
    task_type="t",
    task_payload=b"",
    enqueue_options=('Queue("low")', "MaxRetry(3)"),
    next_enqueue_time=INSTANT,
    prev_enqueue_time=None,
)
EVENT = SchedulerEnqueueEvent(task_id="x", enqueue_time=INSTANT)
RECORDS = [SERVER, WORKER, ENTRY, EVENT]

Record = ServerInfo | WorkerInfo | SchedulerEntry | SchedulerEnqueueEvent


def test_a_server_is_written_byte_for_byte() -> None:
    """A running server as Asynq writes it."""
    expected = "0a016810071a017320042a0b0a0764656661756c7410013a0661637469766542060880e2cfaa06"
    assert expected == SERVER.encode().hex()


def test_a_scheduler_entry_is_written_byte_for_byte() -> None:
    """An entry that has not fired yet: its previous time is Go's zero time."""
    expected = (
        "0a0165120a406576657279203330731a01742a0c517565756528226c6f7722292a0b4d6178526574727928332932060880e2cfaa06"
        "3a0b088092b8c398feffffff01"
    )
    assert expected == ENTRY.encode().hex()


def test_an_enqueue_event_of_go_is_read_to_the_microsecond() -> None:
    """Go writes nanoseconds; a datetime holds microseconds, the rest is cut off."""
    data = bytes.fromhex("0a017812080880e2cfaa061005")
    assert data == asynq_pb2.SchedulerEnqueueEvent.FromString(data).SerializeToString()
    assert EVENT == SchedulerEnqueueEvent.decode(data)
    assert data[:-2] == EVENT.encode().replace(b"\x12\x06", b"\x12\x08")


def test_the_engine_is_field_1001() -> None:
    """The name of our engine travels in a field that Go servers leave out and Go readers skip."""
    with_engine = replace(SERVER, engine="pyasynq 1")
    assert SERVER.encode() + bytes.fromhex("ca3e") + b"\x09pyasynq 1" == with_engine.encode()
    assert SERVER == ServerInfo.decode(SERVER.encode())
    assert with_engine == ServerInfo.decode(with_engine.encode())


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    """Encoding and decoding change nothing, not even the types of the values."""
    decoded = type(record).decode(record.encode())
    assert record == decoded
    assert repr(record) == repr(decoded)


def test_a_running_task_is_described_without_its_server() -> None:
    """With or without its payload; the times are those of the record."""
    described = info.WorkerInfo("i", "t", "default", b"\xff", INSTANT, None)
    assert described == decode_running_task(WORKER.encode())
    assert replace(described, payload=b"") == decode_running_task(WORKER.encode(), payload=False)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xff", b"\n\x01\xff", b"B\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x00"]
)
def test_a_running_task_that_cannot_be_decoded_is_an_error(data: bytes) -> None:
    """Nothing, no protobuf, text that is not UTF-8, and a time far beyond the year 9999."""
    with pytest.raises(UndecodableMessageError, match="WorkerInfo"):
        decode_running_task(data)


def test_an_instant_at_the_epoch_is_written() -> None:
    """All fields of the epoch are zero, yet the Timestamp is there: an empty one."""
    assert (
        b"\n\x01x\x12\x00"
        == SchedulerEnqueueEvent(task_id="x", enqueue_time=datetime.fromtimestamp(0, UTC)).encode()
    )


def test_a_missing_instant_is_the_epoch_and_not_never() -> None:
    """So do peers written in Go read a Timestamp that is absent."""
    assert datetime(1970, 1, 1, tzinfo=UTC) == SchedulerEnqueueEvent.decode(b"\n\x01x").enqueue_time


def test_an_instant_just_after_the_zero_time_is_not_never() -> None:
    """Only exactly Go's zero time means never."""
    just_after = datetime(1, 1, 1, microsecond=1, tzinfo=UTC)
    assert (
        just_after
        == SchedulerEnqueueEvent.decode(replace(EVENT, enqueue_time=just_after).encode()).enqueue_time
    )


@pytest.mark.parametrize("microsecond", [0, 1, 999_999])
def test_an_instant_before_the_epoch_keeps_its_microseconds(microsecond: int) -> None:
    """Seconds are rounded down and nanoseconds are never negative."""
    instant = datetime(1969, 12, 31, 23, 59, 58, microsecond, tzinfo=UTC)
    data = replace(EVENT, enqueue_time=instant).encode()
    raw = asynq_pb2.SchedulerEnqueueEvent.FromString(data).enqueue_time
    assert (-2, microsecond * 1000) == (raw.seconds, raw.nanos)
    assert instant == SchedulerEnqueueEvent.decode(data).enqueue_time


def test_an_instant_of_another_zone_is_the_same_instant() -> None:
    """Written times are Unix times; read ones are UTC."""
    elsewhere = INSTANT.astimezone(timezone(timedelta(hours=5, minutes=45)))
    decoded = SchedulerEnqueueEvent.decode(replace(EVENT, enqueue_time=elsewhere).encode())
    assert EVENT == decoded
    assert decoded.enqueue_time is not None
    assert UTC is decoded.enqueue_time.tzinfo


def test_a_naive_datetime_is_refused() -> None:
    """Guessing the zone would move the instant."""
    with pytest.raises(ValueError, match="deadline is the naive datetime 2026-01-02T00:00:00; pass one with"):
        replace(WORKER, deadline=datetime(2026, 1, 2)).encode()  # noqa: DTZ001


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (replace(SERVER, status="\ud800"), "status"),
        (replace(SERVER, queues={"low": 1, "\ud800": 2}), "a key of queues"),
        (replace(WORKER, task_type="\ud800"), "task_type"),
        (replace(ENTRY, enqueue_options=("MaxRetry(1)", "\ud800")), "enqueue_options"),
        (replace(EVENT, task_id="\ud800"), "task_id"),
    ],
)
def test_a_lone_surrogate_names_its_field(record: Record, field: str) -> None:
    """Text that UTF-8 cannot hold is refused."""
    with pytest.raises(InvalidTextError) as caught:
        record.encode()
    assert (type(record).__name__, field) == (caught.value.kind, caught.value.field)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
@pytest.mark.parametrize("data", [b"", b"\n\x05a", b"\n\x01\xff"])
def test_damaged_bytes_are_refused(record: Record, data: bytes) -> None:
    """A record always carries its instants, so no bytes at all are damage, too."""
    with pytest.raises(UndecodableMessageError) as caught:
        type(record).decode(data)
    assert (type(record).__name__, data) == (caught.value.kind, caught.value.data)


@pytest.mark.parametrize("seconds", [-(2**63), -62_135_596_801, 253_402_300_800, 2**63 - 1])
def test_an_instant_outside_the_calendar_is_refused(seconds: int) -> None:
    """Python's calendar ends with the years 1 and 9999; Go's does not."""
    raw = asynq_pb2.SchedulerEnqueueEvent(task_id="x", enqueue_time={"seconds": seconds})
    with pytest.raises(UndecodableMessageError):
        SchedulerEnqueueEvent.decode(raw.SerializeToString())
