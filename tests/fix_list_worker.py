"""A worker with only a Redis client, as docs/lists.md describes: a class for tests, and a program.

As a program: `python -m tests.fix_list_worker URL TYPE SHARD RECORD`. For each task that it begins, it writes
the task's id and its own process id to the end of the file RECORD.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from tests.invariants import RedisClient


class ListWorker:
    """A worker of one shard; it sends a heartbeat only when a test calls `beat`."""

    def __init__(self, client: RedisClient, task_type: str = "resize", shard: int = 0, size: int = 1) -> None:
        self.client: Any = client
        self.name = secrets.token_hex(6)
        self.list = f"asynq:x:list:{{{task_type}:{shard}}}"
        self.held = f"{self.list}:held:{self.name}"
        self.size = size

    def beat(self) -> None:
        """Send a heartbeat."""
        with self.client.pipeline() as pipe:
            pipe.sadd(f"{self.list}:workers", self.name)
            pipe.set(f"{self.list}:alive:{self.name}", self.size, ex=15)
            pipe.execute()

    def take(self, seconds: float = 30) -> tuple[bytes, dict[str, Any]] | None:
        """Return an entry, as bytes and decoded; None if none comes in this time."""
        until = time.monotonic() + seconds
        while True:
            self.beat()
            entry = self.client.blmove(self.list, self.held, 1, "LEFT", "RIGHT")
            if entry is not None:
                return entry, json.loads(entry)
            if time.monotonic() > until:
                return None

    def reply(self, entry: bytes, act: str, **fields: Any) -> bytes:
        """Reply to an entry; return the reply."""
        reply = json.dumps({"token": json.loads(entry)["token"], "act": act, **fields}).encode()
        self.push_reply(entry, reply)
        return reply

    def push_reply(self, entry: bytes, reply: bytes) -> None:
        """Remove an entry, and push a reply to it."""
        with self.client.pipeline() as pipe:
            pipe.lrem(self.held, 1, entry)
            pipe.rpush(f"{self.list}:replies", reply)
            pipe.execute()

    def die(self) -> None:
        """Delete the heartbeat, as its expiry does after a kill."""
        self.client.delete(f"{self.list}:alive:{self.name}")

    def end(self) -> None:
        """End the worker, which holds no entry."""
        self.client.srem(f"{self.list}:workers", self.name)
        self.die()


def main() -> None:
    """Work until the process is killed."""
    url, task_type, shard, record = sys.argv[1:]
    worker = ListWorker(redis.Redis.from_url(url), task_type, int(shard))
    parent = os.getpid()
    if not os.fork():
        while os.getppid() == parent:
            worker.beat()
            time.sleep(1)
        # Delete the heartbeat, so that a test need not wait until it expires.
        worker.die()
        os._exit(0)
    with Path(record).open("a", encoding="utf-8") as file:
        while True:
            taken = worker.take()
            if taken is None:
                continue
            entry, task = taken
            file.write(f"{task['id']} {parent}\n")
            file.flush()
            time.sleep(0.01)
            worker.reply(entry, "complete", result=task["id"])


if __name__ == "__main__":
    main()
