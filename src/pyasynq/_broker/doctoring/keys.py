"""The doctor's plans for locks, counters, servers and Redis itself."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.arguments import MAX_TASKS
from pyasynq._broker.scripts import (
    DOCTOR_EXPIRE_ENDLESS,
    DOCTOR_LOOK_AT_LOCK,
    DOCTOR_RELEASE_LOCK,
    SERVER_LIST,
)
from pyasynq._broker.settle import trim_rest
from pyasynq._broker.stored import decode_name, parse_number
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import (
    ALL_QUEUES,
    SCHEDULERS_KEY,
    SERVERS_KEY,
    WORKERS_KEY,
    queue_keys,
    scheduler_history_key,
)
from pyasynq._wire.messages import SchedulerEntry, UndecodableMessageError

if TYPE_CHECKING:
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Place

INDEXES = (SERVERS_KEY, WORKERS_KEY, SCHEDULERS_KEY)
"""Sorted sets of the keys of server and scheduler records; a score is the Unix second of their expiry."""


class LockFacts(NamedTuple):
    """A uniqueness lock and its owner; message and state are empty if the owning task does not exist.

    `digest` changes whenever owner, message or state change. `ttl` is in seconds: -1 for a lock without an
    expiry, -2 without a lock.
    """

    key: bytes
    owner: bytes
    message: bytes
    state: str
    digest: bytes
    ttl: int


def scan_keys(cursor: bytes, pattern: str, *, at: Place = None) -> Plan[tuple[bytes, list[bytes]]]:
    """Return the next cursor of SCAN, `0` after the last page, and the matching keys among the next 1,000."""
    cursor, names = yield CommandCall(("SCAN", cursor, "MATCH", pattern, "COUNT", MAX_TASKS), at, Replay.SAFE)
    return cursor, names


def get_database_size(at: Place = None) -> Plan[int]:
    """Return the number of keys of the Redis server at this routing target."""
    return int((yield CommandCall(("DBSIZE",), at, Replay.SAFE)))


def look_at_lock(queue: str, lock: bytes) -> Plan[LockFacts]:
    """Read a lock and its owner."""
    owner, message, state, digest, ttl = yield ScriptCall(
        DOCTOR_LOOK_AT_LOCK, (decode_name(lock),), (queue_keys(queue).task_prefix,), Replay.SAFE
    )
    return LockFacts(lock, owner, message, state.decode("utf-8", "backslashreplace"), digest, ttl)


def release_lock(queue: str, facts: LockFacts, *, seconds: int | None = None) -> Plan[bool]:
    """Release a lock, or with `seconds`, set the expiry of a lock that has none.

    Return False, with nothing changed, if the lock or its owner is not as in `facts`.
    """
    done = yield ScriptCall(
        DOCTOR_RELEASE_LOCK,
        (decode_name(facts.key),),
        (queue_keys(queue).task_prefix, facts.digest, "" if seconds is None else seconds),
        Replay.SAFE,
    )
    return bool(done)


def get_time_to_live(key: bytes) -> Plan[int]:
    """Return the TTL of a key in seconds; -1 if it never expires, -2 if it does not exist."""
    return int((yield CommandCall(("TTL", key), decode_name(key), Replay.SAFE)))


def expire_endless(key: bytes, *, seconds: int) -> Plan[bool]:
    """Set the expiry of a key that has none; return False if it has one, or does not exist."""
    return bool((yield ScriptCall(DOCTOR_EXPIRE_ENDLESS, (decode_name(key),), (seconds,), Replay.SAFE)))


def list_lapsed_records(index: str, *, before: int) -> Plan[list[bytes]]:
    """Return the keys of server and scheduler records that expired before this Unix time."""
    command = ("ZRANGEBYSCORE", index, "-inf", f"({before}")
    return list((yield CommandCall(command, index, Replay.SAFE)))


def drop_lapsed_records(index: str) -> Plan[None]:
    """Remove expired records from the index, as every listing does."""
    yield ScriptCall(SERVER_LIST, (index,), ("", ""), Replay.SAFE)


def get_record_lapse(key: str) -> Plan[tuple[float, float] | None]:
    """Return when a server's record expires by the server's clock (Unix time), and its TTL in seconds.

    None for a record that is gone.
    """
    score = yield CommandCall(("ZSCORE", SERVERS_KEY, key), SERVERS_KEY, Replay.SAFE)
    left = yield CommandCall(("PTTL", key), key, Replay.SAFE)
    return (float(score), left / 1_000) if score is not None and left > 0 else None


def list_histories(key: str) -> Plan[set[bytes]]:
    """Return the keys of the histories of the entries in a scheduler's record."""
    found = set()
    for data in (yield CommandCall(("LRANGE", key, 0, -1), key, Replay.SAFE)):
        with suppress(UndecodableMessageError):
            found.add(scheduler_history_key(SchedulerEntry.decode(data).id).encode())
    return found


def get_last_event_time(history: bytes) -> Plan[int]:
    """Return the Unix time of the newest enqueue in a history; 0 if there is none."""
    command = ("ZRANGE", history, -1, -1, "WITHSCORES")
    newest = yield CommandCall(command, decode_name(history), Replay.SAFE)
    return int(float(newest[1])) if newest else 0


def measure_waiting_work(queue: str, now: Instant) -> Plan[tuple[int, int]]:
    """Return the wait of the next pending task and the lateness of the most overdue task, in seconds.

    0 if there is none, and while the queue is paused.
    """
    keys = queue_keys(queue)
    if (yield CommandCall(("EXISTS", keys.paused), keys.paused, Replay.SAFE)):
        return 0, 0
    waited = overdue = 0
    oldest = yield CommandCall(("LINDEX", keys.pending, -1), keys.pending, Replay.SAFE)
    if oldest is not None:
        task = keys.task_prefix.encode() + oldest
        since = yield CommandCall(("HGET", task, "pending_since"), keys.pending, Replay.SAFE)
        waited = now.seconds - parse_number(since) // 10**9 if since else 0
    for key in (keys.scheduled, keys.retry):
        first = yield CommandCall(
            ("ZRANGEBYSCORE", key, "-inf", now.seconds, "LIMIT", 0, 1), key, Replay.SAFE
        )
        if first:
            due = yield CommandCall(("ZSCORE", key, first[0]), key, Replay.SAFE)
            overdue = max(overdue, now.seconds - int(float(due or now.seconds)))
    return max(0, waited), overdue


def has_tasks(queue: str) -> Plan[bool]:
    """Return whether a queue has tasks of any state."""
    keys = queue_keys(queue)
    names = (keys.pending, keys.active, keys.scheduled, keys.retry, keys.archived, keys.completed)
    command = ("EXISTS", *names, keys.groups, keys.aggregation_sets)
    return bool((yield CommandCall(command, keys.pending, Replay.SAFE)))


def is_registered(queue: str) -> Plan[bool]:
    """Return whether a queue's name is in the set of all queues."""
    return bool((yield CommandCall(("SISMEMBER", ALL_QUEUES, queue), ALL_QUEUES, Replay.SAFE)))


def register(queue: str) -> Plan[None]:
    """Add a queue's name to the set of all queues."""
    yield CommandCall(("SADD", ALL_QUEUES, queue), ALL_QUEUES, Replay.SAFE)


def was_used(queue: str) -> Plan[bool]:
    """Return whether a queue has ever processed a task.

    The counter of processed tasks remains when a Go tool removes the queue.
    """
    processed = queue_keys(queue).processed
    return bool((yield CommandCall(("EXISTS", processed), processed, Replay.SAFE)))


def count_archived(queue: str) -> Plan[int]:
    """Return the number of archived tasks of a queue."""
    archived = queue_keys(queue).archived
    return int((yield CommandCall(("ZCARD", archived), archived, Replay.SAFE)))


def trim_archive(queue: str, *, max_size: int) -> Plan[int]:
    """Delete the oldest archived tasks, until `max_size` are left; return how many were deleted."""
    return (yield from trim_rest(queue_keys(queue), (0, 1), max_size=max_size, cutoff=0))
