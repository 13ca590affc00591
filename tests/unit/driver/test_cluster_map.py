from __future__ import annotations

import pytest
from redis.crc import key_slot

from pyasynq._redis.cluster.slot_map import SLOTS, ClusterMap, find_slot, get_cluster_map, guard_key
from pyasynq._redis.cluster.view import ClusterView
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.keys import SERVERS_KEY, queue_keys, semaphore_key

A, B, C, D, E = (("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5))
NOW = 1_000.0
LATER = NOW + 31.0
"""The time from which no node is asked last for what was at `NOW`."""


def ranges() -> list[list[object]]:
    """Return what CLUSTER SLOTS answers of two primaries, the first with a replica."""
    return [
        [0, 8191, [b"a", 1, b"id-a", []], [b"c", 3, b"id-c", []]],
        [8192, SLOTS - 1, [b"b", 2, b"id-b", []]],
    ]


def learned() -> ClusterMap:
    """Return a map of them."""
    nodes = ClusterMap([A])
    assert nodes.learn([ClusterView(A, ranges())], NOW)
    return nodes


def view(asked: tuple[str, int], *owners: tuple[tuple[str, int], int], epochs: bool = True) -> ClusterView:
    """Return a view of owners with an equal share of the slots each, and of their epochs."""
    share = SLOTS // len(owners)
    slots = [
        [place * share, (place + 1) * share - 1, [host.encode(), port, b"id-" + host.encode(), []]]
        for place, ((host, port), _) in enumerate(owners)
    ]
    lines = [f"id-{host} {host}:{port}@9 master - 0 0 {epoch} connected" for (host, port), epoch in owners]
    return ClusterView(asked, slots, "\n".join(lines).encode() if epochs else b"")


def query_groups(nodes: ClusterMap, now: float = NOW) -> list[set[tuple[str, int]]]:
    """Return which nodes are asked together."""
    return [set(group) for group in nodes.query_groups(now)]


def test_a_map_that_knows_its_seeds_alone_is_to_be_learned() -> None:
    """No known node serves the slot yet."""
    nodes = ClusterMap([A, B])
    assert nodes.doubted
    assert nodes.owner(0) is None
    assert () == nodes.primaries
    assert [[A, B]] == nodes.query_groups(NOW)
    nodes.ask_last([A], NOW)
    assert [[B], [A]] == nodes.query_groups(NOW)
    assert [[A, B]] == nodes.query_groups(LATER)


def test_what_a_node_tells_is_who_serves_what() -> None:
    """Replicas serve nothing; they may be asked, when they are who is left."""
    nodes = learned()
    assert not nodes.doubted
    assert [A, A, B, B] == [nodes.owner(slot) for slot in (0, 8191, 8192, SLOTS - 1)]
    assert (A, B) == nodes.primaries
    assert [[B, C, A]] == nodes.query_groups(NOW)
    assert [8191, SLOTS - 1] == nodes.get_primary_slots()


@pytest.mark.parametrize("name", [None, b"", b"?"])
def test_a_node_that_does_not_know_its_name_is_where_it_was_asked(name: bytes | None) -> None:
    """So are the others, which differ by their ports then."""
    nodes = ClusterMap([A])
    assert nodes.learn([ClusterView(A, [[0, 5, [name, 7, b"id", []]]])], NOW)
    assert ("a", 7) == nodes.owner(3)
    assert nodes.owner(6) is None


def test_a_node_that_knows_of_no_slots_teaches_nothing() -> None:
    """It has left the cluster, or has not come into it yet."""
    nodes = learned()
    nodes.doubt(1, NOW)
    assert not nodes.learn([ClusterView(B, [])], NOW)
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
def test_a_former_node_that_belongs_to_another_cluster_is_not_believed(
    answer: list[list[object]],
) -> None:
    """Its answer names no other node of ours; its address is forgotten, and our map stays. (D60)"""
    nodes = learned()
    nodes.doubt(1, NOW)
    assert not nodes.learn([ClusterView(C, answer)], NOW)
    assert nodes.doubted
    assert (A, B) == nodes.primaries
    assert [{A, B}] == query_groups(nodes, LATER)


def test_a_node_whose_answer_names_a_node_of_ours_is_believed() -> None:
    """The others were replaced since the map was learned. (D60)"""
    nodes = learned()
    assert nodes.learn([ClusterView(C, foreign((b"d", 4, b"id-d"), (b"b", 2, b"id-b")))], NOW)
    assert ("d", 4) == nodes.owner(0)


def test_a_seed_is_always_believed() -> None:
    """The user has named it; all nodes may have been replaced. (D60)"""
    nodes = learned()
    assert nodes.learn([ClusterView(A, foreign((b"d", 4, b"id-d")))], NOW)
    assert ("d", 4) == nodes.owner(0)


def test_a_node_that_is_left_alone_is_believed() -> None:
    """The cluster has shrunk to one node. (D60)"""
    nodes = learned()
    assert nodes.learn([ClusterView(B, foreign((b"b", 2, b"id-b")))], NOW)
    assert (B,) == nodes.primaries


def test_a_slot_with_two_owners_belongs_to_the_one_with_the_higher_epoch() -> None:
    """Whichever view comes first, as between nodes; other slots are merged from all views. (D50)"""
    stale = view(A, (A, 1), (B, 2), (C, 3))
    fresh = view(B, (D, 7), (B, 2), (C, 3))
    for views in ([stale, fresh], [fresh, stale]):
        nodes = ClusterMap([A, B])
        assert nodes.learn(views, NOW)
        assert (D, B, C) == nodes.primaries


def test_without_epochs_a_node_that_is_asked_last_is_believed_last() -> None:
    """As where the right to CLUSTER NODES is missing. (D50)"""
    nodes = ClusterMap([A, B])
    nodes.ask_last([A], NOW)
    stale = view(A, (A, 1), (B, 2), (C, 3), epochs=False)
    fresh = view(B, (D, 7), (B, 2), (C, 3), epochs=False)
    assert nodes.learn([stale, fresh], NOW)
    assert (D, B, C) == nodes.primaries


def test_a_node_that_knows_only_itself_does_not_empty_the_map() -> None:
    """It says nothing of the slots of others, which stay where they were. (D50)"""
    nodes = ClusterMap([A])
    assert nodes.learn([view(A, (A, 1), (B, 2), (C, 3))], NOW)
    assert nodes.learn([ClusterView(A, [[0, 9, [b"a", 1, b"id-a", []]]])], NOW)
    assert (A, B, C) == nodes.primaries
    assert nodes.learn([view(B, (D, 4), (B, 2), (C, 3))], NOW), "the others are still nodes of this cluster"


def test_slots_that_no_view_names_have_no_owner() -> None:
    """The nodes know one another, and none serves the slots. (D50)"""
    nodes = ClusterMap([A])
    assert nodes.learn([view(A, (A, 1), (B, 2), (C, 3))], NOW)
    assert nodes.learn([ClusterView(A, [[0, 9, [b"a", 1, b"id-a"]], [10, 19, [b"b", 2, b"id-b"]]])], NOW)
    assert (A, B) == nodes.primaries
    assert nodes.owner(20) is None


def test_nodes_that_are_asked_last_take_no_calls_without_a_key() -> None:
    """Unless all primaries are; then the one that has been so for the longest time. (D50)"""
    nodes = learned()
    nodes.ask_last([A], NOW)
    assert B == nodes.any_primary()
    nodes.ask_last([B], NOW + 1)
    assert A == nodes.any_primary()
    assert ClusterMap([A]).any_primary() is None


def test_the_source_of_a_map_that_led_to_an_error_is_asked_last() -> None:
    """Its doubts may come from a call of before the map was learned; these say nothing of it. (D50)"""
    nodes = learned()
    nodes.doubt(0, NOW)
    assert not nodes.is_late(A, NOW)
    nodes.doubt(1, NOW)
    assert nodes.is_late(A, NOW)
    assert [{B, C}, {A}] == query_groups(nodes)


def test_each_query_group_has_a_seed_as_long_as_any_is_left() -> None:
    """Silent or not; only the first group leaves out what is silent. (D62)"""
    seeds = [("s1", 1), ("s2", 1), ("s3", 1)]
    nodes = ClusterMap(seeds)
    old = [(f"n{number}", 1) for number in range(8)]
    assert nodes.learn([view(seeds[0], *((node, 1) for node in old))], NOW)
    assert [{*old[0:2], seeds[0]}, {*old[2:4], seeds[1]}, {*old[4:6], seeds[2]}, {*old[6:8]}] == query_groups(
        nodes
    )
    nodes.ask_last([*old[:3], *seeds[:2]], NOW)
    assert [
        {*old[3:5], seeds[2]},
        {*old[5:7], seeds[0]},
        {old[7], old[0], seeds[1]},
        {*old[1:3]},
    ] == query_groups(nodes)


def test_a_seed_is_never_forgotten() -> None:
    """However many nodes have come and gone since, of which those that are long gone are. (D62)"""
    nodes = ClusterMap([A])
    for number in range(30):
        fresh = [(f"n{number}-{place}", 1) for place in range(6)]
        assert nodes.learn([view(A, *((node, 1) for node in fresh))], NOW)
    assert A in nodes.query_groups(NOW)[0]
    assert 65 == len([node for look in nodes.query_groups(NOW) for node in look])


def test_moved_is_true_of_one_slot_and_makes_the_rest_doubtful() -> None:
    """The current owner of the slot is asked first: other nodes may not know it yet."""
    nodes = learned()
    assert (C, False) == nodes.note_redirection("MOVED 7 c:3", A, NOW)
    assert [A, C, A] == [nodes.owner(slot) for slot in (6, 7, 8)]
    assert nodes.doubted
    assert C == nodes.query_groups(NOW)[0][0]
    assert 1 == nodes.redirections


def test_moved_to_who_is_known_to_serve_it_says_nothing_new() -> None:
    """Another round has had the same answer, and the map has been learned since."""
    nodes = learned()
    assert (B, False) == nodes.note_redirection("MOVED 9000 b:2", A, NOW)
    assert not nodes.doubted


def test_ask_is_for_this_once() -> None:
    """The slot is still on its way."""
    nodes = learned()
    assert (B, True) == nodes.note_redirection("ASK 7 b:2", A, NOW)
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
    assert (address, False) == learned().note_redirection(reply, A, NOW)


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
def test_a_reply_that_is_not_a_redirection_is_ignored(reply: str) -> None:
    """No text in its place raises an error."""
    assert learned().note_redirection(reply, A, NOW) is None


def test_a_doubt_that_is_older_than_the_map_is_none() -> None:
    """The node was gone before it was learned."""
    nodes = learned()
    nodes.doubt(0, NOW)
    assert not nodes.doubted
    nodes.doubt(1, NOW)
    assert nodes.doubted


def test_all_who_speak_to_a_cluster_as_one_user_share_a_map() -> None:
    """For as long as any of them is there."""
    first, other = (get_cluster_map(parse_redis_url("redis-cluster://h1,h2")) for _ in range(2))
    assert first is other
    assert first is not get_cluster_map(parse_redis_url("redis-cluster://u:p@h1,h2"))


@pytest.mark.parametrize(
    "key",
    [
        queue_keys("default").pending,
        queue_keys("a b/ü").task("x"),
        SERVERS_KEY,
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
    assert find_slot(key) == find_slot(guard) == key_slot(key.encode())


@pytest.mark.parametrize("key", ["{}", "a}b", "a}b{c"])
def test_a_key_whose_tag_cannot_be_written_again_has_no_guard(key: str) -> None:
    """No queue has such keys."""
    assert guard_key(key) is None
