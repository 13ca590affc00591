"""Events of tasks in Redis: one stream for each queue, written by workers and clients that were told to."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._broker.arguments import chunks
from pyasynq._broker.scripts import EVENT_PUBLISH
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys
from pyasynq.events import Outcome
from pyasynq.info import TaskEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant

LIFETIME_SECONDS: Final = 86_400
"""How long after its last event a stream is kept: where nobody publishes any more, it goes by itself."""
READ_AT_ONCE: Final = 500

MISSED: Final = "missed"
DROPPED: Final = "dropped"
KINDS: Final = frozenset(
    {
        *(outcome.value for outcome in Outcome if outcome is not Outcome.LET_GO),
        *("enqueued", "started", "lost", "recovered", "poisoned", "aggregated", DROPPED, MISSED),
    }
)
"""What the `kind` of an event can be."""

_FIELD: Final = b"event"
_BEGINNING: Final = "0-0"


def encode_event(kind: str, queue: str, at: Instant, **facts: str | float) -> bytes:
    """Return an event as it is published: compact JSON, without the facts that are empty."""
    event: dict[str, Any] = {"kind": kind, "queue": queue, "at": at.seconds + at.microseconds / 1_000_000}
    event.update((name, fact) for name, fact in facts.items() if fact != "")
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode_event(queue: str, position: str, data: bytes) -> TaskEvent | None:
    """Return the event that a stream holds, or None for what is none."""
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
        yield ScriptCall(EVENT_PUBLISH, (key,), (max_length, LIFETIME_SECONDS, *chunk), Replay.NEVER)


class Mark(NamedTuple):
    """A place in a stream, from which on events are wanted.

    Attributes:
        position: that of the last event before it; `0-0` stands for none.
        seen: whether there was an event at that position, so that its absence means that it was trimmed.
    """

    position: str
    seen: bool


FIRST_MARK: Final = Mark(_BEGINNING, seen=False)
"""Before the oldest event that is kept."""


class NewEvents(NamedTuple):
    """What a look into a stream has found.

    Attributes:
        mark: where to look on.
        full: whether there may be more.
    """

    events: list[TaskEvent]
    mark: Mark
    full: bool


def read_events(queue: str, mark: Mark | None) -> Plan[NewEvents]:
    """Return the events after a mark, 500 at most; None marks the present.

    If what followed the mark may have been trimmed, an event of the kind `missed` comes first.
    """
    key = queue_keys(queue).events
    if mark is None:
        newest = yield CommandCall(("XREVRANGE", key, "+", "-", "COUNT", 1), key, Replay.SAFE)
        return NewEvents([], Mark(newest[0][0].decode(), seen=True) if newest else FIRST_MARK, full=False)
    # Read with the last one before: if that is gone, others after it may be gone too.
    command = ("XRANGE", key, mark.position, "+", "COUNT", READ_AT_ONCE + 1)
    entries = yield CommandCall(command, key, Replay.SAFE)
    full = len(entries) > READ_AT_ONCE
    events = []
    if entries and entries[0][0].decode() == mark.position:
        entries = entries[1:]
    elif entries and mark.seen:
        events.append(TaskEvent(MISSED, queue, _time_of(entries[0][0]), mark.position))
    for name, fields in entries:
        mark = Mark(name.decode(), seen=True)
        event = decode_event(queue, mark.position, _value(fields))
        if event is not None:
            events.append(event)
    return NewEvents(events, mark, full)


def _value(fields: Sequence[bytes]) -> bytes:
    return fields[1] if len(fields) == 2 and fields[0] == _FIELD else b""


def _time_of(name: bytes) -> datetime:
    return datetime.fromtimestamp(int(name.partition(b"-")[0]) / 1_000, UTC)
