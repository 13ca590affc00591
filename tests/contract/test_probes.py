"""Answers to probes while a node of Redis is unreachable."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.supervisor.vitals import Vitals
from pyasynq._redis.cluster.slot_map import find_slot
from pyasynq._wire.keys import SERVERS_KEY, queue_keys
from pyasynq.config import ServerConfig
from pyasynq.events import QueuesAsked, SignOfLife
from tests.fix_engine import do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.fix_cluster import Cluster

SETTINGS = EngineSettings(heartbeat_interval=1.0, look_interval=0.5)


@pytest.mark.long
@pytest.mark.usefixtures("impatient")
@run_async
async def test_a_node_that_is_away_takes_its_own_queues_from_a_worker_and_not_its_life(
    cluster: Cluster,
) -> None:
    """The node of the server records is silent: the worker is live, and ready for its other queue. (D46)"""
    node = cluster.owner(find_slot(SERVERS_KEY))
    owners = {
        f"q{number}": cluster.owner(find_slot(queue_keys(f"q{number}").pending)) for number in range(100)
    }
    gone = next(queue for queue, owner in owners.items() if owner is node)
    here = next(queue for queue, owner in owners.items() if owner is not node)
    vitals = Vitals(1, 42, "active")
    config = ServerConfig(queues={gone: 1, here: 1})
    async with serving(cluster.url, do_nothing, config, SETTINGS) as running:
        vitals.watch(running.server.events)
        await running.recorder.wait(QueuesAsked, lambda asked: not asked.unreachable, new=True)
        node.signal(signal.SIGSTOP)
        try:
            await running.recorder.wait(QueuesAsked, lambda asked: asked.unreachable == (gone,))
            for _ in range(3):
                await running.recorder.wait(SignOfLife, new=True)
            assert vitals.is_live(time.monotonic())
            assert vitals.is_ready(time.monotonic())
        finally:
            node.signal(signal.SIGCONT)
        await running.recorder.wait(QueuesAsked, lambda asked: not asked.unreachable, new=True)
