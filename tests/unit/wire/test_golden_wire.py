"""What real Asynq 0.26 left in Redis, against our messages, keys and texts."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pyasynq._wire import asynq_pb2, keys
from pyasynq._wire.constants import TaskField
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import (
    SchedulerEnqueueEvent,
    SchedulerEntry,
    ServerInfo,
    TaskMessage,
    WorkerInfo,
    decode_task_message,
    encode_task_message,
)
from pyasynq._wire.options_text import Option, format_option, parse_option

GOLDEN_FILE = Path(__file__).parents[2] / "golden" / "asynq-0.26.json"

Record = ServerInfo | WorkerInfo | SchedulerEntry | SchedulerEnqueueEvent
RawRecord = (
    asynq_pb2.ServerInfo | asynq_pb2.WorkerInfo | asynq_pb2.SchedulerEntry | asynq_pb2.SchedulerEnqueueEvent
)


class Entry(NamedTuple):
    """One key of one snapshot; `values` are the members, or the values of a hash, as bytes."""

    snapshot: str
    key: str
    type: str
    values: list[bytes]
    fields: list[str]


def load_entries() -> list[Entry]:
    """Return all keys of all snapshots."""
    return [
        Entry(snapshot["name"], entry["key"], entry["type"], *values_of(entry["value"]))
        for snapshot in json.loads(GOLDEN_FILE.read_text())
        for entry in snapshot["entries"]
    ]


def values_of(value: str | dict[str, str] | list[Any]) -> tuple[list[bytes], list[str]]:
    """Return the values of a key as bytes and, of a hash, its fields."""
    if isinstance(value, str):
        return [b64decode(value)], []
    if isinstance(value, dict):
        return [b64decode(item) for item in value.values()], list(value)
    members = [item["member"] if isinstance(item, dict) else item for item in value]
    return [b64decode(member) for member in members], []


ENTRIES = load_entries()
TASK_ENTRIES = [entry for entry in ENTRIES if ":t:" in entry.key]
MESSAGES = [entry.values[entry.fields.index("msg")] for entry in TASK_ENTRIES]
RECORDS: list[tuple[type[Record], type[RawRecord], bytes]] = [
    (record, raw, data)
    for prefix, record, raw in [
        ("asynq:servers:", ServerInfo, asynq_pb2.ServerInfo),
        ("asynq:workers:", WorkerInfo, asynq_pb2.WorkerInfo),
        ("asynq:schedulers:", SchedulerEntry, asynq_pb2.SchedulerEntry),
        ("asynq:scheduler_history:", SchedulerEnqueueEvent, asynq_pb2.SchedulerEnqueueEvent),
    ]
    for entry in ENTRIES
    if entry.key.startswith(prefix)
    for data in entry.values
]


@pytest.mark.parametrize("data", MESSAGES)
def test_a_task_message_of_go_is_encoded_as_it_was(data: bytes) -> None:
    """Decoding and encoding give the same bytes."""
    assert data == encode_task_message(decode_task_message(data))


@pytest.mark.parametrize(("record", "raw", "data"), RECORDS)
def test_a_record_of_go_is_encoded_as_it_was(record: type[Record], raw: type[RawRecord], data: bytes) -> None:
    """Decoding and encoding give the same bytes, up to nanoseconds and the order of a map."""
    expected = raw.FromString(data)
    for field, value in expected.ListFields():
        if field.message_type is not None and field.message_type.name == "Timestamp":
            value.nanos -= value.nanos % 1000
    assert expected.SerializeToString(deterministic=True) == record.decode(data).encode()


def test_there_is_a_record_of_each_kind_to_compare_with() -> None:
    """The comparison above is not empty."""
    assert {ServerInfo, WorkerInfo, SchedulerEntry, SchedulerEnqueueEvent} == {
        record for record, _, _ in RECORDS
    }


@pytest.mark.parametrize("entry", TASK_ENTRIES, ids=lambda entry: f"{entry.snapshot} {entry.key}")
def test_the_fields_of_a_task_are_known(entry: Entry) -> None:
    """No field of a task's hash is missing from our list."""
    assert set(entry.fields) <= set(TaskField)


def test_every_key_of_go_is_a_key_of_ours() -> None:
    """From the names inside the values, our functions make exactly the keys that were found."""
    assert set() == {entry.key for entry in ENTRIES} - known_keys()


def test_the_members_of_the_registries_are_keys_of_ours() -> None:
    """The sorted sets of servers, workers, schedulers and aggregation sets hold full keys."""
    registries = [
        keys.SERVERS_KEY,
        keys.WORKERS_KEY,
        keys.SCHEDULERS_KEY,
        queue_keys("default").aggregation_sets,
    ]
    members = {value.decode() for entry in ENTRIES if entry.key in registries for value in entry.values}
    assert 4 < len(members)
    assert set() == members - known_keys()


def test_the_unique_key_in_a_message_is_that_of_its_type_and_payload() -> None:
    """A message cannot tell no payload from an empty one, so either lock will do for those."""
    unique = [message for message in map(decode_task_message, MESSAGES) if message.unique_key]
    assert 4 < len(unique)
    for message in unique:
        assert message.unique_key in unique_keys(message)


@pytest.mark.parametrize("data", [data for record, _, data in RECORDS if record is SchedulerEntry])
def test_the_options_of_a_scheduler_entry_are_written_as_they_were(data: bytes) -> None:
    """Reading and writing the texts changes nothing."""
    for text in SchedulerEntry.decode(data).enqueue_options:
        option = parse_option(text)
        assert isinstance(option, Option)
        assert text == format_option(*option)


def unique_keys(message: TaskMessage) -> set[str]:
    """Return the locks that the task of a message may hold."""
    payloads = [message.payload] if message.payload else [None, b""]
    return {queue_keys(message.queue).unique(message.type, payload) for payload in payloads}


def known_keys() -> set[str]:
    """Return all keys that our functions make from the names inside the values of the golden file."""
    known = {keys.ALL_QUEUES, keys.SERVERS_KEY, keys.WORKERS_KEY, keys.SCHEDULERS_KEY}
    for message in map(decode_task_message, MESSAGES):
        queue = queue_keys(message.queue)
        known |= {getattr(queue, name) for name in queue.__slots__}
        known |= {queue.task(message.id), queue.group(message.group_key), *unique_keys(message)}
        # The day on which the golden file was made, and the only random name in it that no message holds.
        known |= {queue.processed_on(date(2026, 11, 20)), queue.failed_on(date(2026, 11, 20))}
        known.add(queue.aggregation_set("user:1", "0ad1ce62-accc-44bb-b776-5abe7d5df057"))
    known.add(keys.scheduler_key("vm:15124:ace2b804-f27c-4f23-b0cc-bb1b3b54128d"))
    for record, _, data in RECORDS:
        decoded = record.decode(data)
        if isinstance(decoded, ServerInfo):
            known.add(keys.server_key(decoded.host, decoded.pid, decoded.server_id))
            known.add(keys.workers_key(decoded.host, decoded.pid, decoded.server_id))
        elif isinstance(decoded, SchedulerEntry):
            known.add(keys.scheduler_history_key(decoded.id))
    return known
