"""Task events in Redis: one stream for each queue, written by workers and clients with `publish_events`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._broker.arguments import chunks
from pyasynq._broker.scripts import EVENT_PUBLISH
from pyasynq._checks import check_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import InvalidOptionError, nearest
from pyasynq.events import Outcome
from pyasynq.info import TaskEvent

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyasynq._clock import Instant

STREAM_LIFETIME_SECONDS: Final = 86_400
"""Seconds after its last event for which a stream is kept; without publishers it expires."""
READ_AT_ONCE: Final = 500

MISSED: Final = "missed"
DROPPED: Final = "dropped"
KINDS: Final = frozenset(
    {
        *(outcome.value for outcome in Outcome if outcome is not Outcome.LET_GO),
        *("enqueued", "started", "lost", "recovered", "poisoned", "aggregated", DROPPED, MISSED),
    }
)
"""The possible values of an event's `kind`."""

_ALWAYS_WANTED: Final = frozenset({DROPPED, MISSED})
"""Kinds that pass every filter, because programs that count events must know about gaps."""

_FIELD: Final = b"event"
_BEGINNING: Final = "0-0"


class EventFilter:
    """Filter of events by kind and task type.

    Args:
        kinds: kinds of events to pass; empty for all.
        types: task types to pass; empty for all.

    Raises:
        InvalidOptionError: for an unknown kind, an invalid type, or a string instead of a list.
    """

    def __init__(self, kinds: Collection[str], types: Collection[str]) -> None:
        for name, texts in (("kinds", kinds), ("types", types)):
            if isinstance(texts, str):
                raise InvalidOptionError(name, texts, "give several in a list, one as in ['name']")
        for kind in kinds:
            if kind not in KINDS:
                remedy = nearest(str(kind), KINDS) or f"; the kinds are {', '.join(sorted(KINDS))}"
                raise InvalidOptionError("kinds", kind, f"there is no such event{remedy}")
        self._kinds = frozenset(kinds)
        self._types = frozenset(check_name("types", one) for one in types)

    @property
    def is_empty(self) -> bool:
        """Whether all events pass."""
        return not self._kinds and not self._types

    def match(self, event: TaskEvent) -> bool:
        """Return whether an event passes; those of the kinds `dropped` and `missed` always do."""
        if event.kind in _ALWAYS_WANTED:
            return True
        has_kind = not self._kinds or event.kind in self._kinds
        return has_kind and (not self._types or event.type in self._types)


def encode_event(kind: str, queue: str, at: Instant, **facts: str | float) -> bytes:
    """Return an event in its published form: compact JSON, without empty fields."""
    event: dict[str, Any] = {"kind": kind, "queue": queue, "at": at.seconds + at.microseconds / 1_000_000}
    event.update((name, fact) for name, fact in facts.items() if fact != "")
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode_event(queue: str, position: str, data: bytes) -> TaskEvent | None:
    """Return the event in a stream entry, or None if it cannot be parsed."""
    try:
        facts = json.loads(data)
        return TaskEvent(
            kind=str(facts["kind"]),
            queue=queue,
            at=datetime.fromtimestamp(facts["at"], UTC),
            position=position,
            task_id=str(facts.get("task_id", "")),
            type=str(facts.get("type", "")),
            server_id=str(facts.get("server", "")),
            retried=int(facts.get("retried", 0)),
            max_retry=int(facts.get("max_retry", 0)),
            seconds=float(facts.get("seconds", 0.0)),
            waited=None if facts.get("waited") is None else float(facts["waited"]),
            error=str(facts.get("error", "")),
            count=int(facts.get("count", 1)),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError, RecursionError):
        return None


def publish_events(queue: str, events: Sequence[bytes], *, max_length: int) -> Plan[None]:
    """Append events to the stream of a queue.

    Raises:
        RedisOutOfMemoryError: Redis is full; they are not written.
        ReplyLostError: they may have been written.
    """
    key = queue_keys(queue).events
    for chunk in chunks(events, size_of=len):
        yield ScriptCall(EVENT_PUBLISH, (key,), (max_length, STREAM_LIFETIME_SECONDS, *chunk), Replay.NEVER)


class StreamPosition(NamedTuple):
    """A position in a stream from which to read on.

    Attributes:
        position: id of the last event already read; `0-0` means none.
        seen: whether that event existed; if it is missing now, the stream was trimmed and events are lost.
    """

    position: str
    seen: bool


FIRST_MARK: Final = StreamPosition(_BEGINNING, seen=False)
"""The position before the oldest kept event."""


class NewEvents(NamedTuple):
    """The result of reading a stream.

    Attributes:
        mark: where to read on.
        full: whether there may be more.
    """

    events: list[TaskEvent]
    mark: StreamPosition
    full: bool


def read_events(queue: str, mark: StreamPosition | None) -> Plan[NewEvents]:
    """Return at most 500 events after a position of the stream; None returns only its current end.

    If events after the mark may have been trimmed, an event of the kind `missed` comes first.
    """
    key = queue_keys(queue).events
    if mark is None:
        newest = yield CommandCall(("XREVRANGE", key, "+", "-", "COUNT", 1), key, Replay.SAFE)
        return NewEvents(
            [], StreamPosition(newest[0][0].decode(), seen=True) if newest else FIRST_MARK, full=False
        )
    # Read from the last event on: if that is gone, later ones may be gone too.
    command = ("XRANGE", key, mark.position, "+", "COUNT", READ_AT_ONCE + 1)
    entries = yield CommandCall(command, key, Replay.SAFE)
    full = len(entries) > READ_AT_ONCE
    events = []
    if entries and entries[0][0].decode() == mark.position:
        entries = entries[1:]
    elif entries and mark.seen:
        events.append(TaskEvent(MISSED, queue, _decode_time(entries[0][0]), mark.position))
    for name, fields in entries:
        mark = StreamPosition(name.decode(), seen=True)
        event = decode_stream_entry(queue, name, fields)
        if event is not None:
            events.append(event)
    return NewEvents(events, mark, full)


def decode_stream_entry(queue: str, name: bytes, fields: Sequence[bytes]) -> TaskEvent | None:
    """Return the event in a stream entry with this id; None if it is not an event of ours."""
    value = fields[1] if len(fields) == 2 and fields[0] == _FIELD else b""
    return decode_event(queue, name.decode(), value)


def _decode_time(name: bytes) -> datetime:
    return datetime.fromtimestamp(int(name.partition(b"-")[0]) / 1_000, UTC)
