"""Entries of worker lists, replies to them, and names of types that may have lists."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyasynq import Task
from pyasynq.errors import InvalidOptionError
from pyasynq.gateway.configurations import parse_task_configuration
from pyasynq.gateway.hosted.lists.entries import (
    CrashItem,
    decode_reply,
    encode_list_entry,
    find_reply_token,
    make_entry_token,
)
from pyasynq.web.api.problem import ProblemError


class FakeAttempt:
    """An attempt with a deadline in 100 seconds."""

    id = "\udcff"
    retried = 2
    max_retry = 5

    def __init__(self, payload: Any) -> None:
        self.task = Task("resize", payload)
        self.deadline = datetime.now(UTC) + timedelta(seconds=100)


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b'{"n": 1}', {"payload": {"n": 1}}),
        (b"plain", {"payload_text": "plain"}),
        (b"\xff", {"payload_base64": "/w=="}),
        (b"", {}),
    ],
)
def test_an_entry_begins_with_its_token(payload: bytes, shown: dict[str, Any]) -> None:
    """By it the scripts find the entry, whatever the payload has."""
    token = make_entry_token()
    data = encode_list_entry(FakeAttempt(payload), token)  # type: ignore[arg-type] # as much of it as is needed
    entry = json.loads(data)
    assert data.startswith(b'{"token":"' + token.encode() + b'"')
    assert 90 < entry.pop("left") <= 100
    assert entry.pop("deadline").endswith("Z")
    assert {
        "token": token,
        "id": "\\udcff",
        "type": "resize",
        "attempt": 3,
        "max_retry": 5,
        **shown,
    } == entry


@pytest.mark.parametrize(
    ("reply", "token"),
    [
        (b'{"act": "complete", "token": "a-_9"}', "a-_9"),
        (b'{"token": "a b"}', ""),
        (b'{"token": ""}', ""),
        (b'{"token": "' + b"a" * 65 + b'"}', ""),
        (b'{"token": 7}', ""),
        (b"[]", ""),
        (b"[" * 100_000, ""),
        (b"\xff", ""),
        (b"", ""),
    ],
)
def test_the_token_of_a_reply_is_found_or_there_is_none(reply: bytes, token: str) -> None:
    """It goes to Redis as a field, so it has a form and a length."""
    assert token == find_reply_token(reply)


def test_a_crash_is_a_reply_of_its_own() -> None:
    """All others are those of HTTP."""
    assert CrashItem(token="a") == decode_reply(b'{"token":"a","act":"crash"}')


@pytest.mark.parametrize(
    "reply", [b'{"token":"a"}', b'{"token":"a","act":"extend"}', b'{"token":"a","act":"fail"}']
)
def test_a_reply_without_a_valid_act_is_refused(reply: bytes) -> None:
    """An extension, too: the service extends leases itself."""
    with pytest.raises(ProblemError):
        decode_reply(reply)


@pytest.mark.parametrize("name", ["a b", "a{b", "a}b", "a*", "a?", "a[b", "a]", "a^", "a\\b"])
def test_a_name_that_keys_or_access_lists_would_misread_is_refused(name: str) -> None:
    """For the kind `list` alone."""
    parse_task_configuration("tasks.x", {"name": name})
    with pytest.raises(InvalidOptionError, match="must have no spaces, braces"):
        parse_task_configuration("tasks.x", {"name": name, "kind": "list"})


def test_the_number_of_shards_is_stored_for_lists_alone() -> None:
    """So that a stored type can be read again."""
    kinds = [
        parse_task_configuration("", {"name": "f", "kind": kind}).to_json() for kind in ("list", "worker")
    ]
    assert [8, None] == [one.get("shards") for one in kinds]
    assert kinds[0] == parse_task_configuration("", kinds[0]).to_json()
