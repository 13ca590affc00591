"""Record the data that this release stores in Redis, to test later releases with them.

    python -m tools.record_release     writes tests/recorded/VERSION.json

The data are written through the public API, under a test kit whose clock is in the year 2096. So nothing that
is recorded has expired when it is read. Values are plain: a protobuf message is `hex:` and its bytes.
"""

from __future__ import annotations

import json
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import redis

from pyasynq import App, Queue, ServerConfig, Task, context, testing
from tools.wire_walk import database

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = ROOT / "tests" / "recorded"
START: Final = datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC)
CONFIG: Final = ServerConfig(
    queues={
        "default": 1,
        "crashes": 1,
        "paused": 1,
        "limited": 1,
        "groups": 1,
        "ordered": Queue(ordered=True),
    },
    group_max_size=2,
)
_MARK: Final = "pyasynq:testing"


class Recorded:
    """An app whose tasks fail while `failing` is set, with the ids of the tasks that ran."""

    def __init__(self) -> None:
        self.app = App("redis://nowhere.invalid")
        self.failing = True
        self.ran: list[str] = []
        self.app.task("record:add", result_ttl=864_000)(self.add)
        self.app.task("record:fail")(self.fail)
        self.app.task("record:tick")(self.tick)
        self.app.task("record:digest", queue="groups")(self.digest)
        self.app.aggregator(self.collect)
        self.app.schedule("@every 1h", Task("record:tick", b"{}", task_id="tick"))

    def add(self, a: int, b: int) -> int:
        self.ran.append(context().task_id)
        return a + b

    def fail(self, text: str) -> None:
        if self.failing:
            context().progress(1, 2, "half")
            raise RuntimeError(text)
        self.ran.append(context().task_id)

    def tick(self) -> None:
        self.ran.append("tick")

    def digest(self, ids: list[str]) -> None:
        self.ran.append("+".join(sorted(ids)))

    def collect(self, group: str, tasks: list[Task]) -> Task:
        del group
        ids = [json.loads(task.payload or b"")["text"] for task in tasks]
        return Task("record:digest", json.dumps({"ids": ids}).encode())


def fill(kit: testing.Kit) -> None:
    """Write tasks in every state, and every other kind of data that the release stores."""

    def put(kind: str, task_id: str, payload: bytes, **options: Any) -> None:
        kit.sync_client.enqueue(f"record:{kind}", payload, task_id=task_id, **options)

    put("add", "completed", b'{"a":1,"b":2}', retention=864_000)
    put("fail", "retry", b'{"text":"no route"}', headers={"trace": "t1"}, unique=864_000)
    put("fail", "archived", b'{"text":"no way"}', max_retry=0)
    put("fail", "head", b'{"text":"in order"}', queue="ordered")
    put("add", "behind", b'{"a":0,"b":0}', queue="ordered")
    kit.drain_sync(raises=False)
    put("fail", "active", b'{"text":"x"}', queue="crashes", unique=864_000)
    kit.crash_worker(queue="crashes")
    put("add", "pending", b'{"a":2,"b":2}', retention=864_000, headers={"trace": "t2"})
    put("add", "scheduled", b'{"a":3,"b":3}', process_in=3600)
    put("add", "unique", b'{"a":4,"b":4}', unique=864_000, process_in=7200)
    put("add", "named", b'{"a":5,"b":5}', unique=864_000, unique_key="k", until="start", process_in=7200)
    for member in ("m1", "m2"):
        put("fail", member, json.dumps({"text": member}).encode(), queue="groups", group="g")
    put("fail", "later", b'{"text":"m3"}', queue="groups", group="g", process_in=3600)
    put("add", "paused", b'{"a":6,"b":6}', queue="paused")
    kit.inspector.pause_queue("paused")
    kit.inspector.set_queue_limits("limited", rate=1, max_run=2)
    put("add", "limited", b'{"a":7,"b":7}', queue="limited")


def restore(client: redis.Redis, recorded: dict[str, Any]) -> None:
    """Restore recorded keys into an empty database."""
    for key, entry in recorded.items():
        value = entry["value"]
        match entry["type"]:
            case "string":
                client.set(key, _data(value))
            case "list":
                client.rpush(key, *map(_data, value))
            case "set":
                client.sadd(key, *map(_data, value))
            case "zset":
                client.zadd(key, {_data(item): score for item, score in value.items()})
            case "hash":
                client.hset(key, mapping={field: _data(data) for field, data in value.items()})
        if "ends at" in entry:
            client.expireat(key, entry["ends at"])
        if "seconds left" in entry:
            client.expire(key, entry["seconds left"])


def _data(text: str) -> bytes:
    return bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()


def main() -> int:
    """Write the file of this version; return the exit code."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    path = FOLDER / f"{version}.json"
    if path.exists() and "--again" not in sys.argv[1:]:
        print(f"{path.name} exists, and what is released stays as it is; --again for one that is not out yet")
        return 1
    recorded = Recorded()
    with (
        testing.use(recorded.app, config=CONFIG, start=START) as kit,
        redis.Redis.from_url(kit.url) as client,
    ):
        kit.advance_sync(hours=1, raises=False)
        fill(kit)
        client.delete(_MARK)
        content = {"version": version, "now": kit.clock.now().seconds, "database": database(client)}
        client.set(_MARK, "")
    # Tracebacks name the folder in which this was run.
    text = json.dumps(content, indent=1, sort_keys=True).replace(f"{ROOT}/", "")
    path.write_text(text + "\n", "utf-8")
    print(f"wrote {path.name}: {len(content['database'])} keys")
    return 0


if __name__ == "__main__":
    sys.exit(main())
