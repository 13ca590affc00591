"""Entries of worker lists, and the replies of workers to them."""

# No `from __future__ import annotations`: msgspec reads the types when the program starts.
import re
import secrets
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pyasynq.consumer import Attempt
from pyasynq.gateway.leases.bodies import (
    Body,
    CancelItem,
    CompleteItem,
    FailItem,
    ReleaseItem,
    SnoozeItem,
)
from pyasynq.gateway.leases.leased_tasks import clean_name, set_payload
from pyasynq.web.api.json_body import decode_text

_TOKEN_BYTES: Final = 16
_TOKEN: Final = re.compile("[A-Za-z0-9_-]{1,64}")
"""Regular expression of entry tokens, by which Lua scripts find an entry."""


class ListEntry(msgspec.Struct, kw_only=True):
    """Task in a worker list. One of the three payload fields is set, or none for an empty payload."""

    token: str
    """Token by which Lua scripts find the entry in a list; it must be the first field."""
    id: str
    type: str
    payload: msgspec.Raw | UnsetType = UNSET
    payload_text: str | UnsetType = UNSET
    payload_base64: bytes | UnsetType = UNSET
    attempt: int
    max_retry: int
    deadline: datetime
    left: int
    """Whole seconds until the deadline, for workers whose clock is wrong."""


class CrashItem(Body, kw_only=True, tag_field="act", tag="crash"):
    """Reply of a restarted worker: its earlier process died while it ran the task."""

    token: Annotated[str, Meta(min_length=1)]


ReplyAct = CompleteItem | FailItem | CancelItem | SnoozeItem | ReleaseItem | CrashItem
"""A worker's reply: an item of `POST /v1/attempts:batch`, or a `CrashItem`."""


def make_entry_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def encode_list_entry(attempt: Attempt, token: str) -> bytes:
    """Return the entry of an attempt as JSON that begins with the token."""
    left = attempt.deadline - datetime.now(UTC)
    entry = ListEntry(
        token=token,
        id=clean_name(attempt.id),
        type=clean_name(attempt.task.type),
        attempt=attempt.retried + 1,
        max_retry=attempt.max_retry,
        deadline=attempt.deadline,
        left=max(0, int(left.total_seconds())),
    )
    set_payload(entry, attempt.task.payload or b"")
    return msgspec.json.encode(entry)


def find_reply_token(reply: bytes) -> str:
    """Return the entry token in a reply, even if the rest of the reply is invalid; empty if there is none."""
    try:
        content: Any = msgspec.json.decode(reply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    token = content.get("token") if isinstance(content, dict) else None
    return token if isinstance(token, str) and _TOKEN.fullmatch(token) else ""


def decode_reply(reply: bytes) -> ReplyAct:
    """Decode a worker's reply as the act that it requests.

    Raises:
        ProblemError: the text is not a valid reply; the error repeats no value of it.
    """
    act: ReplyAct = decode_text(reply, ReplyAct)
    return act
