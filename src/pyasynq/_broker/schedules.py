"""Periodic tasks: firing ticks, and the records by which schedulers show themselves.

The last tick of each entry stands in the slot of the queue that its tasks go to, so that looking at it,
setting it and enqueueing the task are one script. Any number of schedulers may fire the same tick: one of
them enqueues its task.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pyasynq._broker.arguments import FIRST_SEND, MAX_TASKS, chunks, time_arguments
from pyasynq._broker.enqueueing.enqueue_rules import new_task_arguments, result_of_tick
from pyasynq._broker.scripts import (
    SCHEDULE_BEGIN,
    SCHEDULE_FIRE,
    SCHEDULE_FORGET,
    SCHEDULE_RECORD,
    SCHEDULE_WRITE_ENTRIES,
    SERVER_ANNOUNCE,
    SERVER_LIST,
)
from pyasynq._broker.stored import decode_name, number_of, shown
from pyasynq._clock import Instant
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.constants import SCHEDULER_ENTRIES_SECONDS, SCHEDULER_HISTORY_LIMIT, STATISTICS_SECONDS
from pyasynq._wire.keys import SCHEDULERS, queue_keys, scheduler_history_key, scheduler_key
from pyasynq._wire.messages import SchedulerEnqueueEvent, SchedulerEntry, UndecodableMessageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq.task import EnqueueResult

T = TypeVar("T", SchedulerEntry, SchedulerEnqueueEvent)

TICK_SLACK_SECONDS: Final = 300
"""How far a stored tick may lie in the future and be believed.

A later one was written while the clock of Redis was wrong. After a fail-over the clock of the new primary may
be some seconds behind, and what was fired by the old one's must not be fired again.
"""
_FIRED_BEFORE: Final = -2
_SINCE: Final = ":since"


class EntryTicks(NamedTuple):
    """What Redis knows of the ticks of an entry, in Unix time.

    Attributes:
        last: the last one that was fired; None before the first.
        since: when the entry was first seen by any scheduler; `@every` counts from there.
    """

    last: int | None
    since: int


class Begun(NamedTuple):
    """The ticks of some entries, in their order, and the clock of Redis."""

    ticks: list[EntryTicks]
    redis_now: Instant


class Fired(NamedTuple):
    """What became of a tick.

    Attributes:
        result: of the enqueue; None if this tick or a later one had been fired before.
        last: the entry's last tick now, in Unix time.
    """

    result: EnqueueResult | None
    last: int


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
    """Return what is known of the ticks of entries of this queue.

    A new entry takes over the ticks of its predecessor, an entry by id, or counts from now.
    """
    ticks: list[EntryTicks] = []
    redis_now = Instant(0)
    for some in chunks(entry_ids, most=MAX_TASKS):
        pairs = [part for entry in some for part in (entry, predecessors.get(entry, ""))]
        args = (*time_arguments(now), *pairs)
        found = yield ScriptCall(SCHEDULE_BEGIN, (queue_keys(queue).ticks,), args, Replay.SAFE)
        redis_now = Instant(found[0], found[1])
        ticks += [
            EntryTicks(number_of(last) or None, number_of(since))
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
    otherwise each scheduler would try again. A call that is sent again after a lost reply enqueues nothing
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
    if code == _FIRED_BEFORE:
        return Fired(None, number_of(last))
    return Fired(result_of_tick(composed, code, shown(holder)), number_of(last))


def forget_entries(queue: str, *, before: int, keep: Collection[str]) -> Plan[int]:
    """Forget the entries of a queue whose last tick was before that Unix time; return how many they were.

    Entries in `keep`, those of running schedulers, stay: some have years between two ticks.
    """
    ticks = queue_keys(queue).ticks
    cursor, forgotten = b"0", 0
    while True:
        cursor, found = yield CommandCall(("HSCAN", ticks, cursor, "COUNT", MAX_TASKS), ticks, Replay.SAFE)
        old = {
            decode_name(field).removesuffix(_SINCE)
            for field, tick in zip(found[::2], found[1::2], strict=True)
            if number_of(tick) < before
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
    """Write the entries of a scheduler; they vanish `ttl` seconds later unless they are written again."""
    key = scheduler_key(scheduler_id)
    yield ScriptCall(SERVER_ANNOUNCE, (SCHEDULERS,), (key, ttl, *time_arguments(now)), Replay.SAFE)
    if not entries:
        yield CommandCall(("DEL", key), key, Replay.SAFE)
    kept = 0
    for some in chunks([entry.encode() for entry in entries], size_of=len):
        yield ScriptCall(SCHEDULE_WRITE_ENTRIES, (key,), (ttl, kept, *some), Replay.SAFE)
        kept += len(some)


def clear_scheduler_entries(scheduler_id: str) -> Plan[None]:
    """Remove the entries of a scheduler when it closes."""
    key = scheduler_key(scheduler_id)
    yield CommandCall(("ZREM", SCHEDULERS, key), SCHEDULERS, Replay.SAFE)
    yield CommandCall(("DEL", key), key, Replay.SAFE)


def list_schedulers(now: Instant | None = None) -> Plan[list[SchedulerRecord]]:
    """Return the schedulers whose heartbeat has not lapsed; records that cannot be decoded are left out."""
    schedulers = []
    for key in (yield ScriptCall(SERVER_LIST, (SCHEDULERS,), time_arguments(now), Replay.SAFE)):
        records = yield CommandCall(("LRANGE", key, 0, -1), decode_name(key), Replay.SAFE)
        scheduler_id = shown(key).removeprefix(f"{SCHEDULERS}:").strip("{}")
        schedulers.append(SchedulerRecord(scheduler_id, _decoded(SchedulerEntry, records[::-1])))
    return schedulers


def record_enqueue_event(
    entry_id: str,
    event: SchedulerEnqueueEvent,
    *,
    ttl: int = STATISTICS_SECONDS,
) -> Plan[None]:
    """Add an enqueue to the history of an entry, which vanishes `ttl` seconds after its last one."""
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
    """Return enqueues of an entry, the newest first, from position `start` to `stop`, both included."""
    key = scheduler_history_key(entry_id)
    members = yield CommandCall(("ZREVRANGE", key, start, stop), key, Replay.SAFE)
    return _decoded(SchedulerEnqueueEvent, members)


def _decoded(kind: type[T], values: Sequence[bytes]) -> list[T]:
    records = []
    for data in values:
        try:
            records.append(kind.decode(data))
        except UndecodableMessageError:
            continue
    return records
