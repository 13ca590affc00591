"""The shop's last three days as its workers would have counted them, with two deployments."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyasynq._broker.attempt_counts import count_attempts
from pyasynq._broker.inspecting.marks import add_mark
from pyasynq._clock import Instant
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.attempt_counts import (
    COUNTERS,
    RUN_BUCKETS,
    RUN_MILLISECONDS,
    VECTOR_SIZE,
    WAIT_BUCKETS,
    WAIT_MILLISECONDS,
)
from pyasynq.operations import Targets, User
from pyasynq.operations.sync import Operator
from pyasynq.telemetry import ATTEMPT_SECONDS
from tests.shop import TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS: Final = {"shipping-labels": 1.8, "payments": 0.4, "images": 4.2, "catalog": 0.1}
"""Median run of an attempt by queue; others take 0.2 seconds."""
_TROUBLE_MINUTES: Final = 22
"""The carrier's interface began to fail this long ago, with the second deployment."""


def fill_statistics(url: str, *, seed: int = 7) -> None:
    """Count the attempts of each queue in the last hour by minutes, and before by ten minutes."""
    dice = random.Random(seed)
    now = datetime.now(UTC)
    driver = BlockingDriver(parse_redis_url(url))
    driver.run(add_mark("deploy b81d07e", at=Instant.from_datetime(now - timedelta(hours=26)), by="ci"))
    driver.run(
        add_mark(
            "deploy 4f2a91c", at=Instant.from_datetime(now - timedelta(minutes=_TROUBLE_MINUTES)), by="ci"
        )
    )
    for moment, minutes in _moments(now):
        is_trouble = now - moment < timedelta(minutes=_TROUBLE_MINUTES)
        for queue, types in TYPES.items():
            vectors = {
                kind: _vector(dice, queue, minutes, moment, is_trouble=is_trouble) for kind in types[:2]
            }
            driver.run(count_attempts(queue, vectors, now=Instant.from_datetime(moment)))
    driver.close()


def start_operations(url: str) -> None:
    """Let one operation have ended, and another wait for somebody to go on with it."""
    with Operator(url, User.with_role("mira", "operator")) as operator:
        done = operator.start_operation(
            "run", Targets(query="queue:payments state:retry"), reason="API is back"
        )
        operator.run_operation(done.operation)
        operator.start_operation(
            "archive", Targets(query="queue:newsletter"), reason="cancelled campaign of November"
        )


def _moments(now: datetime) -> Iterator[tuple[datetime, int]]:
    """Yield times in ascending order with the minutes that each stands for."""
    for step in range(71 * 6, 0, -1):
        yield now - timedelta(hours=1, minutes=10 * step), 10
    for step in range(60, 0, -1):
        yield now - timedelta(minutes=step), 1


def _vector(
    dice: random.Random, queue: str, minutes: int, moment: datetime, *, is_trouble: bool
) -> list[int]:
    # More by day than by night.
    daily = 1.2 + math.sin((moment.hour + moment.minute / 60 - 9) / 24 * 2 * math.pi)
    count = int(dice.uniform(0.85, 1.15) * daily * 60 * minutes * (0.5 if queue == "images" else 1))
    fails = 0.62 if is_trouble and queue == "shipping-labels" else 0.02
    retried = int(count * fails * dice.uniform(0.9, 1.1))
    archived = retried // 8
    vector = [0] * VECTOR_SIZE
    vector[COUNTERS.index("succeeded")] = count - retried - archived
    vector[COUNTERS.index("retried")] = retried
    vector[COUNTERS.index("archived")] = archived
    waited = 40.0 if is_trouble and queue == "shipping-labels" else 0.3
    _add_durations(vector, dice, count, _SECONDS.get(queue, 0.2), RUN_BUCKETS, RUN_MILLISECONDS)
    _add_durations(vector, dice, count, waited, WAIT_BUCKETS, WAIT_MILLISECONDS)
    return vector


def _add_durations(
    vector: list[int], dice: random.Random, count: int, median: float, buckets: int, total: int
) -> None:
    """Add log-normal durations in seconds."""
    for _ in range(10):
        seconds = median * math.exp(dice.gauss(0, 0.8))
        vector[buckets + bisect_left(ATTEMPT_SECONDS, seconds)] += count // 10
        vector[total] += int(seconds * 1_000) * (count // 10)
