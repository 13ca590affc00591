"""The published vectors: computed again by our code, and compared with what real Asynq 0.26 left."""

from __future__ import annotations

import json
from base64 import b64decode
from hashlib import md5
from typing import Any

import pytest

from pyasynq._cron import parse_cron
from pyasynq._wire import asynq_pb2
from pyasynq._wire.engine_text import decode_engine
from pyasynq._wire.history import decode_attempts, decode_progress
from pyasynq._wire.messages import decode_task_message, encode_task_message
from pyasynq._wire.options_text import Option, parse_option
from pyasynq.errors import CronError
from tools.wire_vectors import FILE, GOLDEN, build, fields_of, to_text

VECTORS: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
MESSAGES = [*VECTORS["messages"], *VECTORS["must be read as well"]]


@pytest.mark.parametrize("part", build().items(), ids=lambda part: part[0])
def test_each_vector_is_what_our_code_computes(part: tuple[str, Any]) -> None:
    """`python -m tools.wire_vectors` writes the file again."""
    name, computed = part
    assert json.loads(json.dumps(computed)) == VECTORS[name]


def test_there_is_nothing_else_in_the_file() -> None:
    """The walk is compared in the contract tests; the rest of the file is as the tool writes it."""
    assert {*build(), "walk"} == VECTORS.keys()
    assert to_text(VECTORS) == FILE.read_text("utf-8")


@pytest.mark.parametrize("vector", MESSAGES, ids=lambda vector: vector["name"])
def test_the_bytes_of_a_message_hold_its_fields(vector: dict[str, Any]) -> None:
    """Read by protobuf's own classes."""
    message = getattr(asynq_pb2, vector["message"]).FromString(bytes.fromhex(vector["hex"]))
    assert vector["fields"] == fields_of(message)


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda vector: vector["name"])
def test_the_fields_of_a_message_give_its_bytes(vector: dict[str, Any]) -> None:
    """The result of a joiner; Asynq's maps have no order, so sorted bytes are compared there."""
    message = getattr(asynq_pb2, vector["message"])()
    for name, value in vector["fields"].items():
        set_field(message, name, value)
    written = message.SerializeToString(deterministic=True)
    expected = bytes.fromhex(vector["hex"])
    if vector["message"] == "ServerInfo" and vector["written by"] != "pyasynq":
        assert sorted(expected) == sorted(written)
    else:
        assert expected == written


def set_field(message: Any, name: str, value: Any) -> None:
    """Set a field from its JSON form."""
    field = message.DESCRIPTOR.fields_by_name[name]
    target = getattr(message, name)
    if isinstance(value, dict) and field.message_type.name == "Timestamp":
        target.SetInParent()
        target.seconds, target.nanos = value["seconds"], value["nanos"]
    elif isinstance(value, dict):
        target.update(value)
    elif isinstance(value, list):
        target.extend(value)
    else:
        setattr(message, name, bytes.fromhex(value) if isinstance(target, bytes) else value)


def test_every_message_of_asynq_is_in_its_file_and_all_of_them_are_here() -> None:
    """Both ways, for messages of tasks."""
    golden = {
        b64decode(entry["value"]["msg"]).hex()
        for snapshot in json.loads(GOLDEN.read_text("utf-8"))
        for entry in snapshot["entries"]
        if ":t:" in entry["key"]
    }
    here = {
        vector["hex"]
        for vector in VECTORS["messages"]
        if vector["written by"] == "Asynq 0.26" and vector["message"] == "TaskMessage"
    }
    assert len(golden) > 20
    assert golden == here


def test_there_is_a_record_of_each_kind_from_asynq() -> None:
    """So that a joiner sees Go's nanoseconds and its `never`."""
    kinds = {vector["message"] for vector in VECTORS["messages"] if vector["written by"] == "Asynq 0.26"}
    assert {"TaskMessage", "ServerInfo", "WorkerInfo", "SchedulerEntry", "SchedulerEnqueueEvent"} == kinds


@pytest.mark.parametrize("vector", VECTORS["must be read as well"], ids=lambda vector: vector["name"])
def test_odd_messages_are_read_and_written_as_usual(vector: dict[str, Any]) -> None:
    """Our code reads them; a field that it does not know survives."""
    message = decode_task_message(bytes.fromhex(vector["hex"]))
    assert vector["fields"] == fields_of(message)
    written = encode_task_message(message)
    assert vector["hex"] != written.hex() or "9a06026869" in vector["hex"]
    assert ("9a06026869" in vector["hex"]) == written.endswith(b"\x9a\x06\x02hi")


@pytest.mark.parametrize("vector", VECTORS["locks"], ids=lambda vector: vector["key"])
def test_a_lock_is_queue_type_and_the_hash_of_the_payload(vector: dict[str, Any]) -> None:
    """The expected hash is computed by MD5 itself, without pyasynq's code."""
    payload = vector["payload"]
    digest = "" if payload is None else md5(bytes.fromhex(payload), usedforsecurity=False).hexdigest()
    assert f"asynq:{{{vector['queue']}}}:unique:{vector['type']}:{digest}" == vector["key"]


@pytest.mark.parametrize("vector", VECTORS["options"], ids=lambda vector: vector["name"])
def test_option_texts_are_read_back(vector: dict[str, Any]) -> None:
    """And none holds a parenthesis at which Asynq's reader would stop too early."""
    option = parse_option(vector["text"])
    assert isinstance(option, Option)
    assert vector["name"] == option.name
    assert vector["text"].index(")") == len(vector["text"]) - 1


@pytest.mark.parametrize("vector", VECTORS["cron"], ids=lambda vector: vector["spec"])
def test_expressions_are_refused_or_have_ticks(vector: dict[str, Any]) -> None:
    """A refused one is said to be an error."""
    if vector.get("error"):
        with pytest.raises(CronError):
            parse_cron(vector["spec"])
    else:
        assert sorted(vector["ticks"]) == vector["ticks"]


def test_texts_of_our_own_fields_are_read_back() -> None:
    """The inspector's own readers decode the texts."""
    texts = VECTORS["additions"]
    [attempt] = decode_attempts(f"[{texts['one line of x:attempts']}]".encode())
    assert ("retried", "s", "ValueError: no") == (attempt.outcome, attempt.server_id, attempt.error)
    progress = decode_progress(texts["x:progress"].encode())
    assert progress is not None
    assert (3, 10, "parsing") == (progress.done, progress.total, progress.note)
    name, limits = decode_engine(texts["field 1001 of ServerInfo, with limits"])
    assert ("pyasynq", ["deliver", "ledger", "mail"]) == (name, sorted(limits))
