"""One Redis database of a test: read whole, made older, and copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import redis

from pyasynq._wire.messages import copy_task_message, decode_task_message, encode_task_message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.invariants import RedisClient

_DUMP = """
local dump = {}
for _, key in ipairs(redis.call('KEYS', 'asynq:*')) do
  local kind = redis.call('TYPE', key).ok
  local value
  if kind == 'hash' then
    value = redis.call('HGETALL', key)
  elseif kind == 'zset' then
    value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'list' then
    value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'set' then
    value = redis.call('SMEMBERS', key)
  elseif kind == 'stream' then
    value = redis.call('XLEN', key)
  else
    value = redis.call('GET', key)
  end
  table.insert(dump, {key, kind, value, redis.call('PTTL', key)})
end
return dump
"""

_TIMED = (":scheduled", ":retry", ":archived", ":completed", ":lease", ":aggregation_sets")
_TIMES = ("deadline", "last_failed_at", "completed_at")
_OURS = b"x:"


class Entry(NamedTuple):
    """One key: pairs of a hash or a sorted set as a dictionary; its TTL in seconds, None for ever."""

    kind: str
    value: Any
    ttl: float | None


class Database:
    """One of the server's databases."""

    def __init__(self, url: str, number: int) -> None:
        separator = "&" if "?" in url else "?"
        self.url = (
            f"{url}{separator}db={number}" if url.startswith("unix") else f"{url.rstrip('/0')}/{number}"
        )
        self.number = number
        self.client: RedisClient = redis.Redis.from_url(self.url)
        self._dump = self.client.register_script(_DUMP)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def clear(self) -> None:
        """Forget everything but the scripts."""
        self.client.flushdb()

    def read(self) -> dict[str, Entry]:
        """Return all keys of Asynq's and ours."""
        entries = {}
        for key, kind, value, milliseconds in self._dump():
            ttl = None if milliseconds < 0 else milliseconds / 1000
            entries[key.decode()] = Entry(kind.decode(), _parts(kind, value), ttl)
        return entries

    def age(self, seconds: int) -> None:
        """Let time pass: move all times in the database into the past.

        Counters stay, since their days are those of the calendar.
        """
        pipeline = self.client.pipeline(transaction=False)
        for key, entry in self.read().items():
            if entry.kind == "zset" and (key.endswith(_TIMED) or ":g:" in key):
                for member in entry.value:
                    pipeline.zincrby(key, -seconds, member)
            elif ":unique:" in key and entry.ttl is not None:
                left = entry.ttl - seconds
                pipeline.pexpire(key, max(0, int(left * 1000)))
            elif entry.kind == "hash" and ":t:" in key:
                _age_task(pipeline, key, entry.value, seconds)
        pipeline.execute()

    def renew(self, held: Iterable[tuple[str, str]], until: int) -> None:
        """Do what the heartbeats of living workers do for the tasks that they run."""
        pipeline = self.client.pipeline(transaction=False)
        for queue, task_id in held:
            pipeline.zadd(f"asynq:{{{queue}}}:lease", {task_id: until}, xx=True)
        pipeline.execute()

    def copy_from(self, other: Database) -> None:
        """Become like another database, without the keys and fields that Asynq does not have."""
        self.clear()
        pipeline = other.client.pipeline(transaction=False)
        entries = {key: entry for key, entry in other.read().items() if not _is_our_key(key)}
        for key in entries:
            pipeline.execute_command("COPY", key, key, "DB", self.number)
        pipeline.execute()
        pipeline = self.client.pipeline(transaction=False)
        for key, entry in entries.items():
            ours = [name for name in entry.value if name.startswith(_OURS)] if entry.kind == "hash" else []
            if ours:
                pipeline.hdel(key, *ours)
        pipeline.execute()


def _parts(kind: bytes, value: Any) -> Any:
    if kind == b"hash":
        return dict(zip(value[::2], value[1::2], strict=True))
    if kind == b"zset":
        return {member: float(score) for member, score in zip(value[::2], value[1::2], strict=True)}
    return value


def _is_our_key(key: str) -> bool:
    return "}:x:" in key


def _age_task(pipeline: Any, key: str, fields: dict[bytes, bytes], seconds: int) -> None:
    changed: dict[str, Any] = {}
    if since := fields.get(b"pending_since"):
        changed["pending_since"] = int(since) - seconds * 10**9
    if data := fields.get(b"msg"):
        message = copy_task_message(decode_task_message(data))
        for name in _TIMES:
            if value := getattr(message, name):
                setattr(message, name, value - seconds)
        aged = encode_task_message(message)
        if aged != data:
            changed["msg"] = aged
    if changed:
        pipeline.hset(key, mapping=changed)
