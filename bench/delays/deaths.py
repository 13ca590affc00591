"""Delays after the death of a worker. This module is also the app of the workers that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import psutil
import redis

from pyasynq import App
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from bench.delays.scene import Scene
    from pyasynq import Server

URL: Final = "BENCH_DELAYS_URL"
STAGGER: Final = 0.3
"""Seconds between two kills, so that they happen at different moments between two polls."""
OUTAGE: Final = 36.0
"""Duration of the outage in seconds: longer than a lease."""
GO_LEASE: Final = 30

app = App(os.environ.get(URL, "redis://localhost"))


@app.task("hang")
async def hang() -> None:
    """Hang until the process is killed."""
    await asyncio.sleep(3_600)


@app.task("swallow")
async def swallow() -> None:
    """Handle a task, ignoring both its deadline and its cancellation."""
    while True:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            continue


def start_worker(url: str, *options: str) -> subprocess.Popen[bytes]:
    """Start a worker in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "pyasynq", "worker", "bench.delays.deaths:app", *options],
        env={**os.environ, URL: url},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def _until(condition: Any, pause: float = 0.02) -> None:
    while not condition():  # noqa: ASYNC110 - nothing tells it
        await asyncio.sleep(pause)


@asynccontextmanager
async def _holding(scene: Scene, samples: int) -> AsyncIterator[list[subprocess.Popen[bytes]]]:
    """Run workers that each serve their own queue and hold one task of it."""
    queues = [f"dead{number}" for number in range(samples)]
    victims = [start_worker(scene.url, "--queues", f"{queue}=1") for queue in queues]
    try:
        with redis.Redis.from_url(scene.url) as client:
            for queue in queues:
                await scene.client.enqueue("hang", queue=queue)
            await _until(lambda: all(client.llen(queue_keys(queue).active) for queue in queues))
        yield victims
    finally:
        for victim in victims:
            victim.kill()
            victim.wait()


def _rescuer(scene: Scene, samples: int, idle: int = 0) -> AbstractAsyncContextManager[Server]:
    """Run a worker of the queues of killed workers, and of this many other queues."""
    dead, others = (f"dead{number}" for number in range(samples)), (f"idle{number}" for number in range(idle))
    return scene.worker(queues=dict.fromkeys([*dead, *others], 1))


async def _end_all(scene: Scene, samples: int, since: list[float]) -> list[float]:
    """Return the seconds until each task is called again; delete each task then."""
    delays = [await scene.next() - at for at in since]
    for number in range(samples):
        for info in await scene.inspector.list_tasks(f"dead{number}", "active"):
            await scene.inspector.cancel(info.id, info.queue, outcome="delete")
            await scene.next()
    return delays


async def killed(scene: Scene, samples: int, idle: int = 0) -> list[float]:
    """Return the seconds until the tasks of killed workers start at a worker that also has idle queues."""
    async with _holding(scene, samples) as victims, _rescuer(scene, samples, idle):
        since = []
        for victim in victims:
            victim.kill()
            since.append(time.time())
            await asyncio.sleep(STAGGER)
        return await _end_all(scene, samples, since)


async def killed_in_an_outage(scene: Scene, samples: int) -> list[float]:
    """Return the seconds from the end of an outage to the start of tasks whose workers died during it."""
    with redis.Redis.from_url(scene.url) as client:
        server = int(client.info("server")["process_id"])
    async with _holding(scene, samples) as victims, _rescuer(scene, samples):
        os.kill(server, signal.SIGSTOP)
        for victim in victims:
            victim.kill()
        await asyncio.sleep(OUTAGE)
        os.kill(server, signal.SIGCONT)
        return await _end_all(scene, samples, [time.time()] * samples)


async def killed_behind_a_wrong_type(scene: Scene, samples: int, key: str) -> list[float]:
    """Return the seconds until tasks of killed workers start, from the repair of a key of their queues.

    The key has a wrong type until the leases of these tasks have ended: `pending` or `lease`.
    """
    names = [getattr(queue_keys(f"dead{number}"), key) for number in range(samples)]
    since = []
    with redis.Redis.from_url(scene.url) as client:
        async with _holding(scene, samples) as victims, _rescuer(scene, samples):
            for victim in victims:
                victim.kill()
            kept = [name for name in names if client.exists(name) and client.rename(name, f"{name}:kept")]
            for name in names:
                client.set(name, "of the wrong type")
            await asyncio.sleep(OUTAGE)
            for name in names:
                client.delete(name)
                if name in kept:
                    client.rename(f"{name}:kept", name)
                since.append(time.time())
                await asyncio.sleep(STAGGER)
            return await _end_all(scene, samples, since)


async def killed_in_go(scene: Scene, samples: int) -> list[float]:
    """Return the seconds until tasks of killed Go workers start here; their keys are written as Go does."""
    queues = [f"dead{number}" for number in range(samples)]
    since = []
    with redis.Redis.from_url(scene.url) as client:
        for queue in queues:
            keys = queue_keys(queue)
            info = await scene.client.enqueue("hang", queue=queue)
            client.lmove(keys.pending, keys.active, "RIGHT", "LEFT")
            client.hset(keys.task(info.id), "state", "active")
            client.hdel(keys.task(info.id), "pending_since")
            client.zadd(keys.lease, {info.id: int(time.time()) + GO_LEASE})
            since.append(time.time())
            await asyncio.sleep(STAGGER)
    async with _rescuer(scene, samples):
        return await _end_all(scene, samples, since)


async def killed_under_a_supervisor(scene: Scene) -> float:
    """Return the seconds until the task of a killed child is pending again."""
    keys = queue_keys("default")
    supervisor = start_worker(scene.url, "--processes", "1", "--shutdown-timeout", "0")
    try:
        with redis.Redis.from_url(scene.url) as client:
            info = await scene.client.enqueue("hang")
            await _until(lambda: client.llen(keys.active))
            [child] = psutil.Process(supervisor.pid).children()
            begun = time.time()
            child.kill()
            await _until(lambda: client.llen(keys.pending), 0.001)
            delay = time.time() - begun
            await scene.inspector.delete_task("default", info.id)
    finally:
        supervisor.terminate()
        supervisor.wait()
    return delay
