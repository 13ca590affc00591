"""Delays when key change notifications (`CLIENT TRACKING`) are lost or not permitted."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import redis

from bench.delays.scene import Proxy
from pyasynq import Client
from pyasynq._redis.url import parse_redis_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bench.delays.scene import Scene

_POLL: Final = 3.0
"""Seconds between polls; each sample begins at a random moment between two polls."""


@asynccontextmanager
async def _deaf(proxy: Proxy) -> AsyncIterator[None]:
    await asyncio.sleep(2 * _POLL + random.uniform(0, _POLL))  # noqa: S311 - spreads the samples
    proxy.is_deaf, before = True, proxy.swallowed
    try:
        yield
    finally:
        proxy.is_deaf = False
    if proxy.swallowed == before:
        raise RuntimeError("no report was lost, so nothing was measured")


async def new_task(scene: Scene, proxy: Proxy) -> float:
    """Return the wait in seconds of a new task whose notification was lost."""
    async with _deaf(proxy):
        begun = time.time()
        await scene.client.enqueue("note")
        return await scene.next() - begun


async def scheduled_task(scene: Scene, proxy: Proxy, queue: str = "default") -> float:
    """Return the delay in seconds of a scheduled task whose notification was lost."""
    async with _deaf(proxy):
        begun = time.time()
        await scene.client.enqueue("note", process_in=1, queue=queue)
        return await scene.next() - begun - 1.0


async def cancellation(scene: Scene, proxy: Proxy) -> float:
    """Return the seconds until a worker finds a cancellation whose notification was lost."""
    info = await scene.client.enqueue("hang")
    await scene.next()
    async with _deaf(proxy):
        begun = time.time()
        await scene.inspector.cancel(info.id, "default", outcome="delete")
        return await scene.next() - begun


async def result(scene: Scene, proxy: Proxy) -> float:
    """Return the delay in seconds of `Client.wait` when the notification of the task's end is lost.

    The delay is counted from the handler's call.
    """
    async with Client(proxy.url) as client:
        info = await client.enqueue("note", process_in=10, retention=60)
        waiting = asyncio.create_task(client.wait("default", info.id))
        await asyncio.sleep(1)
        async with _deaf(proxy):
            await scene.inspector.run_task("default", info.id)
            await waiting
        return time.time() - await scene.next()


@asynccontextmanager
async def deaf_worker(scene: Scene, **settings: Any) -> AsyncIterator[Proxy]:
    """Run a worker behind a proxy that can drop notifications; `settings` are those of `ServerConfig`."""
    async with Proxy(scene.url) as proxy, scene.worker(proxy.url, **settings):
        yield proxy


@asynccontextmanager
async def deaf_client(scene: Scene) -> AsyncIterator[Proxy]:
    """Run a worker, and a proxy for a client that can drop notifications."""
    async with Proxy(scene.url) as proxy, scene.worker():
        yield proxy


async def without_reports(scene: Scene) -> float:
    """Return the wait in seconds of a new task whose worker only polls: it may not use `CLIENT TRACKING`."""
    await asyncio.sleep(random.uniform(0, _POLL))  # noqa: S311 - as above
    begun = time.time()
    await scene.client.enqueue("note")
    return await scene.next() - begun


def url_without_reports(url: str) -> str:
    """Create a Redis user who may not use `CLIENT TRACKING`; return a URL that logs in as this user."""
    with redis.Redis.from_url(url) as client:
        client.execute_command(
            "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-client|tracking"
        )
    return f"unix://deaf:secret@{parse_redis_url(url).path}"


BEHIND_A_PROXY: Final[dict[str, tuple[float, Callable[[Scene, Proxy], Awaitable[float]]]]] = {
    "a new task, whose report is lost": (6.0, new_task),
    "a scheduled task, whose report is lost": (6.0, scheduled_task),
    "a cancellation that the worker misses": (5.0, cancellation),
}
"""Bar in seconds, and what measures a sample, by name."""
