"""Periodic tasks: firing ticks, and the records of running schedulers.

The last tick of each entry is in the hash slot of the queue of its tasks, so that checking it, setting it
and enqueueing the task are one script. Any number of schedulers may fire the same tick: exactly one of
them enqueues its task.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pyasynq._broker.arguments import FIRST_SEND, MAX_TASKS, chunks, time_arguments
from pyasynq._broker.enqueueing.enqueue_rules import build_tick_result, new_task_arguments
from pyasynq._broker.scripts import (
    SCHEDULE_BEGIN,
    SCHEDULE_FIRE,
    SCHEDULE_FORGET,
    SCHEDULE_PAUSE,
    SCHEDULE_RECORD,
    SCHEDULE_WRITE_ENTRIES,
    SERVER_ANNOUNCE,
    SERVER_LIST,
)
from pyasynq._broker.stored import decode_name, display_name, parse_number
from pyasynq._clock import Instant
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.constants import SCHEDULER_ENTRIES_SECONDS, SCHEDULER_HISTORY_LIMIT, STATISTICS_SECONDS
from pyasynq._wire.keys import SCHEDULERS_KEY, queue_keys, scheduler_history_key, scheduler_key
from pyasynq._wire.messages import SchedulerEnqueueEvent, SchedulerEntry, UndecodableMessageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq.task import EnqueueResult

_T = TypeVar("_T", SchedulerEntry, SchedulerEnqueueEvent)

TICK_SLACK_SECONDS: Final = 300
"""Seconds into the future beyond which a stored tick is ignored.

Such a tick was written while the clock of Redis was wrong. After a failover the clock of the new primary
may be some seconds behind; ticks fired by the old one must not be fired again.
"""
_ENTRIES_AT_ONCE: Final = 5_000
_FIRED_BEFORE: Final = -2
_PAUSED: Final = -3
_FIELDS_OF_ENTRY: Final = re.compile(r":(?:since|paused)\Z")


class EntryTicks(NamedTuple):
    """The stored ticks of an entry, in Unix time.

    Attributes:
        last: the last one that was fired; None before the first.
        since: when a scheduler first saw the entry; `@every` counts from there.
    """

    last: int | None
    since: int


class Begun(NamedTuple):
    """Ticks of entries, in the order of the entries, and the time of Redis."""

    ticks: list[EntryTicks]
    redis_now: Instant


class Fired(NamedTuple):
    """The outcome of firing a tick.

    Attributes:
        result: result of the enqueue; None if the entry is paused, or if this tick or a later one had been
            fired before.
        last: the entry's last tick now, in Unix time.
        is_paused: whether the tick counts as fired and enqueued nothing, because the entry is paused.
    """

    result: EnqueueResult | None
    last: int
    is_paused: bool = False


class EntryPause(NamedTuple):
    """Pause of an entry.

    Attributes:
        is_known: whether the entry's scheduler supports pauses; a scheduler in Go does not.
        since: Unix time; None if the entry is not paused.
    """

    is_known: bool
    since: int | None


class SchedulerRecord(NamedTuple):
    """A running scheduler and its entries, in the order in which it lists them."""

    scheduler_id: str
    entries: list[SchedulerEntry]


def begin_entries(
    queue: str,
    entry_ids: Sequence[str],
    *,
    predecessors: Mapping[str, str] = MappingProxyType({}),
    now: Instant | None = None,
) -> Plan[Begun]:
    """Return the stored ticks of entries of this queue; store a start time for entries without ticks.

    A new entry inherits ticks and pause of its predecessor, given by id. Without a predecessor it starts now.
    """
    ticks: list[EntryTicks] = []
    redis_now = Instant(0)
    for some in chunks(entry_ids, most=MAX_TASKS):
        pairs = [part for entry in some for part in (entry, predecessors.get(entry, ""))]
        args = (*time_arguments(now), *pairs)
        found = yield ScriptCall(SCHEDULE_BEGIN, (queue_keys(queue).ticks,), args, Replay.SAFE)
        redis_now = Instant(found[0], found[1])
        ticks += [
            EntryTicks(parse_number(last) or None, parse_number(since))
            for last, since in zip(found[2::2], found[3::2], strict=True)
        ]
    return Begun(ticks, redis_now)


def fire(
    composed: Composed,
    *,
    entry_id: str,
    tick: int,
    now: Instant | None,
) -> Plan[Fired]:
    """Enqueue the task of a tick, unless this tick or a later one of the entry has been fired.

    A tick counts as fired also when its task is refused, because its id exists or its lock is held:
    otherwise each scheduler would try again. A call that is resent after a lost reply enqueues nothing
    twice; if the task is gone by then, its tick is reported as fired before.
    """
    keys = queue_keys(composed.settings.queue)
    head = (FIRST_SEND, keys.task_prefix, keys.group_prefix, *time_arguments(now))
    code, last, holder = yield ScriptCall(
        SCHEDULE_FIRE,
        (*keys.places, keys.ticks),
        (*head, entry_id, tick, TICK_SLACK_SECONDS, *new_task_arguments(composed)),
        Replay.BY_TOKEN,
    )
    if code in (_FIRED_BEFORE, _PAUSED):
        return Fired(None, parse_number(last), is_paused=code == _PAUSED)
    return Fired(build_tick_result(composed, code, display_name(holder)), parse_number(last))


def pause_queue_entry(queue: str, entry_id: str, *, pauses: bool, now: Instant | None) -> Plan[int | None]:
    """Pause an entry of a queue, or end its pause; return the second since which it is paused, 0 for none.

    An existing pause is kept. While it lasts, ticks count as fired and enqueue nothing. Return None, and
    write nothing, if the entry's scheduler does not support pauses, as in Go.
    """
    ticks = queue_keys(queue).ticks
    args = (entry_id, "pause" if pauses else "unpause", *time_arguments(now))
    since = yield ScriptCall(SCHEDULE_PAUSE, (ticks,), args, Replay.SAFE)
    return None if since < 0 else int(since)


def read_pauses(queue: str, entry_ids: Sequence[str]) -> Plan[list[EntryPause]]:
    """Return for each entry whether its scheduler supports pauses, and since when the entry is paused."""
    ticks = queue_keys(queue).ticks
    found: list[EntryPause] = []
    for some in chunks(entry_ids, most=MAX_TASKS, width=2):
        fields = [field for entry in some for field in (f"{entry}:since", f"{entry}:paused")]
        values = yield CommandCall(("HMGET", ticks, *fields), ticks, Replay.SAFE)
        pairs = zip(values[::2], values[1::2], strict=True)
        found += [EntryPause(since is not None, parse_number(paused) or None) for since, paused in pairs]
    return found


def forget_entries(queue: str, *, before: int, keep: Collection[str]) -> Plan[int]:
    """Delete the stored ticks of a queue's schedule entries that have not fired since a Unix time.

    Entries that began later are kept. So are the entries in `keep`, which running schedulers have: two ticks
    may be years apart. Return the number of entries whose ticks were deleted.
    """
    ticks = queue_keys(queue).ticks
    cursor, forgotten = b"0", 0
    while True:
        cursor, found = yield CommandCall(("HSCAN", ticks, cursor, "COUNT", MAX_TASKS), ticks, Replay.SAFE)
        old = {
            _FIELDS_OF_ENTRY.sub("", decode_name(field))
            for field, tick in zip(found[::2], found[1::2], strict=True)
            if parse_number(tick) < before
        }
        for some in chunks(sorted(old.difference(keep))):
            forgotten += yield ScriptCall(SCHEDULE_FORGET, (ticks,), (before, *some), Replay.SAFE)
        if cursor == b"0":
            return forgotten


def write_scheduler_entries(
    scheduler_id: str,
    entries: Sequence[SchedulerEntry],
    *,
    ttl: int = SCHEDULER_ENTRIES_SECONDS,
    now: Instant | None = None,
) -> Plan[None]:
    """Write the entries of a scheduler; they expire after `ttl` seconds unless written again."""
    key = scheduler_key(scheduler_id)
    yield ScriptCall(SERVER_ANNOUNCE, (SCHEDULERS_KEY,), (key, ttl, *time_arguments(now)), Replay.SAFE)
    if not entries:
        yield CommandCall(("DEL", key), key, Replay.SAFE)
    kept = 0
    for some in chunks([entry.encode() for entry in entries], size_of=len):
        yield ScriptCall(SCHEDULE_WRITE_ENTRIES, (key,), (ttl, kept, *some), Replay.SAFE)
        kept += len(some)


def clear_scheduler_entries(scheduler_id: str) -> Plan[None]:
    """Remove the entries of a scheduler when it closes."""
    key = scheduler_key(scheduler_id)
    yield CommandCall(("ZREM", SCHEDULERS_KEY, key), SCHEDULERS_KEY, Replay.SAFE)
    yield CommandCall(("DEL", key), key, Replay.SAFE)


def list_schedulers(now: Instant | None = None) -> Plan[list[SchedulerRecord]]:
    """Return the schedulers whose heartbeat has not lapsed; remove the others from the index.

    Records that cannot be decoded are skipped.
    """
    schedulers = []
    for key in (yield ScriptCall(SERVER_LIST, (SCHEDULERS_KEY,), time_arguments(now), Replay.SAFE)):
        record = yield from read_scheduler(decode_name(key))
        schedulers.append(record)
    return schedulers


def read_scheduler(key: str) -> Plan[SchedulerRecord]:
    """Return a scheduler and its entries by the key of its record; skip entries that cannot be decoded."""
    records: list[bytes] = []
    while True:
        last = -1 - len(records)
        some = yield CommandCall(("LRANGE", key, last - _ENTRIES_AT_ONCE + 1, last), key, Replay.SAFE)
        records += some[::-1]
        if len(some) < _ENTRIES_AT_ONCE:
            break
    scheduler_id = display_name(key.encode("utf-8", "surrogateescape"))
    name = scheduler_id.removeprefix(f"{SCHEDULERS_KEY}:").strip("{}")
    return SchedulerRecord(name, _decode_records(SchedulerEntry, records))


def record_enqueue_event(
    entry_id: str,
    event: SchedulerEnqueueEvent,
    *,
    ttl: int = STATISTICS_SECONDS,
) -> Plan[None]:
    """Add an enqueue to an entry's history, which expires `ttl` seconds after its last enqueue."""
    if event.enqueue_time is None:
        raise ValueError("the event has no time")
    score = int(event.enqueue_time.timestamp())
    args = (event.encode(), score, SCHEDULER_HISTORY_LIMIT, ttl)
    yield ScriptCall(SCHEDULE_RECORD, (scheduler_history_key(entry_id),), args, Replay.SAFE)


def clear_scheduler_history(entry_id: str) -> Plan[None]:
    """Remove the history of an entry."""
    key = scheduler_history_key(entry_id)
    yield CommandCall(("DEL", key), key, Replay.SAFE)


def list_enqueue_events(entry_id: str, start: int, stop: int) -> Plan[list[SchedulerEnqueueEvent]]:
    """Return an entry's enqueues, newest first, from position `start` to `stop`, both included."""
    key = scheduler_history_key(entry_id)
    members = yield CommandCall(("ZREVRANGE", key, start, stop), key, Replay.SAFE)
    return _decode_records(SchedulerEnqueueEvent, members)


def _decode_records(kind: type[_T], values: Sequence[bytes]) -> list[_T]:
    records = []
    for data in values:
        try:
            records.append(kind.decode(data))
        except UndecodableMessageError:
            continue
    return records
