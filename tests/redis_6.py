"""Replacements for features that Redis 6.2 lacks, and version checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.invariants import RedisClient

_NEXT = 7


def is_redis_6(client: RedisClient) -> bool:
    """Return whether the server is older than Redis 7; every Valkey calls itself a Redis 7."""
    version: str = client.info("server")["redis_version"]
    return int(version.partition(".")[0]) < _NEXT


def expiry_of(client: RedisClient, key: str | bytes) -> int:
    """Return the Unix time in milliseconds at which a key expires; negative for never."""
    if not is_redis_6(client):
        milliseconds: int = client.pexpiretime(key)
        return milliseconds
    # Redis 6.2 only reports the remaining time; the expiry, a whole second, is found by rounding.
    seconds, microseconds = client.time()
    left: int = client.pttl(key)
    return left if left < 0 else round((seconds * 1_000 + microseconds / 1_000 + left) / 1_000) * 1_000
