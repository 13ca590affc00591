"""Calls find their nodes, on a real cluster."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import sync
from pyasynq._redis.addresses import format_address
from pyasynq._redis.cluster.slot_map import SLOTS, find_slot, get_cluster_map
from pyasynq._redis.cluster.view import ClusterView
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.facts import check_health
from pyasynq._redis.plan import CommandCall, Plan, Replay, ask
from pyasynq._redis.subscription import Subscription
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import RedisReplyError, RedisUnavailableError
from pyasynq.info import ClusterNode
from pyasynq.task import Task
from tests.invariants import check_invariants
from tests.ports import free_port
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fix_cluster import Cluster
    from tests.fix_drivers import ClientFace, DriverFace

QUEUES = [f"q{number}" for number in range(30)]


def get(key: str) -> Plan[Any]:
    """Read a key."""
    return ask(CommandCall(("GET", key), key, Replay.SAFE))


def test_a_batch_is_spread_over_the_nodes_of_its_keys(
    cluster: Cluster, make_client: Callable[..., ClientFace]
) -> None:
    """Each queue is where its slot is, and scripts are loaded where they are missing."""
    client = make_client(cluster.url)
    results = client.enqueue_many(Task("t", queue=queue) for queue in QUEUES)
    assert [None] * len(QUEUES) == [result.error for result in results]
    sizes = [
        sum(
            node.client.llen(queue_keys(queue).pending) for queue in QUEUES if _lives_on(cluster, queue, node)
        )
        for node in cluster.primaries
    ]
    assert len(QUEUES) == sum(sizes)
    assert all(sizes)
    with cluster.client() as looking:
        check_invariants(looking)


def _lives_on(cluster: Cluster, queue: str, node: object) -> bool:
    return cluster.owner(find_slot(queue_keys(queue).pending)) is node


def test_an_error_belongs_to_its_own_plan(cluster: Cluster, make_driver: Callable[..., DriverFace]) -> None:
    """The calls next to it on the same node, and on others, get their replies."""
    with cluster.client() as client:
        client.lpush("{a}list", "x")
        for key in ("{a}text", "{b}text", "{c}text"):
            client.set(key, key)
        found = make_driver(cluster.url).run_batch(
            [get("{a}text"), get("{a}list"), get("{b}text"), get("{c}text")]
        )
        client.flushall()
    assert [b"{a}text", b"{b}text", b"{c}text"] == [found[0], *found[2:]]
    assert isinstance(found[1], RedisReplyError)


def test_a_slot_is_a_place_on_the_node_that_serves_it(
    cluster: Cluster, make_driver: Callable[..., DriverFace]
) -> None:
    """A call to each of the places reaches each primary once."""
    driver = make_driver(cluster.url)
    driver.run(check_health())
    ids = [
        driver.run(ask(CommandCall(("CLUSTER", "MYID"), place, Replay.SAFE))).decode()
        for place in driver.driver.places
    ]
    assert sorted(node.id for node in cluster.primaries) == sorted(ids)


def test_connections_to_nodes_that_serve_nothing_any_more_are_closed(
    cluster: Cluster, make_driver: Callable[..., DriverFace]
) -> None:
    """As after a fail-over; the node may still be there, as a replica."""
    face = make_driver(cluster.url)
    face.run_batch([get(key) for key in ("{a}", "{b}", "{c}")])
    driver: Any = face.driver
    home = driver._per_loop.all()[0] if isinstance(driver, AsyncDriver) else driver._own
    connections: Any = home.connections
    assert {node.address for node in cluster.primaries} == set(connections._pools)
    stays = cluster.owner(find_slot("{a}")).address
    view = ClusterView(stays, [[0, SLOTS - 1, [stays[0].encode(), stays[1], b"id"]]])
    get_cluster_map(face.driver.target).learn([view], time.monotonic())
    assert None is face.run(get("{a}"))
    assert {stays} == set(connections._pools)


def test_seeds_that_do_not_answer_are_passed_over(
    cluster: Cluster, make_client: Callable[..., ClientFace]
) -> None:
    """One that does is enough to know all."""
    one = format_address(cluster.primaries[2].address)
    client = make_client(f"redis-cluster://127.0.0.1:1,{one}")
    results = client.enqueue_many(Task("t", queue=queue) for queue in QUEUES)
    assert [None] * len(QUEUES) == [result.error for result in results]


def test_where_no_seed_answers_the_error_names_all(make_client: Callable[..., ClientFace]) -> None:
    """And says why the last one that was tried did not."""
    client = make_client("redis-cluster://127.0.0.1:1,127.0.0.1:2", timeout=1.0)
    with pytest.raises(
        RedisUnavailableError, match=r"127\.0\.0\.1:1,127\.0\.0\.1:2 .* nothing listens there"
    ):
        client.ping()


def test_a_single_server_behind_a_url_of_a_cluster_says_so(
    own_server: Any, make_client: Callable[..., ClientFace]
) -> None:
    """At once, and with the remedy."""
    own_server.stop()
    port = free_port()
    own_server.start("--port", str(port), "--bind", "127.0.0.1")
    own_server.connect().close()
    client = make_client(f"redis-cluster://127.0.0.1:{port}")
    with pytest.raises(RedisReplyError, match=r"is not a cluster .* begins with redis://"):
        client.ping()


def test_a_node_of_a_cluster_behind_the_url_of_a_server_says_so(
    cluster: Cluster, make_driver: Callable[..., DriverFace]
) -> None:
    """The server's word for it is MOVED."""
    stranger = next(node for node in cluster.primaries if node is not cluster.owner(find_slot("k")))
    driver = make_driver(f"redis://{format_address(stranger.address)}")
    with pytest.raises(RedisReplyError, match="cluster node: its URL begins with redis-cluster://"):
        driver.run(get("k"))


AT_EXIT = """
import atexit, sys
from pyasynq import Task, sync

def enqueue():
    with sync.Client(sys.argv[1]) as client:
        results = client.enqueue_many(Task("t", queue=f"q{number}") for number in range(30))
    print(sum(result.error is None for result in results))

atexit.register(enqueue)
"""


def test_a_program_may_enqueue_when_it_ends(cluster: Cluster) -> None:
    """By `atexit`, when executors take no more work, and Python 3.12 starts no more threads."""
    ended = subprocess.run(
        [sys.executable, "-c", AT_EXIT, cluster.url], capture_output=True, text=True, check=True, timeout=60
    )
    assert ("30\n", "") == (ended.stdout, ended.stderr)


def test_a_silent_node_does_not_hold_up_calls_to_other_nodes(
    cluster: Cluster, make_driver: Callable[..., DriverFace]
) -> None:
    """What the others have done in the same round stands."""
    driver = make_driver(cluster.url, timeout=0.5)
    keys = ["{a}", "{b}", "{c}"]
    owners = [cluster.owner(find_slot(key)) for key in keys]
    assert 3 == len(set(owners))
    driver.run_batch([get(key) for key in keys])
    owners[0].signal(signal.SIGSTOP)
    try:
        found = driver.run_batch([get(key) for key in keys])
    finally:
        owners[0].signal(signal.SIGCONT)
    assert isinstance(found[0], Exception)
    assert [None, None] == found[1:]
    assert None is driver.run(get(keys[0]))


def test_the_inspector_tells_where_a_queue_lives(cluster: Cluster) -> None:
    """Its slot, the nodes that serve it, and what the cluster says of itself."""
    slot = find_slot(queue_keys("default").pending)
    owner = cluster.owner(slot)
    with sync.Inspector(cluster.url) as inspector:
        assert slot == inspector.cluster_keyslot("default")
        nodes = inspector.cluster_nodes("default")
        assert [ClusterNode(owner.id, format_address(owner.address))] == nodes
        assert {"cluster_state": "ok", "cluster_size": "3"}.items() <= inspector.redis_info().items()


def test_a_single_server_has_no_slots_and_tells_of_itself(redis_url: str) -> None:
    """The reply to the question is the error."""
    if redis_url.startswith("redis-cluster"):
        pytest.skip("only on a single server")
    with sync.Inspector(redis_url) as inspector:
        assert "redis_version" in inspector.redis_info()
        with pytest.raises(RedisReplyError, match="cluster support disabled"):
            inspector.cluster_nodes("default")


@run_async
async def test_what_is_published_on_one_node_is_heard_on_another(cluster: Cluster) -> None:
    """A subscription is on any node."""
    async with Subscription(parse_redis_url(cluster.url), "asynq:cancel") as messages:
        for number, node in enumerate(cluster.primaries):
            await asyncio.to_thread(node.client.publish, "asynq:cancel", str(number))
            assert str(number).encode() == await anext(messages)
