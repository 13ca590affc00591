"""Two databases in comparable form, and where they differ.

Normalized fields are listed here, field by field; everything else must be equal:

- times (scores, `pending_since`, TTLs, `last_failed_at`, `completed_at`) may differ by TOLERANCE;
- the ids of aggregation sets are replaced by those of their members, the ids of tasks that one side has made
  up by type, payload and a number: in the names of keys, in lists, sorted sets, locks and messages;
- headers are compared as mappings, payloads as bytes, fields of messages one by one;
- of the text of an error, what the language adds is left out: `HandlerError: ... [file.py:12]` here, in Go
  the words of the wrapped error and the place of a panic.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyasynq._wire.messages import TaskMessage, decode_task_message

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tests.interop.database import Entry

TOLERANCE = 2.5
"""Seconds: one for rounding up instead of down, the rest for what passes between the two sides of a step."""

Value: TypeAlias = Any
Snapshot: TypeAlias = "dict[str, dict[str, Value]]"
"""Key, part, value. Parts: the fields of a hash and of its message, the members of a set, "value", "ttl"."""

_QUEUE_KEY = re.compile(r"asynq:\{(.*?)\}:(.*)", re.DOTALL)
_SET_KEY = re.compile(r"(.*\}:g:.*):([0-9a-f-]{36})", re.DOTALL)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SORTED_SETS = {"scheduled", "retry", "archived", "completed", "lease"}
_OUR_ERROR = re.compile(r"(?:HandlerError|SkipRetry|RevokeTask)(?:: (.*))? \[our_side\.py:\d+\]", re.DOTALL)
_GO_PANIC = re.compile(r"panic error cause by: panic \[.*?:\d+\]: (.*)", re.DOTALL)
_GO_SKIPPED = ": skip retry for the task"


_DAY_KEY = re.compile(r"(asynq:\{.*?\}:(?:processed|failed)):\d{4}-\d\d-\d\d", re.DOTALL)


class Time(float):
    """Seconds that may differ a little."""

    __slots__ = ()


class Difference(NamedTuple):
    """One part of one key that is not the same."""

    key: str
    part: str
    theirs: Value
    ours: Value


class Names:
    """Values that differ on every run, by their kind."""

    def __init__(self, entries: Mapping[str, Entry], shared: Collection[str]) -> None:
        self._names: dict[str, str] = {}
        counts: dict[tuple[Any, ...], int] = {}
        for key, message in sorted(_messages(entries), key=lambda pair: (pair[1].type, pair[1].payload)):
            if key in shared or not _UUID.fullmatch(message.id):
                continue
            kind = (key.partition("}:")[0], message.type, message.payload)
            counts[kind] = counts.get(kind, 0) + 1
            self._names[message.id] = f"new {message.type} {message.payload!r} {counts[kind]}"

    def text(self, data: bytes) -> str:
        """Return an id's name."""
        text = data.decode()
        return self._names.get(text, text)

    def key(self, key: str, entry: Entry) -> str:
        """Return a key's name."""
        if found := _SET_KEY.fullmatch(key):
            return f"{found[1]}:{','.join(sorted(map(self.text, entry.value)))}"
        head, colon, task_id = key.partition("}:t:")
        return f"{head}{colon}{self._names.get(task_id, task_id)}"


def normalize(entries: Mapping[str, Entry], shared: Collection[str]) -> Snapshot:
    """Return a database in comparable form; `shared` are the keys that the other one has too."""
    names = Names(entries, shared)
    keys = {key: names.key(key, entry) for key, entry in entries.items()}
    return {keys[key]: _parts(key, entry, names, keys) for key, entry in entries.items()}


def differences(theirs: Snapshot, ours: Snapshot) -> list[Difference]:
    """Return where two databases differ."""
    found = []
    for key in sorted(theirs.keys() | ours.keys()):
        one, other = theirs.get(key), ours.get(key)
        if one is None or other is None:
            found.append(Difference(key, "key", one, other))
            continue
        found += [
            Difference(key, part, one.get(part), other.get(part))
            for part in sorted(one.keys() | other.keys())
            if not same(one.get(part), other.get(part))
        ]
    return found


def fold_days(snapshot: Snapshot) -> Snapshot:
    """Return a database with one counter for all days, which is the same on whichever of them one counted.

    For the one step in which the day of UTC changes: one side may have taken it before, the other after.
    """
    folded: Snapshot = {}
    for key, parts in snapshot.items():
        if day := _DAY_KEY.fullmatch(key):
            counter = folded.setdefault(f"{day[1]}:day", {"value": 0})
            counter["value"] += int(parts["value"])
        else:
            folded[key] = parts
    return folded


def same(theirs: Value, ours: Value) -> bool:
    """Return whether two values are equal, times nearly so."""
    if isinstance(theirs, Time) and isinstance(ours, Time):
        return abs(theirs - ours) <= TOLERANCE
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(same(theirs[name], ours[name]) for name in theirs)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(same, theirs, ours))
    return bool(theirs == ours)


def error_text(text: str) -> str:
    """Return what a handler said, without what the language adds."""
    if found := _OUR_ERROR.fullmatch(text):
        return found[1] or ""
    if found := _GO_PANIC.fullmatch(text):
        return found[1]
    return text.removesuffix(_GO_SKIPPED)


def _messages(entries: Mapping[str, Entry]) -> Iterator[tuple[str, TaskMessage]]:
    for key, entry in entries.items():
        if entry.kind == "hash" and "}:t:" in key and b"msg" in entry.value:
            yield key, decode_task_message(entry.value[b"msg"])


def _parts(key: str, entry: Entry, names: Names, keys: Mapping[str, str]) -> dict[str, Value]:
    parts = _value(key, entry, names, keys)
    if entry.ttl is not None:
        parts["ttl"] = Time(entry.ttl)
    return parts


def _value(key: str, entry: Entry, names: Names, keys: Mapping[str, str]) -> dict[str, Value]:
    found = _QUEUE_KEY.fullmatch(key)
    name = found[2] if found else ""
    match entry.kind:
        case "hash" if name.startswith("t:"):
            return _task(entry.value, names)
        case "hash":
            return {field.decode(): value for field, value in entry.value.items()}
        case "zset":
            return _sorted_set(name, entry.value, names, keys)
        case "list":
            return {"value": [names.text(one) for one in entry.value]}
        case "set":
            return {one.decode(): True for one in entry.value}
        case _:
            return {"value": _text(name, entry.value, names)}


def _sorted_set(
    name: str, value: Mapping[bytes, float], names: Names, keys: Mapping[str, str]
) -> dict[str, Value]:
    if name == "aggregation_sets":
        return {keys.get(one.decode(), one.decode()): Time(score) for one, score in value.items()}
    timed = name in _SORTED_SETS or name.startswith("g:")
    return {names.text(one): Time(score) if timed else score for one, score in value.items()}


def _text(name: str, value: bytes, names: Names) -> Value:
    if name == "paused":
        return Time(value)
    return names.text(value) if name.startswith("unique:") else value


def _task(fields: dict[bytes, bytes], names: Names) -> dict[str, Value]:
    parts: dict[str, Value] = {}
    for field, value in fields.items():
        if field == b"msg":
            parts |= _message(decode_task_message(value), names)
        elif field == b"pending_since":
            parts["pending_since"] = Time(int(value) / 10**9)
        else:
            parts[field.decode()] = value
    return parts


def _message(message: TaskMessage, names: Names) -> dict[str, Value]:
    return {
        "msg.type": message.type,
        "msg.payload": message.payload,
        "msg.id": names.text(message.id.encode()),
        "msg.queue": message.queue,
        "msg.retry": message.retry,
        "msg.retried": message.retried,
        "msg.error_msg": error_text(message.error_msg),
        "msg.timeout": message.timeout,
        "msg.deadline": message.deadline,
        "msg.unique_key": message.unique_key,
        "msg.last_failed_at": Time(message.last_failed_at),
        "msg.retention": message.retention,
        "msg.completed_at": Time(message.completed_at),
        "msg.group_key": message.group_key,
        "msg.headers": dict(message.headers),
    }
