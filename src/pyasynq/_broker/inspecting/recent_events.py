"""Newest kept events of several queues, merged; a page continues from a cursor."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pyasynq._broker.inspecting.cursors import decode_cursor, encode_cursor, list_tag
from pyasynq._broker.task_events import decode_stream_entry
from pyasynq._redis.plan import CommandCall, Replay
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import InvalidOptionError
from pyasynq.info import EventPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._broker.task_events import EventFilter
    from pyasynq._redis.plan import Plan
    from pyasynq.info import TaskEvent

MOST_EVENTS: Final = 500
"""Largest number of events of one page, and number of events of each queue that a filtered page examines."""

_TAG: Final = list_tag("events")
_MOST_SEQUENCE: Final = 2**64 - 1
_POSITION: Final = re.compile("[0-9]{1,20}-[0-9]{1,20}")

EventPlace: TypeAlias = tuple[int, int, str]
"""Sort key of an event among all queues: the two numbers of its stream position, and the queue."""


class StreamPart(NamedTuple):
    """Entries of one stream that were read, newest first."""

    entries: list[tuple[EventPlace, TaskEvent | None]]
    """Sort key and event of each entry; None for an entry that cannot be decoded."""
    end: EventPlace | None
    """Sort key of the oldest of these entries, if there may be older ones; else None."""


def read_stream_part(queue: str, before: EventPlace | None, count: int) -> Plan[StreamPart]:
    """Read up to `count` events of a queue, newest first: those before `before`, or the newest for None."""
    key = queue_keys(queue).events
    command = ("XREVRANGE", key, _find_last_position(queue, before), "-", "COUNT", count)
    reply = yield CommandCall(command, key, Replay.SAFE)
    entries = [
        (_parse_place(queue, name.decode()), decode_stream_entry(queue, name, fields))
        for name, fields in reply
    ]
    return StreamPart(entries, entries[-1][0] if len(entries) == count else None)


def merge_parts(parts: Sequence[StreamPart], wanted: EventFilter, limit: int) -> EventPage:
    """Return the newest `limit` events of several streams that pass a filter."""
    # Entries older than the end of a part are left out: older entries of its queue have not been read.
    end = max((part.end for part in parts if part.end is not None), default=None)
    entries = sorted((entry for part in parts for entry in part.entries), key=_place_of, reverse=True)
    events: list[TaskEvent] = []
    looked_at = 0
    for place, event in entries:
        if len(events) == limit or (end is not None and place < end):
            break
        looked_at += 1
        if event is not None and wanted.match(event):
            events.append(event)
    is_last = looked_at == len(entries) and end is None
    cursor = "" if is_last else _encode_place(entries[looked_at - 1][0])
    return EventPage(tuple(events), cursor, looked_at)


def _encode_place(place: EventPlace) -> str:
    milliseconds, sequence, queue = place
    return encode_cursor(_TAG, (f"{milliseconds}-{sequence}", queue))


def parse_cursor(cursor: str) -> EventPlace | None:
    """Decode the cursor of a page to the sort key of an event; None for an empty cursor.

    Raises:
        InvalidOptionError: for anything that `merge_parts` did not return.
    """
    if not cursor:
        return None
    position, queue = decode_cursor(cursor, _TAG, "tt")
    if not _POSITION.fullmatch(position):
        raise InvalidOptionError("cursor", cursor, "is not a cursor of events; begin without one")
    return _parse_place(queue, position)


def _place_of(entry: tuple[EventPlace, TaskEvent | None]) -> EventPlace:
    return entry[0]


def _parse_place(queue: str, position: str) -> EventPlace:
    milliseconds, _, sequence = position.partition("-")
    return int(milliseconds), int(sequence), queue


def _find_last_position(queue: str, before: EventPlace | None) -> str:
    """Return the newest position in a queue's stream whose sort key is below `before`."""
    if before is None:
        return "+"
    milliseconds, sequence, other = before
    if queue < other:
        return f"{milliseconds}-{sequence}"
    if sequence:
        return f"{milliseconds}-{sequence - 1}"
    # Redis refuses a position before 0-0; no event has it.
    return f"{milliseconds - 1}-{_MOST_SEQUENCE}" if milliseconds else "0-0"
