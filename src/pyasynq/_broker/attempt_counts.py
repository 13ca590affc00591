"""Adding counts of ended attempts to the statistics of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.scripts import ATTEMPT_COUNT
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.attempt_counts import (
    LEVELS,
    MAX_COUNTED_TYPES,
    OTHER_TYPES,
    SUMMARY_SIZE,
    VECTOR_SIZE,
    pack_numbers,
)
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Argument


def count_attempts(queue: str, counts: Mapping[str, Sequence[int]], *, now: Instant) -> Plan[None]:
    """Add each task type's counts to a queue's statistics of the current minute, ten minutes and day.

    A hash holds the first 50 types of its period; later types are counted under `_other`. The call is never
    sent again: after `ReplyLostError` the counts may have been added.

    Args:
        queue: its name.
        counts: vector of counts by task type; at most 51 types.
        now: Redis' time, as far as it is known.
    """
    keys = queue_keys(queue)
    times: list[Argument] = []
    for level in LEVELS:
        times += (level.slot_number(now.seconds), level.lifetime(now.seconds))
    types: list[Argument] = []
    for task_type, vector in counts.items():
        types += (task_type.encode("utf-8", "replace"), pack_numbers(vector, VECTOR_SIZE))
    yield ScriptCall(
        ATTEMPT_COUNT,
        tuple(keys.attempt_counts(level.name, level.start(now.seconds)) for level in LEVELS),
        (MAX_COUNTED_TYPES, OTHER_TYPES, SUMMARY_SIZE, VECTOR_SIZE, *times, *types),
        Replay.NEVER,
    )
