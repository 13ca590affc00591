"""Saved views (named searches) in Redis: a hash of id and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import VIEWS_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_VIEWS: Final = 1_000
"""Maximum number of saved views of all users together; they take about 5 MB at most."""

_AT_ONCE: Final = 100


def read_views() -> Plan[dict[str, bytes]]:
    """Return the JSON of each saved view, by id; read 100 at a time, so that no reply takes long."""
    names = yield CommandCall(("HKEYS", VIEWS_KEY), VIEWS_KEY, Replay.SAFE)
    found: dict[str, bytes] = {}
    for first in range(0, len(names), _AT_ONCE):
        part: Sequence[bytes] = names[first : first + _AT_ONCE]
        values = yield CommandCall(("HMGET", VIEWS_KEY, *part), VIEWS_KEY, Replay.SAFE)
        found |= {
            decode_name(name): value for name, value in zip(part, values, strict=True) if value is not None
        }
    return found


def read_view(view: str) -> Plan[bytes | None]:
    """Return the JSON of a view; None if there is none."""
    data: bytes | None = yield CommandCall(("HGET", VIEWS_KEY, view), VIEWS_KEY, Replay.SAFE)
    return data


def write_view(view: str, data: bytes) -> Plan[bool]:
    """Save a view; return whether there was room for it."""
    yield CommandCall(("HSET", VIEWS_KEY, view, data), VIEWS_KEY, Replay.SAFE)
    # Counted after the write, so that concurrent calls cannot exceed the limit together.
    if (yield CommandCall(("HLEN", VIEWS_KEY), VIEWS_KEY, Replay.SAFE)) <= MAX_VIEWS:
        return True
    yield CommandCall(("HDEL", VIEWS_KEY, view), VIEWS_KEY, Replay.SAFE)
    return False


def remove_view(view: str) -> Plan[bool]:
    """Remove a saved view; return whether it existed."""
    removed: int = yield CommandCall(("HDEL", VIEWS_KEY, view), VIEWS_KEY, Replay.SAFE)
    return removed > 0
