"""A steady load: one process enqueues tasks that do nothing, and another one runs them."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

QUEUE: Final = "steady"
_KEYS: Final = queue_keys(QUEUE)
_WARM_UP: Final = 2.0
"""Seconds until both processes run at their full rate."""
_WORK: Final = f"""
import asyncio, sys
from pyasynq import App, WorkerConfig
app = App(sys.argv[1], queues={{"{QUEUE}": 1}}, worker=WorkerConfig(concurrency=100))
@app.task("steady:work", queue="{QUEUE}")
async def work() -> None: ...
asyncio.run(app.server().run(app))
"""
_ENQUEUE: Final = f"""
import sys, time
from pyasynq import Task
from pyasynq.sync import Client
url, rate = sys.argv[1], float(sys.argv[2])
with Client(url) as client:
    began, enqueued = time.monotonic(), 0
    while True:
        due = int(rate * (time.monotonic() - began)) - enqueued
        tasks = [Task("steady:work") for _ in range(min(due, 1_000))]
        if tasks:
            client.enqueue_many(tasks, queue="{QUEUE}")
            enqueued += len(tasks)
        else:
            time.sleep(0.02)
"""


@contextmanager
def steady_load(url: str, rate: float) -> Iterator[None]:
    """Enqueue and run this many tasks a second."""
    children = [
        subprocess.Popen([sys.executable, "-c", _WORK, url]),
        subprocess.Popen([sys.executable, "-c", _ENQUEUE, url, str(rate)]),
    ]
    try:
        time.sleep(_WARM_UP)
        yield
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait()


def count_processed(client: redis.Redis) -> int:
    """Return how many tasks of the load have ended."""
    return int(client.get(_KEYS.processed) or 0)


def count_waiting(client: redis.Redis) -> int:
    """Return how many tasks of the load are pending."""
    return int(client.llen(_KEYS.pending))


def measure_capacity(url: str, client: redis.Redis, seconds: float = 5.0) -> float:
    """Return how many tasks a second both processes get done when they have no other limit."""
    with steady_load(url, 1e6):
        before, began = count_processed(client), time.monotonic()
        time.sleep(seconds)
        return (count_processed(client) - before) / (time.monotonic() - began)
