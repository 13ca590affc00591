"""A cluster whose nodes are spoken to over TLS, and name one another by the ports where that is so."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pyasynq import sync
from pyasynq._redis.cluster.slot_map import find_slot
from pyasynq._redis.plan import CommandCall, Replay, ask
from pyasynq._wire.keys import queue_keys
from pyasynq.config import ServerConfig
from pyasynq.errors import RedisTLSError, RedisUnavailableError
from pyasynq.events import Outcome
from pyasynq.task import Task
from tests.fix_cluster import Cluster
from tests.fix_engine import do_nothing, serving
from tests.fix_tls import TlsFront
from tests.run_async import run_async
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fix_cluster import Node
    from tests.fix_drivers import ClientFace, DriverFace
    from tests.fix_tls import Certificates

KEYS = queue_keys("default")
SLOT = find_slot(KEYS.pending)
QUEUES = ("default", "q1", "q2", "q3", "q4", "q5")


class Fronted(NamedTuple):
    """The cluster, the TLS proxies of its nodes in order, and the URL with the authority."""

    cluster: Cluster
    fronts: list[TlsFront]
    url: str

    def is_the_only_way(self) -> bool:
        """Return whether each node has connections of ours, and as many as its front."""
        pairs = zip(self.cluster.nodes, self.fronts, strict=True)
        return all(0 < _ours(node) == front.connections for node, front in pairs)

    @property
    def bare_url(self) -> str:
        """The URL without the authority."""
        return self.url.partition("?")[0]


@pytest.fixture(scope="module")
def fronted_cluster(certificates: Certificates) -> Iterator[Fronted]:
    """A cluster of this module: its nodes know one another by the ports of what ends TLS before them."""
    cluster = Cluster()
    with ExitStack() as opened:
        fronts = [
            opened.enter_context(TlsFront(f"redis://{host}:{port}", certificates.server))
            for host, port in (node.address for node in cluster.nodes)
        ]
        for node, front in zip(cluster.nodes, fronts, strict=True):
            node.announced_port = front.port
        opened.enter_context(cluster)
        ports = {front.port for front in fronts}
        wait_until(
            lambda: all(_ports_told_by(node) == ports for node in cluster.nodes), "all nodes name the fronts"
        )
        hosts = ",".join(f"127.0.0.1:{front.port}" for front in fronts)
        yield Fronted(cluster, fronts, f"rediss-cluster://{hosts}?ssl_ca_certs={certificates.authority}")


@pytest.fixture
def fronted(fronted_cluster: Fronted) -> Fronted:
    """The same, empty."""
    for node in fronted_cluster.cluster.nodes:
        node.client.flushall()
    return fronted_cluster


def _ours(node: Node) -> int:
    """Return how many connections of ours a node has."""
    return sum(one["name"].startswith("pyasynq-") for one in node.client.client_list())


def _ports_told_by(node: Node) -> set[int]:
    return {primary[1] for _, _, primary, *_ in node.cluster("SLOTS")}


@run_async
async def test_all_that_a_worker_does_goes_over_tls(fronted: Fronted) -> None:
    """Tasks of queues on every node, wake-ups, cancellations, heartbeats, a result, and the inspector."""
    config = ServerConfig(queues=dict.fromkeys(QUEUES, 1))
    async with serving(fronted.url, do_nothing, config) as running:
        for queue in QUEUES:
            await running.client.enqueue("t", task_id=f"of {queue}", queue=queue, retention=60)
        for queue in QUEUES:
            assert Outcome.SUCCEEDED is (await running.finished(f"of {queue}")).outcome
        assert "of q1" == (await running.client.wait("q1", "of q1")).id
        await running.settled()
        with sync.Inspector(fronted.url) as inspector:
            infos = await asyncio.to_thread(lambda: [inspector.queue_info(queue) for queue in QUEUES])
        assert [1] * len(QUEUES) == [info.completed for info in infos]
        came_through = "all connections of ours have come through the fronts"
        await asyncio.to_thread(wait_until, fronted.is_the_only_way, came_through)


def test_a_slot_that_moves_is_followed_to_the_port_that_speaks_tls(
    fronted: Fronted, make_client: Callable[..., ClientFace], make_driver: Callable[..., DriverFace]
) -> None:
    """ASK and MOVED name the ports that the nodes announce."""
    cluster = fronted.cluster
    source = cluster.owner(SLOT)
    to = cluster.other_than(source)
    client, driver = make_client(fronted.url), make_driver(fronted.url)
    client.enqueue(Task("t", task_id="a"))
    cluster.begin_move(SLOT, source, to)
    cluster.move_keys(SLOT, source, to)
    key = KEYS.task("a")
    asked = source.errors("ASK")
    assert b"pending" == driver.run(ask(CommandCall(("HGET", key, "state"), key, Replay.SAFE)))
    assert asked < source.errors("ASK")
    cluster.finish_move(SLOT, to)
    moved = source.errors("MOVED")
    client.enqueue(Task("t", task_id="b"))
    assert moved < source.errors("MOVED")
    assert [b"b", b"a"] == to.client.lrange(KEYS.pending, 0, -1)


def test_nodes_whose_certificate_is_not_trusted_are_an_error_at_once(
    fronted: Fronted, make_client: Callable[..., ClientFace]
) -> None:
    """It names a node and the remedy."""
    with pytest.raises(RedisTLSError, match=r"127\.0\.0\.1:\d+ cannot .* not trusted .* ssl_ca_certs="):
        make_client(fronted.bare_url, timeout=60).ping()


def test_nodes_that_speak_tls_do_not_answer_who_does_not(
    fronted: Fronted, make_client: Callable[..., ClientFace]
) -> None:
    """A URL of the wrong scheme is told so."""
    url = fronted.bare_url.replace("rediss-cluster", "redis-cluster")
    with pytest.raises(RedisUnavailableError, match="rediss"):
        make_client(url, timeout=2).ping()
