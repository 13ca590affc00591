"""Invariants that hold in Redis after every operation, by any client.

`check_invariants` looks at a live database and names each violation. The numbers I1 to I18 are those of the
list of invariants in the documentation of the layout. Rules about single operations (a failed enqueue
changes nothing, leases never move backward, first in first out, conservation) is the business of the tests
that perform operations.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pyasynq._broker.verdicts import Verdict
from pyasynq._wire.attempt_counts import LEVELS, MAX_COUNTED_TYPES, unpack_records
from pyasynq._wire.endings import decode_callback, decode_ending, encode_callback
from pyasynq._wire.history import decode_attempts, decode_progress
from pyasynq._wire.keys import ALL_QUEUES, TASK_TYPES_KEY, QueueKeys, queue_keys
from pyasynq._wire.messages import TaskMessage, UndecodableMessageError, decode_task_message
from pyasynq._wire.task_type_text import decode_task_type
from pyasynq.callbacks import Callback
from pyasynq.operations.request_rate import LONGEST_FILL
from tests.operator_invariants import operator_violations

if TYPE_CHECKING:
    from collections.abc import Iterator


RedisClient: TypeAlias = Any
"""A `redis.Redis`; its annotations leave open whether a reply is bytes or text."""

MAX_ARCHIVED = 9_999
NO_CALLBACK = encode_callback(Callback("x"), "x", "")
_QUEUE_KEY = re.compile(r"asynq:\{(.*?)\}:(.*)", re.DOTALL)
_DAY = re.compile(r"(processed|failed):\d{4}-\d{2}-\d{2}")
_LOCK_RULE = re.compile(rb"\d+( start| finish)?")
_LISTS = ("pending", "active")
_SORTED_SETS = ("scheduled", "retry", "archived", "completed")
_PLAIN = {*_LISTS, *_SORTED_SETS, "lease", "paused", "processed", "failed", "groups", "aggregation_sets"}
_FIELDS = {"msg", "state", "pending_since", "unique_key", "group", "result"}
_OWN_FIELDS = {
    *("x:attempt", "x:begun", "x:crashes", "x:group", "x:unique_ttl", "x:trace", "x:attempts", "x:progress"),
    *("x:finished", "x:ends", "x:lapses", "x:extended"),
}

_RATE = {"rate", "period", "burst"}
_SETTINGS = {"concurrency", "ordered", *_RATE}


@dataclass
class _Queue:
    """All data of one queue in Redis; keys without their prefix."""

    keys: QueueKeys
    values: dict[str, Any] = field(default_factory=dict)
    ttls: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Names of the collections that contain a task, by its id."""

    def task(self, task_id: str) -> dict[str, bytes] | None:
        return self.values.get(f"t:{task_id}")

    def tasks(self) -> Iterator[tuple[str, dict[str, bytes]]]:
        for name, value in self.values.items():
            if name.startswith("t:"):
                yield name.removeprefix("t:"), value

    def collections(self) -> Iterator[tuple[str, list[str]]]:
        """Ids in each collection that determines a task's state, by the collection's name."""
        for name in _LISTS:
            yield name, self.values.get(name, [])
        for name in _SORTED_SETS:
            yield name, list(self.values.get(name, {}))
        for name, value in self.values.items():
            if name.startswith("g:"):
                yield name, list(value)

    def messages(self) -> Iterator[tuple[str, TaskMessage]]:
        for task_id, fields in self.tasks():
            try:
                yield task_id, decode_task_message(fields.get("msg", b""))
            except UndecodableMessageError:
                continue


def check_invariants(
    client: RedisClient, *, max_archived: int = MAX_ARCHIVED, ids_return: bool = False
) -> None:
    """Fail with every violation there is.

    If ids are reused, a lock that only expires may belong to an id that another task has now.
    """
    found = violations(client, max_archived=max_archived, ids_return=ids_return)
    assert not found, "\n".join(["the database is not sound:", *found])


def violations(
    client: RedisClient, *, max_archived: int = MAX_ARCHIVED, ids_return: bool = False
) -> list[str]:
    """Return every violation as a sentence that begins with the queue's name."""
    registered = {name.decode() for name in client.smembers(ALL_QUEUES)}
    found = [*_global_keys(client), *_task_types(client), *operator_violations(client)]
    for name, queue in sorted(_read(client).items()):
        checks = (
            _unknown_keys(queue),
            _places(queue),
            _fields(queue),
            _messages(queue),
            _leases(queue),
            _groups(queue),
            _locks(queue, ids_return=ids_return),
            _counters(queue),
            _events(queue),
            _scores(queue),
            _verdicts(queue),
            _limits(queue),
            _attempt_counts(queue),
            _endings(queue),
        )
        found += [f"{name}: {message}" for check in checks for message in check]
        if any(queue.tasks()) and name not in registered:
            found.append(f"{name}: I18 has tasks and is not in {ALL_QUEUES}")
        if len(queue.values.get("archived", ())) > max_archived:
            found.append(f"{name}: I14 keeps more than {max_archived} archived tasks")
    return found


_GLOBAL_KEYS: dict[str, int | None] = {
    "ask:": 60,
    "apikeys": None,
    "audit": None,
    "bucket:": LONGEST_FILL + 60,
    "conf": None,
    "gate:": LONGEST_FILL + 60,
    "leaseworkers": 600,
    "deliveries": 3_600,
    "doors": 600,
    "commands": 600,
    "list:": None,  # keys that workers write, and whose expiry the service sets at its next sweep
    "marks": 90 * 86_400,
    "op:": 30 * 86_400,
    "ops": None,
    "refused": None,
    "snoozed": 30 * 86_400 + 1,
    "signedout": 7 * 86_400 + 1,
    "types": None,
    "views": None,
}
"""Names that follow `asynq:x:` in our keys of no queue, and for how many seconds at most; None is any time.
"""


def _global_keys(client: RedisClient) -> list[str]:
    found = []
    for key in sorted(client.scan_iter(match="asynq:x:*", count=10_000)):
        name = key.decode().removeprefix("asynq:x:")
        kind = next((start for start in _GLOBAL_KEYS if name.startswith(start)), None)
        if kind is None:
            found.append(f"{key!r}: is not a known key")
            continue
        most = _GLOBAL_KEYS[kind]
        left = client.ttl(key)
        if most is not None and (left == -1 or left > most):
            found.append(f"{key!r}: lasts longer than {most} s")
    return found


def _read(client: RedisClient) -> dict[str, _Queue]:
    names = sorted(client.scan_iter(match="asynq:{*", count=10_000))
    pipeline = client.pipeline(transaction=False)
    for key in names:
        pipeline.type(key)
        pipeline.ttl(key)
    kinds = pipeline.execute()
    for key, kind in zip(names, kinds[::2], strict=True):
        _ask_value(pipeline, key, kind)
    queues: dict[str, _Queue] = {}
    for key, ttl, value in zip(names, kinds[1::2], pipeline.execute(), strict=True):
        match = _QUEUE_KEY.fullmatch(key.decode())
        assert match, key
        if value is None:
            continue  # it has expired since its name was read
        queue = queues.setdefault(match[1], _Queue(queue_keys(match[1])))
        queue.values[match[2]] = _decoded(match[2], value)
        queue.ttls[match[2]] = ttl
    for queue in queues.values():
        for name, ids in queue.collections():
            for task_id in ids:
                queue.places[task_id].append(name)
    return queues


def _ask_value(pipeline: Any, key: bytes, kind: bytes) -> None:
    match kind:
        case b"list":
            pipeline.lrange(key, 0, -1)
        case b"zset":
            pipeline.zrange(key, 0, -1, withscores=True)
        case b"hash":
            pipeline.hgetall(key)
        case b"set":
            pipeline.smembers(key)
        case b"stream":
            pipeline.xrange(key)
        case _:
            pipeline.get(key)


def _decoded(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key.decode(): text for key, text in value.items()}
    if isinstance(value, set):
        return {member.decode() for member in value}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {member.decode(): score for member, score in value}
    if isinstance(value, list):
        return [member.decode() for member in value]
    return value


def _unknown_keys(queue: _Queue) -> Iterator[str]:
    for name in queue.values:
        known = name in _PLAIN or name.startswith(("t:", "g:", "unique:", "x:")) or _DAY.fullmatch(name)
        if not known:
            yield f"key {name!r} is none of Asynq's or ours"


def _places(queue: _Queue) -> Iterator[str]:
    for task_id, names in queue.places.items():
        if len(names) > 1:
            yield f"I2 {task_id} is in {', '.join(sorted(names))}"
        if queue.task(task_id) is None:
            yield f"I1 {task_id} is in {names[0]} and has no hash"
    for task_id, fields in queue.tasks():
        names = queue.places.get(task_id, [])
        state = fields.get("state", b"").decode()
        if not names:
            yield f"I4 {task_id} has a hash in state {state!r} and is in no collection"
        for name in names:
            if state != ("aggregating" if name.startswith("g:") else name):
                yield f"I3 {task_id} is in {name} and its hash says {state!r}"


def _fields(queue: _Queue) -> Iterator[str]:
    for task_id, fields in queue.tasks():
        for missing in sorted({"msg", "state"} - fields.keys()):
            yield f"I1 {task_id} has no field {missing}"
        for unknown in sorted(fields.keys() - _FIELDS - _OWN_FIELDS):
            yield f"{task_id} has the unknown field {unknown}"
        state = fields.get("state", b"")
        if (state == b"pending") != ("pending_since" in fields):
            yield f"I8 {task_id} is {state.decode()} and pending_since is {fields.get('pending_since')!r}"
        if "x:attempt" in fields and state != b"active":
            yield f"{task_id} is {state.decode()} and has an x:attempt"
        if "x:group" in fields and state != b"scheduled":
            yield f"{task_id} is {state.decode()} and has an x:group"
        if "x:attempts" in fields and not 1 <= len(decode_attempts(fields["x:attempts"])) <= 10:
            yield f"{task_id} has the attempts {fields['x:attempts']!r}"
        if "x:progress" in fields and decode_progress(fields["x:progress"]) is None:
            yield f"{task_id} has the progress {fields['x:progress']!r}"
        ended = state in {b"retry", b"archived", b"completed"}
        for lost in {"x:crashes", "x:lapses"} & fields.keys() if ended else ():
            yield f"{task_id} is {state.decode()} and has an {lost}"


def _endings(queue: _Queue) -> Iterator[str]:
    """Check callbacks of tasks, entries of the outbox, and markers of tasks that are enqueued once."""
    for task_id, fields in queue.tasks():
        try:
            decode_callback(fields.get("x:finished", NO_CALLBACK))
        except ValueError:
            yield f"{task_id} has the x:finished {fields['x:finished']!r}"
        if "x:finished" in fields and "x:callbacks" not in queue.values:
            yield f"{task_id} has an x:finished, and there is no x:callbacks"
        if "x:ends" in fields and ("x:finished" not in fields or not fields["x:ends"].isdigit()):
            yield f"{task_id} has the x:ends {fields['x:ends']!r}"
    for address, entry in queue.values.get("x:outbox", {}).items():
        try:
            decode_ending(entry)
        except ValueError:
            yield f"the outbox has {entry!r} at {address}"
    for name in queue.values:
        if name.startswith("x:once:") and queue.ttls[name] < 0:
            yield f"marker {name} never expires"


def _messages(queue: _Queue) -> Iterator[str]:
    for task_id, fields in queue.tasks():
        try:
            message = decode_task_message(fields.get("msg", b""))
        except UndecodableMessageError:
            # Such a task is kept as it is, in the archive and nowhere else for long.
            if fields.get("state") not in {b"archived", b"active", b"pending"}:
                yield f"I6 the message of {task_id} cannot be decoded"
            continue
        if (message.id, message.queue) != (task_id, queue.keys.queue):
            yield f"I6 the message of {task_id} says {message.id} in queue {message.queue}"
        if fields.get("unique_key", b"").decode() != message.unique_key:
            yield f"{task_id} has unique_key {fields.get('unique_key')!r}, its message {message.unique_key!r}"
        group = fields.get("x:group", b"") or fields.get("group", b"")
        if group.decode() != message.group_key:
            yield f"{task_id} has group {group!r}, its message {message.group_key!r}"
        if not 0 <= message.retried <= message.retry:
            yield f"I10 {task_id} was retried {message.retried} times of {message.retry}"


def _leases(queue: _Queue) -> Iterator[str]:
    active, leases = set(queue.values.get("active", ())), set(queue.values.get("lease", ()))
    for task_id in sorted(active - leases):
        yield f"I5 {task_id} is active without a lease"
    for task_id in sorted(leases - active):
        yield f"I5 {task_id} has a lease and is not active"


def _groups(queue: _Queue) -> Iterator[str]:
    sets = {
        queue_key.removeprefix(queue.keys.group_prefix)
        for queue_key in queue.values.get("aggregation_sets", {})
    }
    listed = queue.values.get("groups", set())
    for task_id, fields in queue.tasks():
        if fields.get("state") == b"aggregating" and not fields.get("group"):
            yield f"I7 {task_id} is aggregating and has no group"
    for name in (name.removeprefix("g:") for name in queue.values if name.startswith("g:")):
        group = name.rpartition(":")[0] if name in sets else name
        if name not in sets and name not in listed:
            yield f"I7 group {name} has tasks and is not in groups"
        for task_id in queue.values[f"g:{name}"]:
            if (queue.task(task_id) or {}).get("group", b"").decode() != group:
                yield f"I7 {task_id} is in group {group} and its hash says otherwise"
    for name in sorted(sets):
        if name.startswith("asynq:") or not all(name.rpartition(":")[::2]):
            yield f"I7 {name!r} in aggregation_sets is not the key of a set"
        elif f"g:{name}" not in queue.values:
            yield f"I7 aggregation set {name} is empty"


def _locks(queue: _Queue, *, ids_return: bool) -> Iterator[str]:
    for task_id, fields in queue.tasks():
        rule = fields.get("x:unique_ttl")
        if rule is not None and not (_LOCK_RULE.fullmatch(rule) and fields.get("unique_key")):
            yield f"{task_id} has the x:unique_ttl {rule!r} and the unique_key {fields.get('unique_key')!r}"
    keys_of = {task_id: message.unique_key for task_id, message in queue.messages()}
    for name, value in queue.values.items():
        if not name.startswith(("unique:", "x:unique:")):
            continue
        if queue.ttls[name] < 0:
            yield f"I9 lock {name} never expires"
        owner, key = value.decode(), f"asynq:{{{queue.keys.queue}}}:{name}"
        # A message that names no lock has one that only time ends.
        if not ids_return and keys_of.get(owner, "") not in {"", key}:
            yield f"I9 lock {name} belongs to {owner}, whose message names {keys_of[owner]!r}"


def _counters(queue: _Queue) -> Iterator[str]:
    numbers = Counter(
        {name: int(value) for name, value in queue.values.items() if name in {"processed", "failed"}}
    )
    if numbers["failed"] > numbers["processed"]:
        yield f"I11 {numbers['failed']} failed of {numbers['processed']} processed"
    for name, value in queue.values.items():
        if not _DAY.fullmatch(name):
            continue
        if queue.ttls[name] < 0:
            yield f"I11 counter {name} never expires"
        kind, _, day = name.partition(":")
        if kind == "failed" and int(value) > int(queue.values.get(f"processed:{day}", 0)):
            yield f"I12 {name} is {int(value)}, more than processed"


def _task_types(client: RedisClient) -> Iterator[str]:
    types = client.hgetall(TASK_TYPES_KEY) if client.type(TASK_TYPES_KEY) == b"hash" else {}
    if types and client.ttl(TASK_TYPES_KEY) < 0:
        yield f"{TASK_TYPES_KEY} never expires"
    for name, value in types.items():
        if decode_task_type(name.decode(), value) is None:
            yield f"{TASK_TYPES_KEY} says {value!r} of {name!r}"


def _limits(queue: _Queue) -> Iterator[str]:
    limits = queue.values.get("x:limits", {})
    for unknown in sorted(limits.keys() - _SETTINGS):
        yield f"x:limits has the unknown field {unknown}"
    for name, value in limits.items():
        if value not in {b"0", b"1"} if name == "ordered" else not float(value) > 0:
            yield f"x:limits has {name} {value!r}"
    if len(_RATE & limits.keys()) not in {0, len(_RATE)}:
        yield f"x:limits has a part of a rate: {sorted(_RATE & limits.keys())}"
    for name, value in queue.values.get("x:objectives", {}).items():
        if name != "wait" or not float(value) > 0:
            yield f"x:objectives has {name} {value!r}"
    if "x:bucket" in queue.values:
        for unknown in sorted(queue.values["x:bucket"].keys() - {"full_at", "turn"}):
            yield f"x:bucket has the unknown field {unknown}"
        if queue.ttls["x:bucket"] < 0:
            yield "x:bucket never expires"


def _attempt_counts(queue: _Queue) -> Iterator[str]:
    levels = {level.name: level for level in LEVELS}
    for name, types in queue.values.items():
        if not name.startswith("x:stats:"):
            continue
        level = levels.get(name.split(":")[2])
        if level is None or int(name.split(":")[3]) % level.chunk:
            yield f"{name} is not the key of a level and the start of a chunk"
            continue
        if queue.ttls[name] < 0:
            yield f"{name} never expires"
        if len(types) > MAX_COUNTED_TYPES + 1:
            yield f"{name} has {len(types)} types"
        for task_type, value in types.items():
            slots = [slot for slot, _ in unpack_records(value, level)]
            if not slots or slots != sorted(set(slots)):
                yield f"{name} has slots {slots} of type {task_type!r}"


def _events(queue: _Queue) -> Iterator[str]:
    if "x:events" not in queue.values:
        return
    if queue.ttls["x:events"] < 0:
        yield "the stream x:events never expires"
    for position, fields in queue.values["x:events"].items():
        event = json.loads(fields.get(b"event", b"{}"))
        if fields.keys() != {b"event"} or not {"kind", "queue", "at"} <= event.keys():
            yield f"event {position} is {fields}"


def _verdicts(queue: _Queue) -> Iterator[str]:
    if "x:verdicts" not in queue.values:
        return
    if queue.ttls["x:verdicts"] < 0:
        yield "x:verdicts never expires"
    verdicts = queue.values["x:verdicts"]
    if len(verdicts) > 20_000:
        yield f"x:verdicts has {len(verdicts)} members"
    for member in verdicts:
        token, verdict, task_id = [*member.split(" ", 2), "", ""][:3]
        if not (token.endswith("/leased") and verdict in set(Verdict) and task_id):
            yield f"x:verdicts has the member {member!r}"


def _scores(queue: _Queue) -> Iterator[str]:
    messages = dict(queue.messages())
    groups = [name for name in queue.values if name.startswith("g:")]
    for name in (*_SORTED_SETS, "lease", "aggregation_sets", *groups):
        for task_id, score in queue.values.get(name, {}).items():
            if score != int(score):
                yield f"the score of {task_id} in {name} is {score}, not a whole second"
            message = messages.get(task_id)
            if name == "completed" and message and score != message.completed_at + message.retention:
                yield f"I13 {task_id} is deleted at {score:.0f}, not when its retention ends"
            if name == "completed" and message and not message.retention:
                yield f"I13 {task_id} is completed without retention"
            if name == "archived" and message and score < message.last_failed_at:
                yield f"I13 {task_id} was archived before it failed"
