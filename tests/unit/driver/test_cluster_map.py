from __future__ import annotations

import pytest
from redis.crc import key_slot

from pyasynq._redis.cluster.slot_map import SLOTS, ClusterMap, guard_key, map_of, slot_of
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.keys import SERVERS, queue_keys, semaphore_key

A, B, C = ("a", 1), ("b", 2), ("c", 3)


def ranges() -> list[list[object]]:
    """Return what CLUSTER SLOTS answers of two primaries, the first with a replica."""
    return [
        [0, 8191, [b"a", 1, b"id-a", []], [b"c", 3, b"id-c", []]],
        [8192, SLOTS - 1, [b"b", 2, b"id-b", []]],
    ]


def learned() -> ClusterMap:
    """Return a map of them."""
    nodes = ClusterMap([A])
    assert nodes.learn(ranges(), A)
    return nodes


def test_a_map_that_knows_its_seeds_alone_is_to_be_learned() -> None:
    """Nobody serves anything yet, as far as it knows."""
    nodes = ClusterMap([A, B])
    assert nodes.doubted
    assert nodes.owner(0) is None
    assert () == nodes.primaries
    assert [A, B] == nodes.whom_to_ask()
    assert [B, A] == nodes.whom_to_ask({A})


def test_what_a_node_tells_is_who_serves_what() -> None:
    """Replicas serve nothing; they may be asked, when they are who is left."""
    nodes = learned()
    assert not nodes.doubted
    assert [A, A, B, B] == [nodes.owner(slot) for slot in (0, 8191, 8192, SLOTS - 1)]
    assert (A, B) == nodes.primaries
    assert [A, B, C] == nodes.whom_to_ask()
    assert [8191, SLOTS - 1] == nodes.slots_of_primaries()


@pytest.mark.parametrize("name", [None, b"", b"?"])
def test_a_node_that_does_not_know_its_name_is_where_it_was_asked(name: bytes | None) -> None:
    """So are the others, which differ by their ports then."""
    nodes = ClusterMap([A])
    assert nodes.learn([[0, 5, [name, 7, b"id", []]]], A)
    assert ("a", 7) == nodes.owner(3)
    assert nodes.owner(6) is None


def test_a_node_that_knows_of_no_slots_teaches_nothing() -> None:
    """It has left the cluster, or has not come into it yet."""
    nodes = learned()
    nodes.doubt(1)
    assert not nodes.learn([], B)
    assert nodes.doubted
    assert A == nodes.owner(0)


def foreign(*nodes: tuple[bytes, int, bytes]) -> list[list[object]]:
    """Return what a node of another cluster answers."""
    return [[0, SLOTS - 1, *([name, port, node_id, []] for name, port, node_id in nodes)]]


@pytest.mark.parametrize(
    "answer",
    [foreign((b"c", 3, b"new"), (b"d", 4, b"id-d")), foreign((b"c", 3, b"id-c"), (b"d", 4, b"id-d"))],
    ids=["its address has another node", "the node itself has joined another cluster"],
)
def test_d60_a_former_node_that_belongs_to_another_cluster_is_not_believed(
    answer: list[list[object]],
) -> None:
    """Its answer names no other node of ours; its address is forgotten, and our map stays."""
    nodes = learned()
    nodes.doubt(1)
    assert not nodes.learn(answer, C)
    assert nodes.doubted
    assert (A, B) == nodes.primaries
    assert [A, B] == nodes.whom_to_ask()


def test_d60_a_node_whose_answer_names_a_node_of_ours_is_believed() -> None:
    """The others were replaced since the map was learned."""
    nodes = learned()
    assert nodes.learn(foreign((b"d", 4, b"id-d"), (b"b", 2, b"id-b")), C)
    assert ("d", 4) == nodes.owner(0)


def test_d60_a_seed_is_always_believed() -> None:
    """The user has named it; all nodes may have been replaced."""
    nodes = learned()
    assert nodes.learn(foreign((b"d", 4, b"id-d")), A)
    assert ("d", 4) == nodes.owner(0)


def test_d60_a_node_that_is_left_alone_is_believed() -> None:
    """The cluster has shrunk to one node."""
    nodes = learned()
    assert nodes.learn(foreign((b"b", 2, b"id-b")), B)
    assert (B,) == nodes.primaries


def test_moved_is_true_of_one_slot_and_makes_the_rest_doubtful() -> None:
    """Who serves the slot now is asked first: others may not have heard of it yet."""
    nodes = learned()
    assert (C, False) == nodes.redirected("MOVED 7 c:3", A)
    assert [A, C, A] == [nodes.owner(slot) for slot in (6, 7, 8)]
    assert nodes.doubted
    assert [C, A, B] == nodes.whom_to_ask()
    assert 1 == nodes.redirections


def test_moved_to_who_is_known_to_serve_it_says_nothing_new() -> None:
    """Another round has had the same answer, and the map has been learned since."""
    nodes = learned()
    assert (B, False) == nodes.redirected("MOVED 9000 b:2", A)
    assert not nodes.doubted


def test_ask_is_for_this_once() -> None:
    """The slot is still on its way."""
    nodes = learned()
    assert (B, True) == nodes.redirected("ASK 7 b:2", A)
    assert A == nodes.owner(7)
    assert not nodes.doubted


@pytest.mark.parametrize(
    ("reply", "address"),
    [
        ("MOVED 7 :9", ("a", 9)),
        ("MOVED 7 ?:9", ("a", 9)),
        ("MOVED 7 ::1:9", ("::1", 9)),
        ("MOVED 7 Host.example:9", ("host.example", 9)),
    ],
)
def test_addresses_of_redirections_are_read(reply: str, address: tuple[str, int]) -> None:
    """A node that does not know its name leaves it out."""
    assert (address, False) == learned().redirected(reply, A)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "MOVED",
        "MOVED x a:1",
        "MOVED 16384 a:1",
        "MOVED 7 a",
        "MOVED 7 a:x",
        "ASK 99999 a:1",
        "TRYAGAIN 7 a:1",
    ],
)
def test_what_is_no_redirection_leads_nowhere(reply: str) -> None:
    """Whatever stands there: it is no reason to fail."""
    assert learned().redirected(reply, A) is None


def test_a_doubt_that_is_older_than_the_map_is_none() -> None:
    """The node was gone before it was learned."""
    nodes = learned()
    nodes.doubt(0)
    assert not nodes.doubted
    nodes.doubt(1)
    assert nodes.doubted


def test_all_who_speak_to_a_cluster_as_one_user_share_a_map() -> None:
    """For as long as any of them is there."""
    first, other = (map_of(parse_redis_url("redis-cluster://h1,h2")) for _ in range(2))
    assert first is other
    assert first is not map_of(parse_redis_url("redis-cluster://u:p@h1,h2"))


@pytest.mark.parametrize(
    "key",
    [
        queue_keys("default").pending,
        queue_keys("a b/ü").task("x"),
        SERVERS,
        semaphore_key("scope"),
        "x{y",
        "{a}",
    ],
)
def test_the_guard_of_a_key_is_another_key_in_its_slot(key: str) -> None:
    """Its name begins as all do, for users whose rights end there."""
    guard = guard_key(key)
    assert guard is not None
    assert guard != key
    assert guard.startswith("asynq:")
    assert slot_of(key) == slot_of(guard) == key_slot(key.encode())


@pytest.mark.parametrize("key", ["{}", "a}b", "a}b{c"])
def test_a_key_whose_tag_cannot_be_written_again_has_no_guard(key: str) -> None:
    """No queue has such keys."""
    assert guard_key(key) is None
