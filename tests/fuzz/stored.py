"""Fuzzers for data in Redis: messages, records, hash fields, streams, limits."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from pyasynq._broker.cancellation import read_requests
from pyasynq._broker.inspecting.group_counts import read_group_sizes
from pyasynq._broker.inspecting.queues import history
from pyasynq._broker.inspecting.schedulers import scheduler_entries, scheduler_events
from pyasynq._broker.inspecting.servers import describe_servers
from pyasynq._broker.inspecting.tasks import get_task, list_tasks
from pyasynq._broker.queue_registry import queue_names
from pyasynq._broker.stored_limits import get_limits
from pyasynq._broker.task_events import FIRST_MARK, StreamPosition, decode_event, read_events
from pyasynq._broker.task_records import decode_task_info
from pyasynq._clock import Instant
from pyasynq._redis.facts import read_redis_facts
from pyasynq._redis.session import redis_version, version_numbers
from pyasynq._wire.engine_text import decode_engine
from pyasynq._wire.history import decode_attempts, decode_progress
from pyasynq._wire.messages import (
    SchedulerEnqueueEvent,
    SchedulerEntry,
    ServerInfo,
    WorkerInfo,
    copy_task_message,
    decode_task_message,
    encode_task_message,
    new_task_message,
)
from pyasynq._wire.options_text import parse_option
from pyasynq.errors import TaskNotFoundError, UndecodableMessageError, UnknownTaskStateError
from pyasynq.task import TaskState
from tests.fuzz.fuzzer import BYTES, JSON_VALUES, TEXTS, answer, fuzzer

NOW = Instant(2_000_000_000, 250_000)
UTF8 = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("type", "id", "queue", "error_msg", "unique_key", "group_key"), UTF8),
    **dict.fromkeys(("retry", "retried"), INT32),
    **dict.fromkeys(("timeout", "deadline", "last_failed_at", "retention", "completed_at"), INT64),
    "payload": st.binary(max_size=100),
    "headers": st.dictionaries(UTF8, UTF8, max_size=3),
}
WELL_FORMED = st.fixed_dictionaries({}, optional=FIELDS).map(
    lambda values: encode_task_message(new_task_message(**values))
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return a message with a few bytes of it changed, cut off or doubled."""
    data = bytearray(draw(WELL_FORMED))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
    return bytes(data)


MESSAGES = WELL_FORMED | damaged() | BYTES
SCORES = st.none() | st.floats(allow_nan=False).map(lambda score: b"%r" % score)
STATES = st.sampled_from([state.value.encode() for state in TaskState])
RECORDS = st.tuples(BYTES, MESSAGES, STATES | BYTES, SCORES, st.none() | BYTES, st.none() | BYTES)
TASK_FIELDS = st.tuples(*[st.none() | BYTES] * 5)
JSON_BYTES = BYTES | JSON_VALUES.map(lambda value: json.dumps(value).encode())


@fuzzer(MESSAGES, UndecodableMessageError, from_bytes=bytes)
def task_message(data: bytes) -> None:
    """What is decoded can be copied, and written again without a loss."""
    message = decode_task_message(data)
    again = decode_task_message(encode_task_message(copy_task_message(message)) or b"\x08\x00")
    assert again == message or not message.ByteSize()


@fuzzer(st.tuples(RECORDS, TASK_FIELDS), TaskNotFoundError, UnknownTaskStateError, UndecodableMessageError)
def task_hash(fields: tuple[tuple[Any, ...], tuple[Any, ...]]) -> None:
    """A task is described, or it is said what is wrong with it, whatever the fields of its hash are."""
    record = answer(get_task("default", "id"), [[*fields[0], *fields[1]]])
    decode_task_info(record, NOW)  # type: ignore[arg-type]


@fuzzer(st.lists(st.tuples(RECORDS, TASK_FIELDS.map(lambda fields: fields[:4])), max_size=4))
def task_list(rows: list[tuple[tuple[Any, ...], tuple[Any, ...]]]) -> None:
    """One damaged task does not hide the others: a list raises nothing."""
    found = [[*first, *rest] for first, rest in rows]
    plan = list_tasks("default", TaskState.PENDING, group="", page=1, page_size=10, now=NOW)
    answer(plan, [1, [10, 0, *found]])


@fuzzer(JSON_BYTES, from_bytes=bytes)
def task_history(data: bytes) -> None:
    """Attempts and progress that cannot be read are none."""
    decode_attempts(data)
    decode_progress(data)


@fuzzer(
    st.tuples(
        st.sampled_from([ServerInfo, WorkerInfo, SchedulerEntry, SchedulerEnqueueEvent]), BYTES | MESSAGES
    )
)
def record(case: tuple[type[ServerInfo], bytes]) -> None:
    """A record is decoded, and written again, or it is undecodable."""
    kind, data = case
    try:
        found = kind.decode(data)
    except UndecodableMessageError:
        return
    assert found == kind.decode(found.encode())


@fuzzer(st.text(max_size=200) | JSON_VALUES.map(lambda value: f"pyasynq {json.dumps(value)}"))
def engine(text: str) -> None:
    """What a server says of itself raises nothing."""
    decode_engine(text)
    decode_engine(f'pyasynq {{"limits":{text}}}')


SERVER = ServerInfo(
    host="h",
    pid=1,
    server_id="s",
    concurrency=1,
    queues={},
    strict_priority=False,
    status="",
    start_time=None,
    active_worker_count=1,
)


@fuzzer(st.tuples(BYTES, BYTES, st.lists(BYTES | MESSAGES, max_size=3)))
def server_list(case: tuple[bytes, bytes, list[bytes]]) -> None:
    """Records of servers, and of what they are working on, that cannot be read are left out."""
    key, record, workers = case
    answer(describe_servers(None, now=NOW), [[key], record, workers])
    answer(describe_servers(None, now=NOW), [[key], SERVER.encode(), workers])


@fuzzer(st.lists(st.lists(BYTES, max_size=3), max_size=6))
def scheduler_list(replies: list[Any]) -> None:
    """Records of schedulers and of what they enqueued that cannot be read are left out."""
    answer(scheduler_entries(NOW), [[b"asynq:schedulers:{a:1:b}"] * 3, *replies])
    answer(scheduler_events("entry", page=1, page_size=10), replies)


@fuzzer(JSON_BYTES, from_bytes=bytes)
def task_event(data: bytes) -> None:
    """An event that cannot be read is none."""
    decode_event("default", "1-0", data)
    answer(read_events("default", FIRST_MARK), [[(b"1-0", [b"event", data]), (b"2-0", [data])]])
    answer(read_events("default", StreamPosition("1-0", seen=True)), [[(b"2-0", [b"event", data])]])


@fuzzer(st.lists(BYTES, max_size=4))
def names(found: list[bytes]) -> None:
    """Names of queues and groups, and counters, that cannot be read do not hide the others."""
    answer(queue_names(), [found])
    answer(read_group_sizes("default"), [[b"0", *(part for name in found for part in (name, 1))]])
    answer(history("default", 1, now=NOW), [1, [*found, None, None][:2]])


@fuzzer(st.lists(st.none() | BYTES, min_size=5, max_size=5))
def limits(reply: list[bytes | None]) -> None:
    """Stored limits that cannot be read are none."""
    answer(get_limits("default"), [reply])


@fuzzer(st.lists(st.none() | BYTES, min_size=2, max_size=2))
def cancel_request(reply: list[bytes | None]) -> None:
    """A request to cancel that cannot be read is none."""
    answer(read_requests("default", ["one", "two"]), [reply])


@fuzzer(st.binary(max_size=200) | st.lists(UTF8, max_size=5).map(lambda lines: "\r\n".join(lines).encode()))
def server_version(info: bytes) -> None:
    """INFO of any server, or of a proxy that makes one up."""
    version_numbers(redis_version(b"redis_version:" + info))
    version_numbers(redis_version(info))
    answer(read_redis_facts(), [info, [b"1", b"2"]])
    answer(read_redis_facts(), [b"redis_version:7.0\r\nuptime_in_seconds:" + info, [b"1", b"2"]])


@fuzzer(TEXTS | UTF8.map(lambda text: f"Header({text})") | UTF8.map(lambda text: f"Deadline({text})"))
def options_text(text: str) -> None:
    """An option of a scheduler's entry, or what is wrong with it."""
    parse_option(text)
    for name in ("MaxRetry", "Queue", "Timeout", "ProcessAt", "Header", "Unique"):
        parse_option(f"{name}({text})")
        parse_option(f'{name}("{text}")')
