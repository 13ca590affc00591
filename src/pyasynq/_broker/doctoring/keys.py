"""What the doctor asks about locks, counters, servers and Redis itself, and how it puts them right."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.arguments import MAX_TASKS
from pyasynq._broker.scripts import (
    ALL_SCRIPTS,
    DOCTOR_EXPIRE_ENDLESS,
    DOCTOR_LOOK_AT_LOCK,
    DOCTOR_RELEASE_LOCK,
    SERVER_LIST,
)
from pyasynq._broker.settle import trim_rest
from pyasynq._broker.stored import decode_name, number_of
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import ALL_QUEUES, SCHEDULERS, SERVERS, WORKERS, queue_keys, scheduler_history_key
from pyasynq._wire.messages import SchedulerEntry, UndecodableMessageError

if TYPE_CHECKING:
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Place

INDEXES = (SERVERS, WORKERS, SCHEDULERS)
"""Sorted sets of records, each scored with the second until which it is to be believed."""


class LockFacts(NamedTuple):
    """A lock and its owner: message and state are empty if there is no such task.

    `digest` changes whenever owner, message or state do; `ttl` is in seconds, -1 for ever, -2 for no lock.
    """

    key: bytes
    owner: bytes
    message: bytes
    state: str
    digest: bytes
    ttl: int


class SlowScript(NamedTuple):
    """A script of ours, or of a server in Go, that Redis noted as slow."""

    number: int
    name: str
    at: int
    milliseconds: int


def scan_keys(cursor: bytes, pattern: str, *, at: Place = None) -> Plan[tuple[bytes, list[bytes]]]:
    """Return the next cursor, `0` after the last page, and the keys that match among the next 1,000."""
    cursor, names = yield CommandCall(("SCAN", cursor, "MATCH", pattern, "COUNT", MAX_TASKS), at, Replay.SAFE)
    return cursor, names


def database_size(at: Place = None) -> Plan[int]:
    """Return how many keys a server has."""
    return int((yield CommandCall(("DBSIZE",), at, Replay.SAFE)))


def look_at_lock(queue: str, lock: bytes) -> Plan[LockFacts]:
    """Learn whose a lock is."""
    owner, message, state, digest, ttl = yield ScriptCall(
        DOCTOR_LOOK_AT_LOCK, (decode_name(lock),), (queue_keys(queue).task_prefix,), Replay.SAFE
    )
    return LockFacts(lock, owner, message, state.decode("utf-8", "backslashreplace"), digest, ttl)


def release_lock(queue: str, facts: LockFacts, *, seconds: int | None = None) -> Plan[bool]:
    """Release a lock, or with `seconds` give one that never ends an end; False if anything has changed."""
    done = yield ScriptCall(
        DOCTOR_RELEASE_LOCK,
        (decode_name(facts.key),),
        (queue_keys(queue).task_prefix, facts.digest, "" if seconds is None else seconds),
        Replay.SAFE,
    )
    return bool(done)


def time_to_live(key: bytes) -> Plan[int]:
    """Return the seconds that a key still lives; -1 for ever, -2 if there is none."""
    return int((yield CommandCall(("TTL", key), decode_name(key), Replay.SAFE)))


def expire_endless(key: bytes, *, seconds: int) -> Plan[bool]:
    """Give a key an end if it has none."""
    return bool((yield ScriptCall(DOCTOR_EXPIRE_ENDLESS, (decode_name(key),), (seconds,), Replay.SAFE)))


def lapsed_records(index: str, *, before: int) -> Plan[list[bytes]]:
    """Return the keys of records that are no more to be believed since before this Unix time."""
    command = ("ZRANGEBYSCORE", index, "-inf", f"({before}")
    return list((yield CommandCall(command, index, Replay.SAFE)))


def drop_lapsed_records(index: str) -> Plan[None]:
    """Forget the records that are no more to be believed, as everyone does who lists them."""
    yield ScriptCall(SERVER_LIST, (index,), ("", ""), Replay.SAFE)


def record_lapse(key: str) -> Plan[tuple[float, float] | None]:
    """Return when a server's record lapses by the server's clock, and in how many seconds it really does.

    None for a record that is gone.
    """
    score = yield CommandCall(("ZSCORE", SERVERS, key), SERVERS, Replay.SAFE)
    left = yield CommandCall(("PTTL", key), key, Replay.SAFE)
    return (float(score), left / 1_000) if score is not None and left > 0 else None


def list_histories(key: str) -> Plan[set[bytes]]:
    """Return the keys of the histories of the entries that a scheduler's record lists."""
    found = set()
    for data in (yield CommandCall(("LRANGE", key, 0, -1), key, Replay.SAFE)):
        with suppress(UndecodableMessageError):
            found.add(scheduler_history_key(SchedulerEntry.decode(data).id).encode())
    return found


def last_event(history: bytes) -> Plan[int]:
    """Return when the newest enqueue in a history was, as Unix time; 0 if there is none."""
    command = ("ZRANGE", history, -1, -1, "WITHSCORES")
    newest = yield CommandCall(command, decode_name(history), Replay.SAFE)
    return int(float(newest[1])) if newest else 0


def slow_scripts(
    now: Instant, *, milliseconds: int, seconds: int, at: Place = None
) -> Plan[list[SlowScript]]:
    """Return what a server's own log says of scripts that ran longer than this, in the last `seconds`.

    Raises:
        RedisPermissionError: for users without the right to SLOWLOG.
    """
    names = {form.sha: script.name for script in ALL_SCRIPTS for form in (script.flagged, script.plain)}
    found = []
    for number, noted_at, microseconds, arguments, *_ in (
        yield CommandCall(("SLOWLOG", "GET", 128), at, Replay.SAFE)
    ):
        command = arguments[0].upper()
        is_ours = command in {b"EVALSHA", b"EVAL"} and any(
            part.startswith(b"asynq:") for part in arguments[3:]
        )
        if is_ours and microseconds > milliseconds * 1_000 and noted_at > now.seconds - seconds:
            sha = arguments[1].decode("ascii", "replace")
            found.append(
                SlowScript(number, names.get(sha, "of another peer"), noted_at, microseconds // 1_000)
            )
    return found


def waiting_work(queue: str, now: Instant) -> Plan[tuple[int, int]]:
    """Return for how many seconds the next pending task has waited, and for how many one has been overdue.

    0 for each while none waits, and while the queue is paused.
    """
    keys = queue_keys(queue)
    if (yield CommandCall(("EXISTS", keys.paused), keys.paused, Replay.SAFE)):
        return 0, 0
    waited = overdue = 0
    oldest = yield CommandCall(("LINDEX", keys.pending, -1), keys.pending, Replay.SAFE)
    if oldest is not None:
        task = keys.task_prefix.encode() + oldest
        since = yield CommandCall(("HGET", task, "pending_since"), keys.pending, Replay.SAFE)
        waited = now.seconds - number_of(since) // 10**9 if since else 0
    for key in (keys.scheduled, keys.retry):
        first = yield CommandCall(
            ("ZRANGEBYSCORE", key, "-inf", now.seconds, "LIMIT", 0, 1), key, Replay.SAFE
        )
        if first:
            due = yield CommandCall(("ZSCORE", key, first[0]), key, Replay.SAFE)
            overdue = max(overdue, now.seconds - int(float(due or now.seconds)))
    return max(0, waited), overdue


def has_tasks(queue: str) -> Plan[bool]:
    """Return whether a queue has tasks, of whatever state."""
    keys = queue_keys(queue)
    names = (keys.pending, keys.active, keys.scheduled, keys.retry, keys.archived, keys.completed)
    command = ("EXISTS", *names, keys.groups, keys.aggregation_sets)
    return bool((yield CommandCall(command, keys.pending, Replay.SAFE)))


def is_registered(queue: str) -> Plan[bool]:
    """Return whether a queue's name is among those of all queues."""
    return bool((yield CommandCall(("SISMEMBER", ALL_QUEUES, queue), ALL_QUEUES, Replay.SAFE)))


def register(queue: str) -> Plan[None]:
    """Put a queue's name among those of all queues."""
    yield CommandCall(("SADD", ALL_QUEUES, queue), ALL_QUEUES, Replay.SAFE)


def was_used(queue: str) -> Plan[bool]:
    """Return whether a queue has ever processed a task: removal by a tool in Go leaves its total."""
    processed = queue_keys(queue).processed
    return bool((yield CommandCall(("EXISTS", processed), processed, Replay.SAFE)))


def archive_size(queue: str) -> Plan[int]:
    """Return how many archived tasks a queue has."""
    archived = queue_keys(queue).archived
    return int((yield CommandCall(("ZCARD", archived), archived, Replay.SAFE)))


def trim_archive(queue: str, *, max_size: int) -> Plan[int]:
    """Delete the oldest archived tasks beyond this number; return how many."""
    return (yield from trim_rest(queue_keys(queue), (0, 1), max_size=max_size, cutoff=0))
