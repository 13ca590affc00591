"""Detection of slow Redis calls with SLOWLOG, without the noise of a busy machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

_T = TypeVar("_T")

LIMIT: Final = 10_000
"""Microseconds that one call may take of Redis, on a machine that is as fast as `_LOOP_SECONDS`."""
_ROUNDS: Final = 8
_WALKED: Final = 1_000_000
"""Length of the list: so long that it does not fit into the caches of a processor."""
WALK_SECONDS: Final = 0.001
"""How long Redis walks past 100,000 ids on a machine for which the limit holds."""
_LOOP: Final = "local sum = 0 for number = 1, 1000000 do sum = sum + number end"
_LOOP_SECONDS: Final = 0.01
"""How long Redis takes for the loop there."""


def within_limit(client: redis.Redis, work: Callable[[], _T]) -> _T:
    """Return what a function returns in a round in which no call took more than 10 ms.

    SLOWLOG measures wall time, and another process may take the processor away from Redis in the middle of a
    call. So only what is slow in each of eight rounds fails. Calls that are slow now and then are not found.
    On a slower machine the limit is longer, as a loop takes longer there before the round.
    """
    single: Any = client
    for _ in range(_ROUNDS):
        limit = LIMIT * max(1, measure_loop(client) / _LOOP_SECONDS)
        single.config_set("slowlog-log-slower-than", int(limit))
        single.slowlog_reset()
        result = work()
        slow = single.slowlog_get()
        if not slow:
            return result
    raise AssertionError(f"slow in each of {_ROUNDS} rounds, at last: {slow}")


def measure_walk(client: redis.Redis) -> float:
    """Return how many seconds Redis walks past 100,000 ids of a list, at best of three."""
    key = "slow-calls-walk"
    single: Any = client
    pipeline = single.pipeline(transaction=False)
    for first in range(0, _WALKED, 10_000):
        pipeline.rpush(key, *(f"{number:036}" for number in range(first, first + 10_000)))
    pipeline.execute()

    def once() -> float:
        began = time.perf_counter()
        single.lpos(key, "none")
        return time.perf_counter() - began

    try:
        return min(once() for _ in range(3)) * 100_000 / _WALKED
    finally:
        client.delete(key)


def measure_loop(client: redis.Redis) -> float:
    """Return how many seconds a fixed loop takes in Redis, at best of three."""

    def once() -> float:
        began = time.perf_counter()
        client.eval(_LOOP, 0)
        return time.perf_counter() - began

    return min(once() for _ in range(3))
