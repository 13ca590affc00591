from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.leases import Renewed, renew
from pyasynq._clock import Instant
from tests.factories import LEASE_SCORE, NOW, TOKEN, Tasks, claim
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from pyasynq._broker.settle import Claim
    from tests.invariants import RedisClient

LATER = NOW.plus(10)
RENEWED_SCORE = LATER.ceiling + 30


def renewed(perform: Perform, *claims: Claim, now: Instant | None = LATER, **arguments: Any) -> Renewed:
    """Renew ten seconds after NOW."""
    return perform(renew("default", claims, now=now, **arguments))


def test_a_renewal_moves_the_ends_of_leases(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls ZADD; leases that were not asked for stay."""
    tasks.active("a", "b", "c")
    assert Renewed(RENEWED_SCORE, LATER, []) == renewed(perform, claim("a"), claim("b"))
    assert {"a": RENEWED_SCORE, "b": RENEWED_SCORE, "c": LEASE_SCORE} == tasks.scores("lease")


def test_the_length_of_a_lease_is_the_callers(perform: Perform, tasks: Tasks) -> None:
    """A time without a fraction is not rounded up."""
    tasks.active("a")
    now = Instant(NOW.seconds + 100)
    assert NOW.seconds + 160 == renewed(perform, claim("a"), now=now, lease_seconds=60).lease_score
    assert {"a": NOW.seconds + 160} == tasks.scores("lease")


def test_h15_w23_without_a_time_redis_tells_it(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME: the clock of this host's program does not matter."""
    tasks.active("a", lease=int(time.time()) + 5)
    before = time.time_ns() // 1000
    result = renewed(perform, claim("a"), now=None)
    told = result.redis_now.seconds * 1_000_000 + result.redis_now.microseconds
    assert before <= told <= time.time_ns() // 1000
    assert result.redis_now.ceiling + 30 == tasks.scores("lease")["a"]


def test_h05_w16_a_task_that_is_not_ours_any_more_is_lost(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HGET or ZSCORE: Asynq ignores what its renewal found."""
    tasks.active("other", token="server/2")
    tasks.active("go", token="")
    tasks.active("later", lease=LEASE_SCORE + 1)
    tasks.active("a")
    leases = tasks.scores("lease")
    claims = [claim("other"), claim("go"), claim("later"), claim("a"), claim("gone")]
    assert ["other", "go", "later", "gone"] == renewed(perform, *claims).lost
    assert leases | {"a": RENEWED_SCORE} == tasks.scores("lease")


@pytest.mark.parametrize("claimed", [LEASE_SCORE, LEASE_SCORE + 1])
def test_h05_a_lease_up_to_what_was_asked_for_is_renewed(
    perform: Perform, tasks: Tasks, claimed: int
) -> None:
    """A score that an earlier renewal of ours may have set is ours."""
    tasks.active("a")
    assert [] == renewed(perform, claim("a", lease_score=claimed)).lost


def test_w16_a_lease_that_vanished_is_written_again(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls LPOS: the task is still active with our token."""
    tasks.active("b", "a", lease=None)
    assert [] == renewed(perform, claim("a"), claim("b")).lost
    assert {"a": RENEWED_SCORE, "b": RENEWED_SCORE} == tasks.scores("lease")


def test_w16_a_task_that_left_active_gets_no_lease(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Go's recoverer took it and left our token standing."""
    tasks.pending("a")
    redis_client.hset(tasks.keys.task("a"), "x:attempt", TOKEN)
    assert ["a"] == renewed(perform, claim("a")).lost
    assert {} == tasks.scores("lease")
    redis_client.hdel(tasks.keys.task("a"), "x:attempt")


def test_a_renewal_that_is_sent_again_finds_its_own_score(redis_client: RedisClient, tasks: Tasks) -> None:
    """The later lease is our first run's, since our claim has not lapsed: no other worker has the task."""
    tasks.active("a")
    assert [] == renewed(BlockingPerformer(redis_client, replay=True), claim("a")).lost


def test_h05_a_lapsed_claim_does_not_own_a_later_lease_on_a_replay(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """A Go worker may have it; without this the replay would take its task for ours."""
    tasks.active("a", lease=LATER.seconds + 20)
    lapsed = claim("a", lease_score=LATER.seconds - 1)
    assert ["a"] == renewed(BlockingPerformer(redis_client, replay=True), lapsed).lost


def test_a_claim_that_ends_this_second_has_not_lapsed(redis_client: RedisClient, tasks: Tasks) -> None:
    """Sees `>=` become `>` in the replay's rule."""
    tasks.active("a", lease=LATER.seconds)
    ending = claim("a", lease_score=LATER.seconds)
    assert [] == renewed(BlockingPerformer(redis_client, replay=True), ending).lost


def test_two_thousand_leases_are_renewed_in_two_calls(redis_client: RedisClient, tasks: Tasks) -> None:
    """The earliest end is reported, which holds for all."""
    ids = [f"{number:04}" for number in range(2000)]
    tasks.active(*ids)
    perform = BlockingPerformer(redis_client)
    result = renewed(perform, *(claim(task_id) for task_id in ids))
    assert (RENEWED_SCORE, LATER, []) == (result.lease_score, result.redis_now, result.lost)
    assert 2 == len(perform.calls)
    assert {RENEWED_SCORE} == set(tasks.scores("lease").values())
