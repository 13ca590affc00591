from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.settling import archive, complete, done, retry
from tests.factories import DAY, NOW, Tasks, claim
from tests.redis_6 import expiry_of

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

MAX = 2**63 - 1
DAY_END = NOW.seconds + 90 * 86_400

counting = pytest.mark.parametrize("settle", [done, complete, retry, archive])
failing = pytest.mark.parametrize("settle", [retry, archive])


@counting
def test_counters_of_a_day_end_ninety_days_after_their_first_count(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Any
) -> None:
    """Fails if the script no longer calls EXPIREAT."""
    tasks.active("a", "b")
    perform(settle([claim("a"), claim("b")]))
    for key in redis_client.keys(f"*:{DAY}"):
        assert DAY_END * 1_000 == expiry_of(redis_client, key)


@counting
def test_a_later_count_does_not_move_the_end_of_a_day(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Any
) -> None:
    """The end is set when the counter is made, and only then."""
    for name in ("processed", "failed"):
        redis_client.set(f"{tasks.keys.processed}:{DAY}".replace("processed", name), 5, exat=DAY_END - 1)
    tasks.active("a")
    perform(settle([claim("a")]))
    keys = redis_client.keys(f"*:{DAY}")
    assert {(DAY_END - 1) * 1_000} == {expiry_of(redis_client, key) for key in keys}
    assert 6 == tasks.counts()["processed_today"]


@counting
@pytest.mark.parametrize("total", [MAX, MAX - 1])
def test_a_total_that_would_leave_the_integers_starts_again(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Any, total: int
) -> None:
    """Fails if the script no longer calls SET or GET: INCRBY alone would fail, and the settle with it."""
    redis_client.set(tasks.keys.processed, total)
    tasks.active("a", "b")
    perform(settle([claim("a"), claim("b")]))
    assert 2 == tasks.counts()["processed"]
    assert 2 == tasks.counts()["processed_today"]


@counting
def test_a_total_just_below_goes_on(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Any
) -> None:
    """As with Asynq, numbers of Lua make every total from 2**63 - 512 on the largest one."""
    redis_client.set(tasks.keys.processed, 2**63 - 514)
    tasks.active("a")
    perform(settle([claim("a")]))
    assert 2**63 - 513 == tasks.counts()["processed"]


@failing
def test_processed_and_failed_start_again_together(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Any
) -> None:
    """Or more would have failed than were processed."""
    redis_client.mset({tasks.keys.processed: MAX, tasks.keys.failed: 7})
    tasks.active("a", "b", "c")
    perform(settle([claim("a"), claim("b"), claim("c")]))
    assert {"processed": 3, "failed": 3, "processed_today": 3, "failed_today": 3} == tasks.counts()


@failing
def test_processed_and_failed_go_on_together(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Any
) -> None:
    """Sees `processed` and `failed` mixed up, and a total that starts again without reason."""
    redis_client.mset({tasks.keys.processed: 10, tasks.keys.failed: 5})
    tasks.active("a")
    perform(settle([claim("a")]))
    assert {"processed": 11, "failed": 6, "processed_today": 1, "failed_today": 1} == tasks.counts()
