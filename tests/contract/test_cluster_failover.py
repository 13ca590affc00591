"""Primaries die, and replicas take their places."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from typing import TYPE_CHECKING

import pytest

from pyasynq import sync
from pyasynq._redis.addresses import format_address
from pyasynq._redis.cluster.slot_map import SLOTS, find_slot
from pyasynq._wire.keys import queue_keys
from pyasynq.config import ServerConfig
from pyasynq.task import Task
from tests.fix_engine import QUICK, serving
from tests.fix_replica import wait_for_replication
from tests.invariants import check_invariants
from tests.redis_6 import is_redis_6
from tests.run_async import run_async
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fix_cluster import Cluster, Node
    from tests.fix_drivers import ClientFace

PENDING = queue_keys("default").pending


def queues_of_each_node(cluster: Cluster) -> list[str]:
    """Return a queue on each primary."""
    owners: dict[int, str] = {}
    for number in range(100):
        slot = find_slot(queue_keys(f"q{number}").pending)
        owners.setdefault(cluster.owner(slot).address[1], f"q{number}")
    assert 3 == len(owners)
    return list(owners.values())


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_an_enqueue_waits_for_the_replica_that_takes_over(
    own_cluster: Cluster, make_client: Callable[..., ClientFace], end: signal.Signals
) -> None:
    """Whatever the primary does, its slots are served again, and what it had confirmed is there."""
    client = make_client(own_cluster.url, timeout=3.0)
    client.enqueue(Task("t", task_id="before"))
    primary = own_cluster.owner(find_slot(PENDING))
    wait_for_replication(primary.client)
    primary.signal(end)
    wait_until(lambda: _enqueued(client), "an enqueue succeeds")
    teller = next(node for node in own_cluster.nodes if node is not primary)
    # This node may learn later than the client who has taken over.
    wait_until(
        lambda: own_cluster.owner(find_slot(PENDING), told_by=teller) is not primary, "it is known who serves"
    )
    successor = own_cluster.owner(find_slot(PENDING), told_by=teller)
    assert {b"before", b"after"} == set(successor.client.lrange(PENDING, 0, -1))


def _enqueued(client: ClientFace) -> bool:
    try:
        client.enqueue(Task("t", task_id="after"))
    except ConnectionError:  # it says so, and nothing was done, or it may have been
        return False
    return True


@run_async
async def test_a_worker_goes_on_when_a_primary_dies(own_cluster: Cluster) -> None:
    """On the other nodes at once, on that one's slots when its replica has taken over."""
    queues = await asyncio.to_thread(queues_of_each_node, own_cluster)
    ran: asyncio.Queue[str] = asyncio.Queue()

    async def handle(task: Task) -> None:
        await ran.put((task.payload or b"").decode())

    config = ServerConfig(queues=dict.fromkeys(queues, 1), concurrency=10)
    async with serving(own_cluster.url, handle, config) as running:
        for queue in queues:
            await running.client.enqueue(Task("t", queue.encode(), queue=queue))
        assert set(queues) == {await ran.get() for _ in queues}
        await running.settled()
        victim = own_cluster.owner(find_slot(queue_keys(queues[0]).pending))
        await asyncio.to_thread(victim.kill)
        for queue in queues[1:]:
            await running.client.enqueue(Task("t", b"during", queue=queue))
        assert ["during"] * 2 == [await ran.get() for _ in queues[1:]]
        await asyncio.to_thread(_enqueue_patiently, own_cluster.url, queues[0])
        assert "after" == await ran.get()
        await running.settled()
    with own_cluster.client() as client:
        check_invariants(client)


@pytest.mark.long
def test_a_primary_that_is_cut_off_from_its_peers_does_not_hide_its_fail_over(
    own_cluster: Cluster, make_client: Callable[..., ClientFace]
) -> None:
    """It answers us with its old view and refuses the call; the others know who has its slots. (D50)"""
    primary = own_cluster.primaries[0]
    if is_redis_6(primary.client):
        pytest.skip("only on servers whose port for their peers can be chosen")
    queue = next(queue for queue in queues_of_each_node(own_cluster) if _owner(own_cluster, queue) is primary)
    client = make_client(own_cluster.url, timeout=3.0)
    client.enqueue(Task("t", queue=queue))
    primary.cut_off()  # its data is gone, for its replica too
    others = [node for node in own_cluster.nodes if node is not primary]
    wait_until(lambda: _hears_no_other(primary), "a node that hears no other")
    wait_until(lambda: b"cluster_state:fail" in primary.cluster("INFO"), "a node that knows of it")
    wait_until(lambda: all(_goes_on(own_cluster, primary, node) for node in others), "a fail-over")
    assert primary is _owner(own_cluster, queue, told_by=primary)
    newcomer = make_client(f"redis-cluster://{format_address(primary.address)}", timeout=3.0)
    for task_id, one in {"a": client, "b": newcomer}.items():
        one.enqueue(Task("t", task_id=task_id, queue=queue))
    successor = _owner(own_cluster, queue, told_by=others[0])
    assert {b"a", b"b"} == set(successor.client.lrange(queue_keys(queue).pending, 0, -1))


def _owner(cluster: Cluster, queue: str, *, told_by: Node | None = None) -> Node:
    return cluster.owner(find_slot(queue_keys(queue).pending), told_by=told_by)


def _hears_no_other(node: Node) -> bool:
    """Return whether a node takes all others that it knows for failed, or probably failed."""
    flags = [line.split()[2].split(b",") for line in node.cluster("NODES").splitlines()]
    return all({b"myself", b"fail", b"fail?"} & set(names) for names in flags)


def _goes_on(cluster: Cluster, without: Node, told_by: Node) -> bool:
    """Return whether a node knows that all slots are served, by others."""
    owners = [cluster.owner(slot, told_by=told_by) for slot in (0, SLOTS // 2, SLOTS - 1)]
    return without not in owners and b"cluster_state:ok" in told_by.cluster("INFO")


def _enqueue_patiently(url: str, queue: str) -> None:
    with sync.Client(url, timeout=30.0) as client:
        client.enqueue(Task("t", b"after", queue=queue))


@run_async
async def test_queues_on_all_nodes_wake_a_worker_that_rests(cluster: Cluster) -> None:
    """Redis pushes on the connection to each node, and no poll could find a task."""
    queues = await asyncio.to_thread(queues_of_each_node, cluster)

    async def handle(task: Task) -> None:
        del task

    config = ServerConfig(queues=dict.fromkeys(queues, 1), concurrency=10)
    settings = dataclasses.replace(QUICK, look_interval=1_000, held_poll=1_000)
    async with serving(cluster.url, handle, config, settings) as running:
        for number in range(10):
            for queue in queues:
                await running.settled()
                task_id = f"{queue}-{number}"
                await running.client.enqueue(Task("t", task_id=task_id, queue=queue))
                await running.finished(task_id)
        await running.settled()


@run_async
async def test_a_worker_drains_queues_that_are_spread_over_the_nodes(cluster: Cluster) -> None:
    """One worker, ten queues, a thousand tasks."""
    queues = [f"drain{number}" for number in range(10)]
    count = 0
    over = asyncio.Event()

    async def handle(task: Task) -> None:
        nonlocal count
        del task
        count += 1
        if count == 1_000:
            over.set()

    config = ServerConfig(queues=dict.fromkeys(queues, 1), concurrency=50)
    async with serving(cluster.url, handle, config) as running:
        await running.client.enqueue_many(Task("t", queue=queues[number % 10]) for number in range(1_000))
        await over.wait()
        await running.settled()
    with sync.Inspector(cluster.url) as inspector:
        assert [100] * 10 == [inspector.queue_info(queue).processed for queue in queues]
    with cluster.client() as client:
        check_invariants(client)
