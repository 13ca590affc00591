"""Gates of hosts in Redis: throttling, concurrency and rate, each over all instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.operating import host_gates as plans
from pyasynq._wire.keys import host_gate_key, host_slots_scope, semaphore_key
from pyasynq.errors import RedisReplyError
from tests.factories import NOW
from tests.waiting import set_to

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

HOST = "a.example:8443"
GATE = host_gate_key(HOST)
SLOTS = semaphore_key(host_slots_scope(HOST))
TWO_A_SECOND = (120.0, 60.0, 3)
HOUR = 3_600_000


def enter(perform: Perform, *ids: str, after: float = 0.0, **limits: Any) -> tuple[int, int, int, int]:
    """Ask whether requests may begin; return admitted, throttled, wait and left."""
    return perform(plans.enter_gate(HOST, ids, now=NOW.plus(after), **limits))


def close(perform: Perform, pause: int, after: float = 0.0) -> int:
    """Throttle the host for some milliseconds."""
    return perform(plans.close_gate(HOST, pause, NOW.plus(after)))


def slots(client: RedisClient) -> dict[str, float]:
    """Return who holds a slot, and for how many seconds."""
    held = client.zrange(SLOTS, 0, -1, withscores=True)
    return {member.decode(): score - NOW.seconds for member, score in held}


def test_a_host_without_limits_admits_all_and_stores_nothing(
    perform: Perform, redis_client: RedisClient
) -> None:
    """The one call tells that it is not throttled."""
    assert (3, 0, 0, 0) == enter(perform, *"abc")
    assert [] == redis_client.keys("*")


def test_a_rate_admits_its_burst_and_then_one_for_each_interval(
    perform: Perform, redis_client: RedisClient
) -> None:
    """Several requests at once take as many tokens as there are; the bucket lapses when it is full."""
    assert (2, 0, 0, 1) == enter(perform, *"ab", limits=TWO_A_SECOND)
    assert set_to(61) == redis_client.ttl(GATE)
    assert (1, 0, 500_000, 0) == enter(perform, *"cde", limits=TWO_A_SECOND)
    assert (0, 0, 500_000, 0) == enter(perform, "f", limits=TWO_A_SECOND)
    assert (0, 0, 1, 0) == enter(perform, "f", after=0.499_999, limits=TWO_A_SECOND)
    assert (1, 0, 500_000, 0) == enter(perform, *"fg", after=0.5, limits=TWO_A_SECOND)
    assert (0, 0, 1, 0) == enter(perform, "g", after=0.999_999, limits=TWO_A_SECOND)
    assert (3, 0, 500_000, 0) == enter(perform, *"ghij", after=60, limits=TWO_A_SECOND)
    assert (0, 0, 500_000, 0) == enter(perform, "i", after=60, limits=TWO_A_SECOND)


@pytest.mark.parametrize("step", [0.01, 0.07, 0.3, 0.9])
def test_no_window_has_more_requests_than_the_rate_and_its_burst(perform: Perform, step: float) -> None:
    """Two instances ask again and again, for several requests at once."""
    begun: list[float] = []
    for turn in range(60):
        ids = [f"{turn}:{place}" for place in range(1 + turn % 3)]
        admitted, *_ = enter(perform, *ids, after=turn * step, limits=TWO_A_SECOND)
        begun += [turn * step] * admitted
    for first, start in enumerate(begun):
        for last in range(first, len(begun)):
            assert last - first + 1 <= 3 + 2 * (begun[last] - start) + 1e-6
    assert len(begun) >= min(60, int(2 * 59 * step) + 3)


def test_a_concurrency_admits_as_many_as_have_no_slot_yet(
    perform: Perform, redis_client: RedisClient
) -> None:
    """The first ones; a released slot is free at once."""
    assert (2, 0, 0, 0) == enter(perform, *"ab", concurrency=3)
    assert {"a": 30, "b": 30} == slots(redis_client)
    assert (1, 0, 0, 0) == enter(perform, *"cd", after=1, concurrency=3)
    assert {"a": 30, "b": 30, "c": 31} == slots(redis_client)
    assert (0, 0, 0, 0) == enter(perform, "d", after=1, concurrency=3)
    assert perform(plans.release_slot(HOST, "b"))
    assert not perform(plans.release_slot(HOST, "b"))
    assert (1, 0, 0, 0) == enter(perform, *"de", after=2, concurrency=3)
    assert {"a": 30, "c": 31, "d": 32} == slots(redis_client)
    assert set_to(90) == redis_client.ttl(SLOTS)
    assert (0, 0, 0, 0) == enter(perform, "e", after=2, concurrency=1)
    assert {"a": 30, "c": 31, "d": 32} == slots(redis_client)


def test_a_slot_of_a_killed_instance_lapses(perform: Perform, redis_client: RedisClient) -> None:
    """In the second after its lease, unless it is renewed; what has lapsed is not renewed."""
    enter(perform, *"ab", concurrency=2)
    assert 1 == perform(plans.renew_slots(HOST, ["a", "gone"], NOW.plus(20)))
    assert {"a": 50, "b": 30} == slots(redis_client)
    assert set_to(90) == redis_client.ttl(SLOTS)
    assert (0, 0, 0, 0) == enter(perform, "c", after=30, concurrency=2)
    assert (1, 0, 0, 0) == enter(perform, *"cd", after=31, concurrency=2)
    assert {"a": 50, "c": 61} == slots(redis_client)
    assert 1 == perform(plans.renew_slots(HOST, ["a", "b"], NOW.plus(31)))
    assert {"a": 61, "c": 61} == slots(redis_client)


def test_a_renewal_is_the_only_thing_that_makes_slots_last(
    perform: Perform, redis_client: RedisClient
) -> None:
    """The key lapses with them."""
    enter(perform, "a", concurrency=2)
    redis_client.expire(SLOTS, 5)
    perform(plans.renew_slots(HOST, ["a"], NOW))
    assert set_to(90) == redis_client.ttl(SLOTS)


def test_a_call_that_is_sent_again_holds_no_second_slots(perform: Perform, redis_client: RedisClient) -> None:
    """Its reply was lost, and the ids are the same."""
    assert (2, 0, 0, 0) == enter(perform, *"ab", concurrency=2)
    assert (2, 0, 0, 0) == enter(perform, *"ab", concurrency=2)
    assert {"a": 30, "b": 30} == slots(redis_client)


def test_the_narrower_limit_counts(perform: Perform, redis_client: RedisClient) -> None:
    """What the concurrency refuses takes no token, and what the rate refuses holds no slot."""
    limits: dict[str, Any] = {"limits": TWO_A_SECOND, "concurrency": 2}
    assert (2, 0, 0, 1) == enter(perform, *"abcd", **limits)
    assert {"a": 30, "b": 30} == slots(redis_client)
    assert (0, 0, 0, 1) == enter(perform, *"cd", **limits)
    for name in "ab":
        perform(plans.release_slot(HOST, name))
    assert (1, 0, 500_000, 0) == enter(perform, *"cd", **limits)
    assert {"c": 30} == slots(redis_client)


def test_a_bucket_of_which_nothing_is_taken_is_not_stored(
    perform: Perform, redis_client: RedisClient
) -> None:
    """It is full, as one that is missing."""
    enter(perform, "a", concurrency=1)
    assert (0, 0, 0, 3) == enter(perform, "b", concurrency=1, limits=TWO_A_SECOND)
    assert not redis_client.exists(GATE)


def test_a_throttled_host_admits_nothing_until_it_may_be_called(
    perform: Perform, redis_client: RedisClient
) -> None:
    """No token and no slot is taken meanwhile."""
    limits: dict[str, Any] = {"limits": TWO_A_SECOND, "concurrency": 2}
    assert 7_000 == close(perform, 7_000)
    assert set_to(67) == redis_client.ttl(GATE)
    assert (0, 7_000, 0, 0) == enter(perform, "a", **limits)
    assert (0, 1, 0, 0) == enter(perform, "a", after=6.999_5, **limits)
    assert {} == slots(redis_client)
    assert (1, 0, 0, 2) == enter(perform, "a", after=7, **limits)


@pytest.mark.parametrize(
    ("pause", "after", "throttled"),
    [(9_000, 0, 9_000), (5_000, 0, 7_000), (7_000, 0, 7_000), (5_000, 3, 5_000), (HOUR * 9, 0, HOUR)],
)
def test_the_latest_end_of_a_throttling_counts(
    perform: Perform, redis_client: RedisClient, pause: int, after: float, throttled: int
) -> None:
    """It is an hour away at most, and the key lapses a minute later."""
    close(perform, 7_000)
    assert throttled == close(perform, pause, after)
    assert (0, throttled, 0, 0) == enter(perform, "a", after=after)
    assert set_to(throttled // 1_000 + 60) == redis_client.ttl(GATE)


def test_throttling_leaves_the_bucket_as_it_is(perform: Perform, redis_client: RedisClient) -> None:
    """A bucket that fills in days lapses no earlier, and a throttling no earlier than it ends."""
    daily = (1.0, 86_400.0, 2)
    assert (1, 0, 0, 1) == enter(perform, "a", limits=daily)
    close(perform, 7_000)
    assert 86_400 < redis_client.ttl(GATE) <= 86_460
    assert (1, 0, 86_393_000_000, 0) == enter(perform, "b", after=7, limits=daily)
    redis_client.delete(GATE)
    enter(perform, "a", limits=(1.0, 1.0, 1))
    close(perform, 600_000)
    assert set_to(660) == redis_client.ttl(GATE)


@pytest.mark.parametrize("closed", ["x", "nan", "-inf", "inf", str((NOW.seconds + 3_601) * 1_000), "0"])
def test_a_time_that_no_host_can_have_asked_for_counts_for_nothing(
    perform: Perform, redis_client: RedisClient, closed: str
) -> None:
    """Such as one from before the clock of Redis was set back. The next throttling replaces it."""
    redis_client.hset(GATE, "closed", closed)
    assert (1, 0, 0, 0) == enter(perform, "a")
    assert 5_000 == close(perform, 5_000)
    assert (0, 5_000, 0, 0) == enter(perform, "a")


def test_a_throttling_may_be_given_in_fractions(perform: Perform, redis_client: RedisClient) -> None:
    """Another program may have written it so. The script counts whole milliseconds."""
    redis_client.hset(GATE, "closed", f"{NOW.seconds * 1_000 + NOW.microseconds // 1_000 + 5_000}.5")
    assert 5_001 == close(perform, 4_000)
    assert (0, 5_001, 0, 0) == enter(perform, "a")


def test_the_longest_throttling_counts_in_its_first_moment(perform: Perform) -> None:
    """Whatever fraction of a millisecond it begins in."""
    assert HOUR == close(perform, HOUR, after=0.000_9)
    assert (0, HOUR, 0, 0) == enter(perform, "a", after=0.000_9)


def test_hosts_have_gates_of_their_own(perform: Perform) -> None:
    """Also ports of one host, if the file has a table for each."""
    close(perform, 5_000)
    enter(perform, "a", concurrency=1)
    assert (1, 0, 0, 0) == perform(plans.enter_gate("a.example", ["a"], concurrency=1, now=NOW))


@pytest.mark.parametrize("key", [GATE, SLOTS])
def test_a_key_of_a_wrong_type_admits_nothing(perform: Perform, redis_client: RedisClient, key: str) -> None:
    """And stays as it is."""
    redis_client.set(key, "x")
    with pytest.raises(RedisReplyError):
        enter(perform, "a", limits=TWO_A_SECOND, concurrency=1)
    assert [key.encode()] == redis_client.keys("*")
    assert b"x" == redis_client.get(key)
    redis_client.delete(key)


def test_the_clock_of_redis_counts(perform: Perform) -> None:
    """Instances have no time of their own."""
    assert 60_000 == perform(plans.close_gate(HOST, 60_000))
    assert 0 < perform(plans.enter_gate(HOST, ["a"]))[1] <= 60_000
