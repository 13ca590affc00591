"""Marks of events such as deployments, drawn as vertical lines in charts (annotations)."""

from __future__ import annotations

import hashlib
import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyasynq._checks import check_name, check_text
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import MARKS_KEY
from pyasynq.errors import InvalidOptionError
from pyasynq.telemetry import Mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant

MAX_MARKS: Final = 1_000
"""Number of marks that are kept; the oldest are removed first."""
_LIFETIME_SECONDS: Final = 90 * 86_400
_LONGEST_TEXT: Final = 200


def add_mark(text: str, *, at: Instant, by: str = "", key: str = "") -> Plan[Mark]:
    """Store a mark and return it; calls with the same text, author and non-empty key store one mark.

    All marks are deleted 90 days after the last call.

    Raises:
        InvalidOptionError: for a text that is empty, or longer than 200 characters.
    """
    check_name("text", text)
    check_text("by", by)
    check_text("key", key)
    for name, value in (("text", text), ("by", by)):
        if len(value) > _LONGEST_TEXT:
            raise InvalidOptionError(name, value, f"must have at most {_LONGEST_TEXT} characters")
    mark_id = hashlib.sha256(ascii((by, key, text)).encode()).hexdigest() if key else uuid.uuid4().hex
    facts = {"id": mark_id[:12], "text": text, "by": by}
    data = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    # The time is in the score alone: NX then keeps the time of the first call with a key.
    yield CommandCall(("ZADD", MARKS_KEY, "NX", repr(round(at.timestamp, 3)), data), MARKS_KEY, Replay.SAFE)
    score = yield CommandCall(("ZSCORE", MARKS_KEY, data), MARKS_KEY, Replay.SAFE)
    # Return the mark as `list_marks` does, with the time rounded to milliseconds.
    mark = Mark(facts["id"], datetime.fromtimestamp(float(score), UTC), text, by)
    yield CommandCall(("ZREMRANGEBYRANK", MARKS_KEY, 0, -MAX_MARKS - 1), MARKS_KEY, Replay.SAFE)
    yield CommandCall(("EXPIRE", MARKS_KEY, _LIFETIME_SECONDS), MARKS_KEY, Replay.SAFE)
    return mark


def list_marks(since: int, until: int) -> Plan[list[Mark]]:
    """Return the marks between two Unix seconds, both included, oldest first; at most 1,000."""
    command = (
        "ZRANGE", MARKS_KEY, since, f"({until + 1}", "BYSCORE", "LIMIT", 0, MAX_MARKS, "WITHSCORES"
    )  # fmt: skip
    reply: Sequence[bytes] = yield CommandCall(command, MARKS_KEY, Replay.SAFE)
    found = [_decode(data, float(score)) for data, score in zip(reply[::2], reply[1::2], strict=True)]
    return [mark for mark in found if mark is not None]


def remove_mark(mark_id: str) -> Plan[bool]:
    """Remove the mark (chart annotation) with this id; return whether it was found."""
    for data in (yield CommandCall(("ZRANGE", MARKS_KEY, 0, -1), MARKS_KEY, Replay.SAFE)):
        mark = _decode(data, 0.0)
        if mark is not None and mark.id == mark_id:
            return bool((yield CommandCall(("ZREM", MARKS_KEY, data), MARKS_KEY, Replay.SAFE)))
    return False


def _decode(data: bytes, at: float) -> Mark | None:
    """Decode a mark at a Unix time; None if it cannot be parsed."""
    try:
        facts = json.loads(data)
        moment = datetime.fromtimestamp(at, UTC)
        text, by = str(facts["text"])[:_LONGEST_TEXT], str(facts.get("by", ""))[:_LONGEST_TEXT]
        return Mark(str(facts["id"])[:_LONGEST_TEXT], moment, text, by)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, OSError, RecursionError):
        return None
