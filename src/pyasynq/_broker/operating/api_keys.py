"""API keys in Redis: a hash of id and JSON, changed by compare-and-set; and their token buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import time_arguments
from pyasynq._broker.scripts import API_KEY_SPEND, API_KEY_WRITE
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import API_KEYS_KEY, api_key_bucket_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant

MAX_API_KEYS: Final = 1_000
"""Maximum number of API keys, including expired ones that are not deleted yet."""
STORED: Final = 1
CHANGED: Final = 0
"""Result of a compare-and-set: the record was changed after it was read."""
_AT_ONCE: Final = 100


def write_api_key(key_id: str, expected: bytes, record: bytes) -> Plan[int]:
    """Store the record of a key if the stored one is `expected` (compare-and-set); empty means none.

    Return `STORED`, `CHANGED`, or -1 if there are `MAX_API_KEYS` keys already.
    """
    args = (key_id, expected, MAX_API_KEYS, record)
    written: int = yield ScriptCall(API_KEY_WRITE, (API_KEYS_KEY,), args, Replay.SAFE)
    return written


def read_api_key(key_id: str) -> Plan[bytes | None]:
    """Return the record of an API key; None if the key does not exist."""
    record: bytes | None = yield CommandCall(("HGET", API_KEYS_KEY, key_id), API_KEYS_KEY, Replay.SAFE)
    return record


def read_api_keys() -> Plan[dict[str, bytes]]:
    """Return the record of each API key, by id; read 100 at a time, so that no reply takes long."""
    names = yield CommandCall(("HKEYS", API_KEYS_KEY), API_KEYS_KEY, Replay.SAFE)
    found: dict[str, bytes] = {}
    for first in range(0, len(names), _AT_ONCE):
        part: Sequence[bytes] = names[first : first + _AT_ONCE]
        values = yield CommandCall(("HMGET", API_KEYS_KEY, *part), API_KEYS_KEY, Replay.SAFE)
        found |= {
            decode_name(name): value for name, value in zip(part, values, strict=True) if value is not None
        }
    return found


def spend_request(
    key_id: str, limits: tuple[float, float, int], now: Instant | None
) -> Plan[tuple[int, int, int, int]]:
    """Take a token from an API key's token bucket; `limits` are requests per period, period and burst.

    Return 1 if there was a token (else 0), the number of tokens left, the microseconds until the next token,
    and the microseconds until the bucket is full.
    A call that is resent after a lost reply may take a second token, so the rate is never exceeded.
    """
    requests, period, burst = limits
    bucket = api_key_bucket_key(key_id)
    args = (*time_arguments(now), repr(requests), repr(period), burst)
    taken, left, wait, fill = yield ScriptCall(API_KEY_SPEND, (bucket,), args, Replay.SAFE)
    return taken, left, wait, fill


def remove_api_key(key_id: str) -> Plan[bool]:
    """Remove an API key, also while Redis is full; return whether it existed."""
    removed: int = yield CommandCall(("HDEL", API_KEYS_KEY, key_id), API_KEYS_KEY, Replay.SAFE)
    return removed > 0
