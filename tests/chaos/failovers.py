"""Scenarios: a primary under Sentinel or of a cluster fails, and slots move while tasks run.

Where a primary fails, every task is enqueued with `durable`: an enqueue is acknowledged when all replicas
have it, and no failover may lose it. With fewer, the replica that takes over may be another one. The outcome
of a run is not waited for, so a failover may undo it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final, cast

import psutil
from redis.crc import key_slot

from pyasynq._wire.keys import queue_keys
from tests.chaos.load import mixed_task
from tests.chaos.scenario import NothingTwice, Scenario
from tests.chaos.settings import QUEUE
from tests.fix_cluster import Cluster
from tests.fix_sentinel import SentinelGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from random import Random

    from pyasynq.task import Task
    from tests.chaos.bed import Bed
    from tests.chaos.stage import Stage
    from tests.fix_cluster import Node
    from tests.invariants import RedisClient

SLOT: Final = key_slot(queue_keys(QUEUE).pending.encode())
"""All keys of the queue are in it."""
_PATIENCE_SECONDS: Final = 60.0


class SentinelBed:
    """A primary, two replicas and three Sentinels."""

    def __init__(self, group: SentinelGroup) -> None:
        self.group = group
        self.url = group.url()

    @property
    def processes(self) -> Sequence[psutil.Process]:
        """The three servers."""
        return [_listening_on(server.port) for server in self.group.servers]

    def client(self) -> RedisClient:
        """Return a client of the primary."""
        return self.group.primary.client

    def kill_primary(self) -> None:
        """Kill it, and wait until the Sentinels have made another one."""
        self.group.kill_primary()


class ClusterBed:
    """Three primaries with a replica each."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = cluster.url

    @property
    def processes(self) -> Sequence[psutil.Process]:
        """The six nodes."""
        return [_listening_on(node.address[1]) for node in self.cluster.nodes]

    @property
    def primary(self) -> Node:
        """The node that has the queue."""
        return self.cluster.owner(SLOT, told_by=next(node for node in self.cluster.nodes if node.answers()))

    def client(self) -> RedisClient:
        """Return a client of the whole cluster."""
        return self.cluster.client()

    def kill_primary(self) -> None:
        """Kill the node that has the queue; return when its replica has taken over and it is back."""
        dead = self.primary
        dead.kill()
        _wait(lambda: self.primary is not dead, "the replica takes over")
        # Not before: it would come back without its data, and still be the primary.
        dead.start()
        _wait(
            lambda: dead.client.info("replication").get("master_link_status") == "up",
            "it is a replica in step",
        )


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            message = f"after {_PATIENCE_SECONDS:g} s still not: {what}"
            raise RuntimeError(message)
        time.sleep(0.05)


def _listening_on(port: int) -> psutil.Process:
    return next(
        psutil.Process(one.pid)
        for one in psutil.net_connections("tcp")
        if one.laddr and one.laddr.port == port and one.status == psutil.CONN_LISTEN
    )


@contextmanager
def _sentinel_bed(folder: Path) -> Iterator[SentinelBed]:
    group = SentinelGroup(folder)
    try:
        group.start()
        yield SentinelBed(group)
    finally:
        group.stop()


@contextmanager
def _cluster_bed(*, replicas: int) -> Iterator[ClusterBed]:
    with Cluster(replicas=replicas) as cluster:
        yield ClusterBed(cluster)


class _Durable(Scenario):
    """Acknowledged is what all replicas of the primary have: any of them may take its place."""

    tasks: ClassVar = 30_000
    undoes: ClassVar = True
    replicas: ClassVar[int] = 1

    def make_task(self, random: Random, task_id: str) -> Task:
        """Return a task of the usual kinds."""
        task = mixed_task(random, task_id)
        task.options["durable"] = self.replicas
        return task


class PrimaryKilled(_Durable):
    """The primary under Sentinel is killed, or has to step down for a replica."""

    name: ClassVar = "failover by Sentinel"
    replicas: ClassVar = 2

    def bed(self, folder: Path) -> AbstractContextManager[Bed]:
        """Return a Sentinel group."""
        return _sentinel_bed(folder)

    async def inject(self, stage: Stage) -> None:
        """Do it twice, once so and once so."""
        group = cast("SentinelBed", stage.bed).group
        kinds = [("SIGKILL of the primary", group.kill_primary), ("SENTINEL FAILOVER", group.fail_over)]
        stage.random.shuffle(kinds)
        for kind, act in kinds:
            await stage.pause(1, 3)
            with stage.fault(kind):
                await asyncio.to_thread(act)
                await asyncio.to_thread(group.heal)


class ClusterPrimaryKilled(_Durable):
    """The node of the cluster that has the queue is killed, and its replica takes over."""

    name: ClassVar = "cluster primary killed"

    def bed(self, folder: Path) -> AbstractContextManager[Bed]:
        """Return a cluster of six."""
        return _cluster_bed(replicas=1)

    async def inject(self, stage: Stage) -> None:
        """Do it twice."""
        for _ in range(2):
            await stage.pause(1, 3)
            with stage.fault("SIGKILL of the primary"):
                await asyncio.to_thread(stage.bed.kill_primary)


class SlotsMoved(NothingTwice):
    """The slot with all keys of the queue moves from node to node while tasks are enqueued and run."""

    name: ClassVar = "slots moved"
    tasks: ClassVar = 30_000

    def bed(self, folder: Path) -> AbstractContextManager[Bed]:
        """Return a cluster of three."""
        return _cluster_bed(replicas=0)

    async def inject(self, stage: Stage) -> None:
        """Move it while there is work."""
        bed = cast("ClusterBed", stage.bed)
        while stage.is_busy:
            await stage.pause(0.2, 1)
            others = [node for node in bed.cluster.primaries if node is not bed.primary]
            with stage.fault("slot moved"):
                await asyncio.to_thread(_move, bed, stage.random.choice(others))


def _move(bed: ClusterBed, to: Node) -> None:
    """Move the slot with all its keys, of which there are more than fit into one call."""
    cluster, source = bed.cluster, bed.primary
    cluster.begin_move(SLOT, source, to)
    while source.cluster("COUNTKEYSINSLOT", SLOT):
        cluster.move_keys(SLOT, source, to)
    cluster.finish_move(SLOT, to)


SCENARIOS = (PrimaryKilled, ClusterPrimaryKilled, SlotsMoved)
