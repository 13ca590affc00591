"""Instances of the lease service in processes of their own, which die while workers work."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pyasynq.client import Client
from pyasynq.inspector import Inspector
from tests.fix_leases import until
from tests.ports import HOST, free_ports
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE = "resize"
MAX_RUN = 3


class Balancer:
    """Two instances and requests that go to them in turn, to the other one when one is away."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.ports = free_ports(2)
        self._turn: Iterator[int] = itertools.cycle(self.ports)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, port: int) -> None:
        """Start the instance of a port."""
        program = [sys.executable, "-m", "tests.lease_program", self._url, str(port)]
        self.processes[port] = subprocess.Popen(program)

    def kill(self, port: int) -> None:
        """End an instance without a word."""
        process = self.processes.pop(port)
        process.kill()
        process.wait()

    async def post(self, client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> httpx.Response:
        """Return the answer of the first instance that answers."""
        while True:
            try:
                answer = await client.post(f"http://{HOST}:{next(self._turn)}{path}", json=body)
            except httpx.TransportError:
                await asyncio.sleep(0.01)
                continue
            if answer.status_code != 503:
                return answer


@dataclass
class Work:
    """What workers have done."""

    runs: Counter[str] = field(default_factory=Counter)
    running: set[str] = field(default_factory=set)
    most: int = 0
    refused: list[str] = field(default_factory=list)

    async def serve(self, balancer: Balancer) -> None:
        """Lease and complete tasks, one after another."""
        async with httpx.AsyncClient(timeout=60) as client:
            while True:
                body = {"queues": [QUEUE], "wait": 2, "lease": 10}
                answer = await balancer.post(client, "/v1/leases", body)
                for task in answer.json()["tasks"] if answer.status_code == 200 else ():
                    self.runs[task["id"]] += 1
                    self.running.add(task["id"])
                    self.most = max(self.most, len(self.running))
                    extended = await balancer.post(
                        client, f"/v1/attempts/{task['token']}:extend", {"lease": 15}
                    )
                    # From here on another worker may have its place, before this one has heard it.
                    self.running.discard(task["id"])
                    token = extended.json().get("token", task["token"])
                    settled = await balancer.post(client, f"/v1/attempts/{token}:complete", {})
                    if settled.status_code != 204:
                        self.refused.append(settled.text)


@pytest.mark.long
@pytest.mark.single_server("the program takes one address")
@run_async
async def test_no_task_is_lost_or_runs_twice_when_instances_are_killed(redis_url: str) -> None:
    """Workers go on with the other one, with the tokens that they have; `max_run` holds. (T-two)

    Tasks whose lease was never told to a worker come again when it has ended.
    """
    balancer, work, count = Balancer(redis_url), Work(), 300
    for port in balancer.ports:
        balancer.start(port)
    try:
        async with Client(redis_url) as client, Inspector(redis_url) as inspector:
            for number in range(count):
                await client.enqueue("resize", b"{}", queue=QUEUE, task_id=f"t{number}")
            await inspector.set_queue_limits(QUEUE, max_run=MAX_RUN)
            workers = [asyncio.create_task(work.serve(balancer)) for _ in range(8)]
            for kills, port in zip(range(1, 5), itertools.cycle(balancer.ports)):
                await until(lambda: len(work.runs) >= kills * count // 6)  # noqa: B023 - awaited here
                balancer.kill(port)
                balancer.start(port)
            while (await inspector.queue_info(QUEUE)).size:  # noqa: ASYNC110 - Redis does not notify
                await asyncio.sleep(0.1)
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
    finally:
        for port in list(balancer.processes):
            balancer.kill(port)
    assert [] == work.refused
    assert {f"t{number}" for number in range(count)} == set(work.runs)
    assert {1} == set(work.runs.values())
    assert 1 < work.most <= MAX_RUN
