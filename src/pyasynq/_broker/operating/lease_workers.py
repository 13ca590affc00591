"""Check of tasks that remote workers are reported to have leased: which leases are still valid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant

_AT_ONCE: Final = 500


def find_leased(queue: str, task_ids: Sequence[str], now: Instant) -> Plan[set[str]]:
    """Return which of some tasks of a queue have a lease that has not ended."""
    lease = queue_keys(queue).lease
    found: set[str] = set()
    for first in range(0, len(task_ids), _AT_ONCE):
        part = task_ids[first : first + _AT_ONCE]
        scores = yield CommandCall(("ZMSCORE", lease, *part), lease, Replay.SAFE)
        found |= {
            task_id
            for task_id, score in zip(part, scores, strict=True)
            if score is not None and float(score) > now.seconds
        }
    return found
