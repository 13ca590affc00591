"""Reading the vectors of Asynq 0.26, and comparing a live database with them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyasynq._wire.messages import SchedulerEnqueueEvent, ServerInfo, WorkerInfo
from tests.redis_6 import expiry_of

if TYPE_CHECKING:
    from tests.invariants import RedisClient

VECTORS: dict[str, dict[str, Any]] = {
    vector["name"]: vector
    for vector in json.loads(
        Path(__file__).parent.with_name("golden").joinpath("asynq-0.26.json").read_text()
    )
}

TTL_TOLERANCE = 0.5
"""Seconds; what passes between a call and the look at its keys."""


class Entry(NamedTuple):
    """One key: its type, its parts by name, and Unix time or seconds at which it goes."""

    type: str
    parts: dict[str, Any]
    ttl: float | None


Snapshot: TypeAlias = dict[str, Entry]


def golden_snapshot(name: str) -> Snapshot:
    """Return what Asynq left. The TTL of a counter is its end in Unix time, that of other keys in seconds."""
    vector = VECTORS[name]
    taken_at = vector["taken_at_unix_ms"] / 1000
    snapshot = {}
    for entry in vector["entries"]:
        key, kind, value = entry["key"], entry["type"], entry["value"]
        parts: dict[str, Any]
        if kind == "hash":
            parts = {field: base64.b64decode(data) for field, data in value.items()}
        elif kind == "zset":
            parts = {_member(key, base64.b64decode(pair["member"])): pair["score"] for pair in value}
        elif kind == "string":
            parts = {"value": base64.b64decode(value)}
        else:
            members = [base64.b64decode(member) for member in value]
            parts = {"value": members if kind == "list" else set(members)}
        ttl = None if entry["pttl_ms"] < 0 else entry["pttl_ms"] / 1000
        if ttl and _is_counter(key):
            ttl += taken_at
        snapshot[key] = Entry(kind, parts, ttl)
    return snapshot


def live_snapshot(client: RedisClient) -> Snapshot:
    """Return what is in Redis, in the form of `golden_snapshot`."""
    snapshot = {}
    for name in client.keys("*"):
        key, kind = name.decode(), client.type(name).decode()
        parts: dict[str, Any]
        if kind == "hash":
            parts = {field.decode(): data for field, data in client.hgetall(name).items()}
        elif kind == "zset":
            members = client.zrange(name, 0, -1, withscores=True)
            parts = {_member(key, member): score for member, score in members}
        elif kind == "string":
            parts = {"value": client.get(name)}
        else:
            parts = {"value": client.lrange(name, 0, -1) if kind == "list" else client.smembers(name)}
        milliseconds = expiry_of(client, name) if _is_counter(key) else client.pttl(name)
        snapshot[key] = Entry(kind, parts, None if milliseconds < 0 else milliseconds / 1000)
    return snapshot


def differences(golden: Snapshot, live: Snapshot) -> dict[tuple[str, str], tuple[Any, Any]]:
    """Return what differs: key and part, with Asynq's value and ours."""
    found: dict[tuple[str, str], tuple[Any, Any]] = {}
    for key in golden.keys() | live.keys():
        theirs, ours = golden.get(key), live.get(key)
        if theirs is None or ours is None or theirs.type != ours.type:
            found[key, "type"] = (theirs, ours)
            continue
        for part in theirs.parts.keys() | ours.parts.keys():
            values = theirs.parts.get(part), ours.parts.get(part)
            if _comparable(key, part, values[0]) != _comparable(key, part, values[1]):
                found[key, part] = values
        if not _same_ttl(key, theirs.ttl, ours.ttl):
            found[key, "ttl"] = (theirs.ttl, ours.ttl)
    return found


def _member(key: str, member: bytes) -> str:
    """Return a member as text; an event without Go's nanoseconds."""
    if key.startswith("asynq:scheduler_history:"):
        member = SchedulerEnqueueEvent.decode(member).encode()
    return member.decode(errors="surrogateescape")


def _is_counter(key: str) -> bool:
    return ":processed:" in key or ":failed:" in key


def _is_record(key: str) -> bool:
    return key.startswith(("asynq:servers:", "asynq:workers:", "asynq:schedulers:"))


def _comparable(key: str, part: str, value: Any) -> Any:
    """Bring nanoseconds of Go to our microseconds; records are compared decoded for the same reason."""
    if value is None:
        return None
    if part == "pending_since":
        return int(value) // 1000
    if key.startswith("asynq:servers:"):
        return ServerInfo.decode(value)
    if key.startswith("asynq:workers:"):
        return WorkerInfo.decode(value)
    return value


def _same_ttl(key: str, theirs: float | None, ours: float | None) -> bool:
    if theirs is None or ours is None:
        return theirs is ours
    # A record had been there for up to two seconds when Asynq's database was looked at.
    return abs(theirs - ours) <= (2 if _is_record(key) else TTL_TOLERANCE)
