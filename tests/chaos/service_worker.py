"""One worker of the task service, by one of the transports that there are; it writes down what it runs.

python -m tests.chaos.service_worker app|redis|http|leases REDIS_URL SERVICE_URL
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any, Final

import aiohttp
import redis.asyncio

from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.sdk import start_worker
from pyasynq.server import Server
from tests.chaos.limited_app import JOURNAL, NOTE, QUEUE

_LEASE: Final = 10
_CONCURRENCY: Final = 10


class Journal:
    """Notes of this process in Redis."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def run(self, task_id: str, payload: bytes) -> None:
        """Take the time that a task asks for, between two notes; a cancelled one has ended, too."""
        await self._note("begin", task_id)
        try:
            await asyncio.sleep(json.loads(payload)["milliseconds"] / 1_000)
        finally:
            await asyncio.shield(self._note("end", task_id))

    async def _note(self, what: str, task_id: str) -> None:
        await self._client.eval(NOTE, 1, JOURNAL, what, task_id, os.getpid())


async def run_server(journal: Journal, url: str, stop: asyncio.Event) -> None:
    """Run a server of this process, which knows nothing of the service."""

    async def handle(task: Any) -> None:
        await journal.run(context().task_id, task.payload)

    async with Server(url, ServerConfig(queues={QUEUE: 1}, concurrency=_CONCURRENCY)) as server:
        await server.start(handle)
        await stop.wait()


async def run_sdk(journal: Journal, stop: asyncio.Event, **transport: Any) -> None:
    """Run a worker of the SDK."""

    async def handle(running: Any, task: Any) -> None:
        await journal.run(running.task_id, task.payload)

    async with await start_worker({QUEUE: handle}, concurrency=_CONCURRENCY, **transport):
        await stop.wait()


async def run_leases(journal: Journal, service: str, stop: asyncio.Event) -> None:
    """Lease one task after another over HTTP, as a program in any language would."""
    async with aiohttp.ClientSession(service) as session:
        while not stop.is_set():
            body = {"queues": [QUEUE], "wait": 1, "lease": _LEASE}
            try:
                answer = await session.post("/v1/leases", json=body)
                tasks = (await answer.json())["tasks"] if answer.status == 200 else []
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.2)  # the instance was killed
                continue
            for task in tasks:
                await journal.run(task["id"], json.dumps(task["payload"]).encode())
                await _settle(session, task["token"])


async def _settle(session: aiohttp.ClientSession, token: str) -> None:
    """Complete an attempt; repeat it while no instance answers."""
    while True:
        try:
            answer = await session.post(f"/v1/attempts/{token}:complete", json={})
        except (aiohttp.ClientError, TimeoutError):
            await asyncio.sleep(0.2)
            continue
        if answer.status < 500:
            return
        await asyncio.sleep(0.2)


async def main(transport: str, url: str, service: str) -> None:
    """Work until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with redis.asyncio.Redis.from_url(url, single_connection_client=True) as client:
        journal = Journal(client)
        match transport:
            case "app":
                await run_server(journal, url, stop)
            case "redis":
                await run_sdk(journal, stop, redis=url)
            case "http":
                await run_sdk(journal, stop, service=service)
            case "leases":
                await run_leases(journal, service, stop)
            case _:
                raise SystemExit(f"{transport!r} is not a transport")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
