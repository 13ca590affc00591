"""Hosted types on a Redis Cluster: lists and reports of commands in other slots than their queues."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import redis

from pyasynq import Client
from pyasynq._redis.cluster.slot_map import find_slot
from pyasynq._wire.keys import COMMANDS_KEY, queue_keys, shard_keys
from pyasynq.errors import RedisError
from pyasynq.task import Task
from tests.cluster_client import client_of
from tests.contract.gateway.test_command_reports import until_listed
from tests.contract.gateway.test_hosted_cmd import JUDGED
from tests.fix_cluster import Cluster
from tests.fix_commands import ON_LINUX
from tests.fix_list_worker import ListWorker
from tests.fix_replica import wait_for_replication
from tests.fix_service import serving
from tests.invariants import check_invariants
from tests.run_async import run_async
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.fix_cluster import Node
    from tests.fix_service import Visitor

SHARDS = 2
NODE_TIMEOUT = 15.0
"""Seconds: the default of Redis, and as long as a heartbeat lives."""
KIND = {"kind": "list", "shards": SHARDS, "retention": "1h", "max_retry": 5, "retry": ["1h"]}


@pytest.fixture
def slow_cluster() -> Iterator[Cluster]:
    """A cluster of the test's own, whose replicas take over as late as in production."""
    with Cluster(replicas=1, node_timeout=NODE_TIMEOUT) as cluster:
        yield cluster


def node_of(cluster: Cluster, key: str) -> Node:
    """Return the node that serves a key."""
    return cluster.owner(find_slot(key))


def find_type(cluster: Cluster, is_fit: Callable[[list[Node]], bool]) -> str:
    """Return a type by the nodes of its queue and of its shards."""
    for number in range(1_000):
        name = f"f{number}"
        keys = [queue_keys(name).pending, *(shard_keys(name, shard).entries for shard in range(SHARDS))]
        if is_fit([node_of(cluster, key) for key in keys]):
            return name
    raise LookupError


def are_different(nodes: list[Node]) -> bool:
    """Return whether no node is named twice."""
    return len({node.address for node in nodes}) == len(nodes)


class PatientWorker:
    """Worker of one shard, in a thread, which goes on after each error of its connection."""

    def __init__(self, url: str, task_type: str, shard: int, record: list[tuple[float, str]]) -> None:
        self._url = url
        self._worker = ListWorker(client_of(url), task_type, shard)
        self._record = record
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Finish the present task, and leave."""
        self._is_ending.set()
        self._thread.join()
        self._worker.end()
        self._worker.client.close()

    def _run(self) -> None:
        while not self._is_ending.is_set():
            if (entry := self._patiently(self._take)) is not None:
                task_id = json.loads(entry)["id"]
                self._record.append((time.monotonic(), task_id))
                self._patiently(partial(self._worker.reply, entry, "complete", result=task_id))

    def _take(self) -> bytes | None:
        self._worker.beat()
        # The reply to an earlier call may have been lost.
        held = self._worker.client.lrange(self._worker.held, 0, 0)
        names = (self._worker.list, self._worker.held)
        taken: bytes | None = held[0] if held else self._worker.client.blmove(*names, 1, "LEFT", "RIGHT")
        return taken

    def _patiently(self, call: Callable[[], bytes | None]) -> bytes | None:
        while True:
            try:
                return call()
            except redis.RedisError:
                time.sleep(0.05)
                self._worker.client.close()
                self._worker.client = client_of(self._url)


@asynccontextmanager
async def working(
    cluster: Cluster, task_type: str, workers: int = SHARDS
) -> AsyncIterator[tuple[Visitor, list[tuple[float, str]]]]:
    """Run an instance and workers of each shard; give what they begin, each with its time."""
    record: list[tuple[float, str]] = []
    async with serving(cluster.url, {task_type: KIND}) as visitor:
        await visitor.service.start()
        running = [
            PatientWorker(cluster.url, task_type, number % SHARDS, record) for number in range(workers)
        ]
        try:
            yield visitor, record
        finally:
            await asyncio.gather(*(asyncio.to_thread(one.end) for one in running))


async def enqueue_tasks(url: str, task_type: str, numbers: range) -> None:
    """Enqueue tasks with numbers as ids, and wait for Redis as long as it takes."""
    async with Client(url, timeout=30.0) as client:
        await client.enqueue_many(
            Task(task_type, queue=task_type, task_id=str(number), retention=3_600) for number in numbers
        )


async def until_completed(visitor: Visitor, task_type: str, number: int) -> None:
    """Wait until this many tasks are completed."""
    while True:
        try:
            if (await visitor.operator.queue(task_type)).completed >= number:
                return
        except RedisError:  # a fail-over
            pass
        await asyncio.sleep(0.05)


@run_async
async def test_a_list_and_its_queue_may_be_on_different_nodes(cluster: Cluster) -> None:
    """Each task runs once, on both shards."""
    task_type = await asyncio.to_thread(find_type, cluster, are_different)
    async with working(cluster, task_type) as (visitor, record):
        await enqueue_tasks(cluster.url, task_type, range(100))
        await until_completed(visitor, task_type, 100)
    assert Counter({str(number): 1 for number in range(100)}) == Counter(task_id for _, task_id in record)
    with cluster.client() as client:
        check_invariants(client)


@ON_LINUX
@run_async
async def test_reports_of_commands_may_be_on_another_node_than_their_queue(cluster: Cluster) -> None:
    """While they run, and after their end."""
    reports = await asyncio.to_thread(node_of, cluster, COMMANDS_KEY)
    task_type = await asyncio.to_thread(find_type, cluster, lambda nodes: nodes[0] is not reports)
    kind = {"kind": "cmd", "argv": JUDGED, "retention": "1h"}
    async with serving(cluster.url, {task_type: kind}) as visitor, Client(cluster.url) as client:
        await visitor.service.start()
        await client.enqueue(Task(task_type, b"echo half; sleep 1000", queue=task_type, task_id="a"))
        running = await until_listed(visitor, lambda one: one.out_bytes)
        await visitor.operator.cancel_task(task_type, "a")
        stopped = await until_listed(visitor, lambda one: one.state != "running")
    assert ("running", b"half\n", "stopped") == (running.state, running.out, stopped.state)


@pytest.mark.parametrize("place", [0, 1], ids=["queue", "list"])
@run_async
async def test_a_planned_fail_over_loses_no_task_and_runs_none_twice(
    own_cluster: Cluster, place: int
) -> None:
    """The replica takes over under load, with all that its primary has."""
    task_type = await asyncio.to_thread(find_type, own_cluster, are_different)
    key = [queue_keys(task_type).pending, shard_keys(task_type, 0).entries][place]
    primary = await asyncio.to_thread(node_of, own_cluster, key)
    async with working(own_cluster, task_type, 4) as (visitor, record):
        await enqueue_tasks(own_cluster.url, task_type, range(300))
        await until_completed(visitor, task_type, 50)
        await asyncio.to_thread(fail_over, own_cluster, primary, key)
        await until_completed(visitor, task_type, 300)
    assert Counter({str(number): 1 for number in range(300)}) == Counter(task_id for _, task_id in record)


@pytest.mark.long
@run_async
async def test_a_dead_node_stops_its_own_lists_only_and_costs_no_crash(slow_cluster: Cluster) -> None:
    """The heartbeats on it expire before its replica takes over; the workers are told so only then."""
    task_type = await asyncio.to_thread(find_type, slow_cluster, are_different)
    shard = shard_keys(task_type, 0).entries
    primary = node_of(slow_cluster, shard)
    worker = ListWorker(slow_cluster.client(), task_type, 0)
    async with serving(slow_cluster.url, {task_type: KIND}) as visitor:
        await visitor.service.start()
        await enqueue_tasks(slow_cluster.url, task_type, range(20))
        taken = await asyncio.to_thread(worker.take)
        assert taken is not None
        wait_for_replication(primary.client)
        await asyncio.to_thread(primary.kill)
        record: list[tuple[float, str]] = []
        other = PatientWorker(slow_cluster.url, task_type, 1, record)
        survivor = next(node for node in slow_cluster.primaries if node is not primary)

        def has_failed_over() -> bool:
            return slow_cluster.owner(find_slot(shard), told_by=survivor) is not primary

        await asyncio.to_thread(wait_until, lambda: len(record) == 19)
        assert not has_failed_over()
        await asyncio.to_thread(wait_until, has_failed_over)
        await until_swept(visitor, task_type)
        worker.client.close()
        worker.client = slow_cluster.client()
        worker.beat()
        worker.reply(taken[0], "complete")
        await until_completed(visitor, task_type, 20)
        task = await visitor.operator.task(task_type, json.loads(taken[0])["id"])
        assert (0, 0) == (task.crashes, task.retried)
        await asyncio.to_thread(other.end)
    worker.client.close()
    assert 19 == len(record)


async def until_swept(visitor: Visitor, task_type: str) -> None:
    """Wait until an instance has seen the first shard of a type three times from now on."""
    lists = visitor.service._lists
    assert lists is not None
    shard = lists._bridges[task_type]._shards[0]
    for _ in range(3):
        before = shard.swept_at
        while shard.swept_at == before:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.05)


def fail_over(cluster: Cluster, primary: Node, key: str) -> None:
    """Let the replica of a primary take over, and wait until it has."""
    replicas = [node for node in cluster.nodes if is_replica_of(node, primary)]
    replicas[0].cluster("FAILOVER")
    wait_until(lambda: node_of(cluster, key) is replicas[0], "the replica takes over")


def is_replica_of(node: Node, primary: Node) -> bool:
    """Return whether a node replicates another."""
    lines = str(primary.cluster("NODES").decode()).splitlines()
    fields = next(fields for fields in map(str.split, lines) if fields[0] == node.id)
    return fields[3] == primary.id
