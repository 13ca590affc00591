"""Snapshots of a database, to be compared before and after an action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.invariants import RedisClient


def snapshot(client: RedisClient) -> dict[str, Any]:
    """Return all keys: value, and whether it expires. DUMP is not used: its order of hash fields varies."""
    read = {
        b"list": lambda key: client.lrange(key, 0, -1),
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"hash": client.hgetall,
        b"set": client.smembers,
        b"string": client.get,
        b"stream": client.xrange,
    }
    keys = client.keys("*")
    return {key.decode(): (client.ttl(key) >= 0, read[client.type(key)](key)) for key in keys}
