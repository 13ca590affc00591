"""Lists of entries for workers that only speak Redis: the scripts, one shard at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.operating import worker_lists as plans
from pyasynq._wire.keys import hash_slot, shard_keys
from tests.waiting import set_to

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

KEYS = shard_keys("f", 1)


def entry(token: str, rest: str = "") -> bytes:
    """Return an entry."""
    return f'{{"token":"{token}","id":"{rest}"}}'.encode()


def live(client: RedisClient, name: str, size: object = 1) -> None:
    """Let a worker beat."""
    client.sadd(KEYS.workers, name)
    client.set(KEYS.alive_prefix + name, str(size), ex=15)


def push(perform: Perform, token: str) -> bool:
    """Push an entry."""
    return perform(plans.push_entry("f", 1, token, entry(token), f"lease {token}"))


def take(client: RedisClient, name: str) -> bytes:
    """Take an entry as a worker does."""
    taken = client.lmove(KEYS.entries, KEYS.held_prefix + name, "LEFT", "RIGHT")
    assert isinstance(taken, bytes)
    return taken


def test_all_keys_of_a_shard_are_in_one_slot() -> None:
    """And the shards of a type in different ones."""
    for shard in range(8):
        keys = shard_keys("f", shard)
        assert 1 == len(
            {hash_slot(key) for key in (*keys[:4], f"{keys.alive_prefix}w}}", f"{keys.held_prefix}w")}
        )
    assert 8 == len({hash_slot(shard_keys("f", shard).entries) for shard in range(8)})


def test_a_worker_gets_as_many_entries_as_it_takes_at_once(
    perform: Perform, redis_client: RedisClient
) -> None:
    """Held entries count, and waiting ones."""
    assert not push(perform, "a")
    live(redis_client, "w", 2)
    assert [True, True, False] == [push(perform, one) for one in "abc"]
    assert [entry("a"), entry("b")] == redis_client.lrange(KEYS.entries, 0, -1)
    assert {b"a": b"lease a", b"b": b"lease b"} == redis_client.hgetall(KEYS.leases)
    take(redis_client, "w")
    assert not push(perform, "c")
    redis_client.delete(KEYS.held_prefix + "w")
    assert push(perform, "c")
    assert not redis_client.exists(KEYS.replies)


@pytest.mark.parametrize(
    ("size", "room"), [("x", 1), ("-3", 1), ("0", 0), ("100", 100), ("101", 100), ("1e9", 1)]
)
def test_what_a_worker_says_of_its_size_is_bounded(
    perform: Perform, redis_client: RedisClient, size: str, room: int
) -> None:
    """What is not a number counts as one."""
    live(redis_client, "w", size)
    assert (1, room) == perform(plans.sweep_list("f", 1))[:2]


def test_a_shard_has_a_thousand_entries_at_most(perform: Perform, redis_client: RedisClient) -> None:
    """Also if many workers live: a sweep returns all of their leases."""
    live(redis_client, "w", 100)
    redis_client.hset(KEYS.leases, mapping={f"t{number}": "x" for number in range(999)})
    assert [True, False] == [push(perform, one) for one in "ab"]


def test_the_keys_expire_a_day_after_the_last_look(perform: Perform, redis_client: RedisClient) -> None:
    """Keys that the workers make, too."""
    live(redis_client, "w", 2)
    push(perform, "a")
    assert [set_to(86_400)] * 2 == [redis_client.ttl(one) for one in (KEYS.entries, KEYS.leases)]
    push(perform, "b")
    take(redis_client, "w")
    redis_client.rpush(KEYS.replies, "x")
    for key in (KEYS.entries, KEYS.leases):
        redis_client.persist(key)
    perform(plans.sweep_list("f", 1))
    swept = (*KEYS[:4], KEYS.held_prefix + "w")
    assert [set_to(86_400)] * 5 == [redis_client.ttl(one) for one in swept]


def test_a_sweep_finds_the_entry_of_each_lease(perform: Perform, redis_client: RedisClient) -> None:
    """Waiting, held, or replied to; the last one is nowhere."""
    live(redis_client, "w", 5)
    for token in ("waits", "held", "replied", "gone"):
        push(perform, token)
    redis_client.delete(KEYS.entries)
    redis_client.rpush(KEYS.entries, entry("waits"))
    redis_client.rpush(KEYS.held_prefix + "w", b"rubbish", entry("held"))
    redis_client.rpush(KEYS.replies, b"rubbish", b'{"act":"x","token":"replied"}')
    found = perform(plans.sweep_list("f", 1))
    assert (1, 2, 2) == found[:3]
    assert {
        ("waits", "lease waits", True),
        ("held", "lease held", True),
        ("replied", "lease replied", True),
        ("gone", "lease gone", False),
    } == set(found.leases)


def test_a_sweep_judges_no_lease_while_there_are_more_replies_than_it_reads(
    perform: Perform, redis_client: RedisClient
) -> None:
    """The reply may be among the others."""
    live(redis_client, "w", 5)
    push(perform, "gone")
    redis_client.delete(KEYS.entries)
    redis_client.rpush(KEYS.replies, *["x"] * 100)
    assert [False] == [one.is_listed for one in perform(plans.sweep_list("f", 1)).leases]
    redis_client.rpush(KEYS.replies, "x")
    assert [True] == [one.is_listed for one in perform(plans.sweep_list("f", 1)).leases]


@pytest.mark.parametrize(("workers", "is_listed"), [(1_000, False), (1_001, True)])
def test_a_sweep_judges_no_lease_while_there_are_more_workers_than_it_looks_at(
    perform: Perform, redis_client: RedisClient, workers: int, is_listed: bool
) -> None:
    """One of the others may hold the entry."""
    names = [f"w{number}" for number in range(workers)]
    redis_client.sadd(KEYS.workers, *names)
    redis_client.mset({KEYS.alive_prefix + name: 1 for name in names})
    redis_client.hset(KEYS.leases, "t", "lease")
    [found] = perform(plans.sweep_list("f", 1)).leases
    assert is_listed is found.is_listed


def test_the_hundredth_reply_is_looked_at(perform: Perform, redis_client: RedisClient) -> None:
    """As the first is."""
    live(redis_client, "w", 5)
    push(perform, "told")
    redis_client.delete(KEYS.entries)
    redis_client.rpush(KEYS.replies, *["x"] * 99, b'{"token":"told"}')
    assert [True] == [one.is_listed for one in perform(plans.sweep_list("f", 1)).leases]


def test_a_sweep_forgets_dead_workers_and_what_they_held(perform: Perform, redis_client: RedisClient) -> None:
    """The living ones keep theirs, also if they were taken for dead."""
    for name in ("dead", "alive"):
        live(redis_client, name)
        push(perform, name)
        take(redis_client, name)
    redis_client.delete(KEYS.alive_prefix + "dead")
    found = perform(plans.sweep_list("f", 1, ["dead", "alive", "other"]))
    assert (1, 0, 0, []) == found[:4]
    assert {("dead", False), ("alive", True)} == {(one[0], one[2]) for one in found.leases}
    assert {b"alive"} == redis_client.smembers(KEYS.workers)
    assert [0, 1] == [redis_client.exists(KEYS.held_prefix + name) for name in ("dead", "alive")]


def test_a_worker_that_may_have_been_cut_off_keeps_what_it_holds(
    perform: Perform, redis_client: RedisClient
) -> None:
    """It has no room for more, until it beats again."""
    live(redis_client, "w", 2)
    push(perform, "a")
    taken = take(redis_client, "w")
    redis_client.delete(KEYS.alive_prefix + "w")
    found = perform(plans.sweep_list("f", 1))
    assert (0, 0, 0, ["w"]) == found[:4]
    assert [True] == [one.is_listed for one in found.leases]
    assert [taken] == redis_client.lrange(KEYS.held_prefix + "w", 0, -1)
    assert not push(perform, "b")
    live(redis_client, "w", 2)
    assert (1, 1, 0, []) == perform(plans.sweep_list("f", 1))[:4]
    redis_client.delete(KEYS.alive_prefix + "w")
    assert [False] == [one.is_listed for one in perform(plans.sweep_list("f", 1, ["w"])).leases]


def test_keys_of_workers_may_have_wrong_types(perform: Perform, redis_client: RedisClient) -> None:
    """One that writes nonsense does not stop the others."""
    live(redis_client, "w", 2)
    push(perform, "a")
    redis_client.sadd(KEYS.workers, "odd", "list")
    redis_client.rpush(KEYS.alive_prefix + "odd", "x")
    redis_client.set(KEYS.alive_prefix + "list", "1")
    redis_client.set(KEYS.held_prefix + "list", "x")
    found = perform(plans.sweep_list("f", 1))
    assert (2, 2) == found[:2]
    assert [True] == [one.is_listed for one in found.leases]
    assert push(perform, "b")
    redis_client.delete(KEYS.held_prefix + "list", KEYS.alive_prefix + "odd")


def test_replies_are_read_from_the_oldest(perform: Perform, redis_client: RedisClient) -> None:
    """And stay until they are settled; those that are too long go at once."""
    redis_client.rpush(KEYS.replies, b"x" * 4_000_001, b"b" * 4_000_000, b"c" * 4_000_000, b"d")
    found, removed = perform(plans.read_list_replies("f", 1))
    assert [b"b" * 4_000_000, b"c" * 4_000_000] == found
    assert (1, 3) == (removed, redis_client.llen(KEYS.replies))
    redis_client.delete(KEYS.replies)
    redis_client.rpush(KEYS.replies, *map(str, range(60)))
    assert [str(number).encode() for number in range(50)] == perform(plans.read_list_replies("f", 1))[0]


def test_a_lease_is_renewed_until_its_entry_has_ended(perform: Perform, redis_client: RedisClient) -> None:
    """A renewal that comes late does not bring it back."""
    live(redis_client, "w")
    push(perform, "a")
    assert perform(plans.renew_entry_lease("f", 1, "a", "later"))
    assert "later" == perform(plans.find_entry_lease("f", 1, "a"))
    perform(plans.withdraw_entry("f", 1, "a"))
    assert not perform(plans.renew_entry_lease("f", 1, "a", "last"))
    assert None is perform(plans.find_entry_lease("f", 1, "a"))


def test_an_entry_is_withdrawn_with_its_reply(perform: Perform, redis_client: RedisClient) -> None:
    """The others stay; one that a worker has is its own to let go."""
    live(redis_client, "w", 5)
    for token in "abc":
        push(perform, token)
    take(redis_client, "w")
    redis_client.rpush(KEYS.replies, b"of a", b"of b", b"of a")
    perform(plans.withdraw_entry("f", 1, "b", b"of a"))
    assert [entry("c")] == redis_client.lrange(KEYS.entries, 0, -1)
    assert [b"of b"] == redis_client.lrange(KEYS.replies, 0, -1)
    assert {b"a", b"c"} == set(redis_client.hkeys(KEYS.leases))
    assert not perform(plans.withdraw_entry("f", 1, "a"))
    assert [entry("a")] == redis_client.lrange(KEYS.held_prefix + "w", 0, -1)
    assert [b"of b"] == redis_client.lrange(KEYS.replies, 0, -1)


def test_whether_a_worker_had_it_is_told(redis_client: RedisClient, perform: Perform) -> None:
    """What is not an entry stays."""
    live(redis_client, "w")
    push(perform, "a")
    redis_client.rpush(KEYS.entries, b"rubbish")
    assert perform(plans.withdraw_entry("f", 1, "a"))
    assert not perform(plans.withdraw_entry("f", 1, "a"))
    assert [b"rubbish"] == redis_client.lrange(KEYS.entries, 0, -1)


def test_living_workers_are_counted(perform: Perform, redis_client: RedisClient) -> None:
    """A heartbeat is enough."""
    assert 0 == perform(plans.count_list_workers("f", 1))
    live(redis_client, "w")
    redis_client.sadd(KEYS.workers, "dead")
    assert 1 == perform(plans.count_list_workers("f", 1))
