"""Write `docs/wire-vectors.json`: what the page `docs/wire-format.md` says, for a joiner's tests to read.

    PYTHONPATH=src:. python -m tools.wire_vectors            write the file
    PYTHONPATH=src:. python -m tools.wire_vectors --check    write nothing; exit 1 when it is not current

Everything is computed by pyasynq's own code, except the messages that real Asynq 0.26 left in Redis: those
are taken from `tests/golden`. The walk runs on a server that the tool starts and ends.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor import FieldDescriptor

from pyasynq._broker.enqueueing.compose import compose
from pyasynq._clock import Instant
from pyasynq._cron import parse_cron
from pyasynq._go_duration import format_go_duration
from pyasynq._wire import asynq_pb2, constants, keys
from pyasynq._wire.engine_text import encode_engine
from pyasynq._wire.history import encode_attempt, encode_progress
from pyasynq._wire.keys import hash_slot, queue_keys
from pyasynq._wire.messages import (
    SchedulerEnqueueEvent,
    SchedulerEntry,
    ServerInfo,
    WorkerInfo,
    encode_task_message,
    new_task_message,
)
from pyasynq._wire.options_text import OptionName, format_option
from pyasynq.limits import QueueLimits
from pyasynq.task import Task, TaskProgress
from tools.wire_walk import walk_on_own_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from google.protobuf.message import Message

    from pyasynq._wire.messages import TaskMessageFields

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = ROOT / "docs" / "wire-vectors.json"
GOLDEN: Final = ROOT / "tests" / "golden" / "asynq-0.26.json"

NOON: Final = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
"""Unix time 1,700,000,000."""

MESSAGES: Final[dict[str, TaskMessageFields]] = {
    "the smallest that clients write": {
        "type": "t",
        "id": "i",
        "queue": "q",
        "retry": 25,
        "timeout": 1800,
    },
    "a group, and headers of which one is empty": {
        "type": "t",
        "id": "i",
        "queue": "q",
        "retry": 25,
        "timeout": 1800,
        "group_key": "g",
        "headers": {"a": "b", "c": ""},
    },
    "text that is not ASCII, and a payload that is not text": {
        "type": "größe",
        "payload": bytes([0, 255, 128]),
        "id": "日",
        "queue": "q",
    },
    "every field": {
        "type": "email:deliver",
        "payload": b'{"user_id":42}',
        "id": "one",
        "queue": "critical",
        "retry": 3,
        "retried": 2,
        "error_msg": "no route to host",
        "timeout": 90,
        "deadline": 1_924_992_000,
        "unique_key": queue_keys("critical").unique("email:deliver", b'{"user_id":42}'),
        "last_failed_at": 1_700_000_000,
        "retention": 7200,
        "completed_at": 1_700_000_060,
        "group_key": "user:1",
        "headers": {"traceparent": "00-abc-def-01"},
    },
    "a negative number takes ten bytes": {"type": "t", "id": "i", "queue": "q", "retry": -1},
}

RECORDS: Final = {
    "a server of Asynq": ServerInfo(
        host="h",
        pid=7,
        server_id="s",
        concurrency=4,
        queues={"default": 1},
        strict_priority=False,
        status="active",
        start_time=NOON,
        active_worker_count=0,
    ),
    "a server of pyasynq, with field 1001": ServerInfo(
        host="h",
        pid=7,
        server_id="s",
        concurrency=4,
        queues={"default": 1},
        strict_priority=True,
        status="stopped",
        start_time=NOON,
        active_worker_count=2,
        engine="pyasynq",
    ),
    "a worker": WorkerInfo(
        host="h",
        pid=7,
        server_id="s",
        task_id="i",
        task_type="t",
        task_payload=b"{}",
        queue="q",
        start_time=NOON,
        deadline=NOON + timedelta(minutes=30),
    ),
    "an entry that has not fired": SchedulerEntry(
        id="e",
        spec="@every 30s",
        task_type="t",
        task_payload=b"",
        enqueue_options=('Queue("low")', "MaxRetry(3)"),
        next_enqueue_time=NOON,
        prev_enqueue_time=None,
    ),
    "an enqueue": SchedulerEnqueueEvent(task_id="x", enqueue_time=NOON + timedelta(microseconds=5)),
}

LOCKS: Final = [
    ("default", "reindex", None),
    ("default", "reindex", b""),
    ("default", "reindex", b"{}"),
    ("critical", "email:deliver", b'{"user_id":42}'),
    ("größe", "a:b", bytes([0, 255])),
]

CRON: Final = [
    ("*/5 * * * *", "2023-11-14T22:13:20Z"),
    ("0 9 * * mon-fri", "2023-11-17T09:00:00Z"),
    ("0 0 13 * fri", "2023-11-14T00:00:00Z"),
    ("0 0 13 * */2", "2023-11-14T00:00:00Z"),
    ("0 0 */2 * fri", "2023-11-14T00:00:00Z"),
    ("0 0 * * 5", "2023-11-14T00:00:00Z"),
    ("0 0 29 2 ?", "2023-11-14T00:00:00Z"),
    ("0 0 31 2 *", "2023-11-14T00:00:00Z"),
    ("@weekly", "2023-11-14T22:13:20Z"),
    ("@every 1h30m", "2023-11-14T22:13:20Z"),
    ("CRON_TZ=Europe/Berlin 0 9 * * *", "2023-11-14T22:13:20Z"),
]

REFUSED_CRON: Final = [
    "* * * *",
    "* * * * * *",
    "* * * * 7",
    "60 * * * *",
    "5-1 * * * *",
    "*/0 * * * *",
    "@often",
]

OPTIONS: Final[list[tuple[OptionName, Any]]] = [
    (OptionName.MAX_RETRY, 3),
    (OptionName.QUEUE, "low"),
    (OptionName.TASK_ID, 'say "hi"\n'),
    (OptionName.TIMEOUT, timedelta(seconds=90)),
    (OptionName.DEADLINE, NOON),
    (OptionName.UNIQUE, timedelta(hours=1)),
    (OptionName.PROCESS_AT, NOON.replace(day=4)),
    (OptionName.PROCESS_IN, timedelta(milliseconds=1500)),
    (OptionName.RETENTION, timedelta(days=1)),
    (OptionName.GROUP, "user (1)"),
    (OptionName.HEADER, ("k", "a)<b")),
]


def build() -> dict[str, Any]:
    """Return the test vectors, except the walk."""
    return {
        "numbers": numbers(),
        "keys": list(key_vectors()),
        "locks": list(lock_vectors()),
        "slots": {
            key: hash_slot(key) for key in ("asynq:{default}:pending", "asynq:{größe}:pending", "default")
        },
        "messages": [*own_messages(), *messages_of_asynq()],
        "must be read as well": list(odd_messages()),
        "dispatch": list(dispatch_vectors()),
        "options": [
            {"name": name.value, "value": _plain(value), "text": format_option(name, value)}
            for name, value in OPTIONS
        ],
        "durations": {
            str(nanoseconds): format_go_duration(nanoseconds)
            for nanoseconds in (0, 5, 100_000, 1_500_000, 1_500_000_000, 90_000_000_000, 3_600_000_000_000)
        },
        "cron": [*cron_vectors(), *({"spec": spec, "error": True} for spec in REFUSED_CRON)],
        "additions": additions(),
    }


def numbers() -> dict[str, int]:
    """Return the numbers that all peers share."""
    return {
        "lease": constants.LEASE_SECONDS,
        "lease grace": constants.LEASE_GRACE_SECONDS,
        "day counters": constants.STATISTICS_SECONDS,
        "archive age": constants.ARCHIVE_DAYS,
        "archive size": constants.ARCHIVE_LIMIT,
        "aggregation set": constants.AGGREGATION_SET_SECONDS,
        "server record": constants.SERVER_RECORD_SECONDS,
        "scheduler entries": constants.SCHEDULER_ENTRIES_SECONDS,
        "scheduler history": constants.SCHEDULER_HISTORY_LIMIT,
    }


def key_vectors() -> Iterator[dict[str, Any]]:
    """Yield vectors of composed key names."""
    queue = queue_keys("default")
    day = NOON.date()
    put_together = {
        "task": queue.task("42cf52dd"),
        "pending": queue.pending,
        "group": queue.group("user:1"),
        "aggregation set": queue.aggregation_set("user:1", "0ad1ce62-accc-44bb-b776-5abe7d5df057"),
        "processed that day": queue.processed_on(day),
        "failed that day": queue.failed_on(day),
        "server": keys.server_key("web-1", 42, "52f7f9b1-3475-407c-84bd-6fc5a5f8f784"),
        "workers": keys.workers_key("web-1", 42, "52f7f9b1-3475-407c-84bd-6fc5a5f8f784"),
        "scheduler": keys.scheduler_key("web-1:42:ace2b804-f27c-4f23-b0cc-bb1b3b54128d"),
        "scheduler history": keys.scheduler_history_key("ce4fc5bf-a001-4337-a84a-65df840720fc"),
        "semaphore": keys.semaphore_key("renderer"),
        "pending of a queue with a name that is not ASCII": queue_keys("größe").pending,
    }
    for name, key in put_together.items():
        yield {"name": name, "key": key, "hex": key.encode().hex(), "slot": hash_slot(key)}


def lock_vectors() -> Iterator[dict[str, Any]]:
    """Yield keys of uniqueness locks; a null payload is a missing one, which differs from an empty one."""
    for queue, task_type, payload in LOCKS:
        key = queue_keys(queue).unique(task_type, payload)
        hexadecimal = None if payload is None else payload.hex()
        yield {"queue": queue, "type": task_type, "payload": hexadecimal, "key": key}


def own_messages() -> Iterator[dict[str, Any]]:
    """Yield messages that pyasynq writes."""
    for name, fields in MESSAGES.items():
        message = new_task_message(**fields)
        yield _vector(f"task: {name}", message, encode_task_message(message), "pyasynq")
    for name, record in RECORDS.items():
        data = record.encode()
        message_class = getattr(asynq_pb2, type(record).__name__)
        yield _vector(f"record: {name}", message_class.FromString(data), data, "pyasynq")


def messages_of_asynq() -> Iterator[dict[str, Any]]:
    """Yield messages that Asynq wrote, each once, named by the state of the database and the key."""
    kinds = {
        "asynq:servers:": "ServerInfo",
        "asynq:workers:": "WorkerInfo",
        "asynq:schedulers:": "SchedulerEntry",
        "asynq:scheduler_history:": "SchedulerEnqueueEvent",
    }
    seen = set()
    for snapshot in json.loads(GOLDEN.read_text("utf-8")):
        for entry in snapshot["entries"]:
            key, value = entry["key"], entry["value"]
            if ":t:" in key:
                name, kind, data = key, "TaskMessage", base64.b64decode(value["msg"])
            else:
                kind = next((kinds[prefix] for prefix in kinds if key.startswith(prefix)), "")
                name, data = kind, _first_value(value)
            if kind and data not in seen:
                seen.add(data)
                message = getattr(asynq_pb2, kind).FromString(data)
                yield _vector(f"{snapshot['name']}: {name}", message, data, "Asynq 0.26")


def odd_messages() -> Iterator[dict[str, Any]]:
    """Yield encodings that no current peer writes, but that all must read."""
    plain = new_task_message(**MESSAGES["the smallest that clients write"])
    with_headers = new_task_message(**MESSAGES["a group, and headers of which one is empty"])
    first, rest = "0a0174", encode_task_message(plain)[3:].hex()
    variants = {
        "fields in another order": (rest + first, plain),
        "an unknown field (99)": (first + rest + "9a06026869", plain),
        "a field that is written twice: the last one counts": ("0a0178" + first + rest, plain),
        "a zero that is written out": (first + rest + "3000", plain),
        "headers in another order, an empty value left out": (
            first + rest + "7201677a030a01637a060a0161120162",
            with_headers,
        ),
    }
    for name, (hexadecimal, message) in variants.items():
        yield _vector(name, message, bytes.fromhex(hexadecimal), "hand")


def dispatch_vectors() -> Iterator[dict[str, Any]]:
    """Yield vectors of enqueues: the list or set, the score, and the seconds that the lock holds."""
    now = Instant(1_700_000_000, 250_000)
    for options in (
        {},
        {"unique": 600},
        {"unique": 1.5},
        {"process_in": 60},
        {"process_in": 60, "unique": 600},
        {"group": "g"},
        {"group": "g", "process_in": 60},
    ):
        composed = compose(Task("t", b"", task_id="i"), options, now=now)
        yield {
            "now": now.timestamp,
            "options": options,
            "state": composed.state.value,
            "score": composed.score or None,
            "lock seconds": composed.lock_ttl or None,
            "hex": composed.encoded.hex(),
        }


def cron_vectors() -> Iterator[dict[str, Any]]:
    """Yield cron expressions with their next three ticks, in UTC; fewer if there are no more."""
    for spec, after in CRON:
        moment, ticks = datetime.fromisoformat(after), list[str]()
        schedule = parse_cron(spec)
        while len(ticks) < 3 and (tick := schedule.next_after(moment)):
            ticks.append(tick.strftime("%Y-%m-%dT%H:%M:%SZ"))
            moment = tick
        yield {"spec": spec, "after": after, "ticks": ticks}


def additions() -> dict[str, str]:
    """Return texts of pyasynq's own fields."""
    attempt = encode_attempt(
        "retried", "ValueError: no", server="s", started_at=1_700_000_000.25, ended_at=1_700_000_001
    )
    limits = {
        "deliver": QueueLimits(max_run=1),
        "mail": QueueLimits(rate=50.0, period=1.0, burst=10),
        "ledger": QueueLimits(ordered=True),
    }
    return {
        "one line of x:attempts": attempt.decode(),
        "x:progress": encode_progress(TaskProgress(done=3, total=10, note="parsing", at=NOON)).decode(),
        "field 1001 of ServerInfo": encode_engine("pyasynq", {}),
        "field 1001 of ServerInfo, with limits": encode_engine("pyasynq", limits),
    }


def _first_value(value: Any) -> bytes:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        value = value[0]["member"] if isinstance(value[0], dict) else value[0]
    return base64.b64decode(value)


def _vector(name: str, message: Message, data: bytes, written_by: str) -> dict[str, Any]:
    return {
        "name": name,
        "message": message.DESCRIPTOR.name,
        "written by": written_by,
        "fields": fields_of(message),
        "hex": data.hex(),
    }


def fields_of(message: Message) -> dict[str, Any]:
    """Return a message's fields as JSON: bytes in hexadecimal, a Timestamp as seconds and nanoseconds."""
    return {field.name: _json_value(field, value) for field, value in message.ListFields()}


def _json_value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None and field.message_type.name == "Timestamp":
        return {"seconds": value.seconds, "nanos": value.nanos}
    if field.message_type is not None:
        return dict(sorted(value.items()))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return value.hex()
    return list(value) if field.is_repeated else value


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return value


def to_text(vectors: Mapping[str, Any]) -> str:
    """Return the file: JSON with a vector on each line."""
    parts = []
    for name, value in vectors.items():
        items = (
            [f"  {json.dumps(item, ensure_ascii=False)}" for item in value] if isinstance(value, list) else []
        )
        if isinstance(value, dict):
            items = [
                f"  {json.dumps(key)}: {json.dumps(item, ensure_ascii=False)}" for key, item in value.items()
            ]
        brackets = "[]" if isinstance(value, list) else "{}"
        parts.append(f" {json.dumps(name)}: {brackets[0]}\n" + ",\n".join(items) + f"\n {brackets[1]}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    """Write the file, or say whether it is current."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    text = to_text({**build(), "walk": walk_on_own_server()})
    if not arguments.check:
        FILE.write_text(text, "utf-8")
        return 0
    if FILE.read_text("utf-8") == text:
        return 0
    print(f"{FILE.relative_to(ROOT)} is not current: python -m tools.wire_vectors", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
