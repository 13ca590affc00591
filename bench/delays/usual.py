"""Delays in normal operation."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bench.delays.scene import RETRY_DELAY, ROUND_TRIP, WHOLE_SECONDS, Delay
from pyasynq import Scheduler, SchedulerConfig

if TYPE_CHECKING:
    from bench.delays.scene import Scene

GROUP_SIZE: Final = 5
CANCEL_TIMEOUT: Final = 0.5
"""Seconds between the shutdown timeout of a worker and its end at the latest."""


async def wake_up(scene: Scene) -> float:
    """Return the seconds that a new task waits for an idle worker."""
    await asyncio.sleep(0.05)
    begun = time.time()
    await scene.client.enqueue("note")
    return await scene.next() - begun


async def scheduled(scene: Scene) -> float:
    """Return the seconds by which a scheduled task starts late."""
    begun = time.time()
    await scene.client.enqueue("note", process_in=1.5)
    return await scene.next() - begun - 1.5


async def retried(scene: Scene) -> float:
    """Return the seconds by which a retry starts late."""
    await scene.client.enqueue("fail", max_retry=1)
    failed = await scene.next()
    return await scene.next() - failed - RETRY_DELAY


async def cancelled(scene: Scene) -> float:
    """Return the seconds from a cancel call of the inspector to the handler's cancellation."""
    info = await scene.client.enqueue("hang")
    await scene.next()
    begun = time.time()
    await scene.inspector.cancel(info.id, "default", outcome="delete")
    return await scene.next() - begun


async def timed_out(scene: Scene) -> float:
    """Return the seconds by which a timeout is late."""
    await scene.client.enqueue("hang", timeout=1, max_retry=0)
    begun = await scene.next()
    return await scene.next() - begun - 1.0


async def paused(scene: Scene) -> float:
    """Return the seconds from a pause to the last start of a task; 0 if none started."""

    async def feed() -> None:
        while True:
            await scene.client.enqueue("note")

    feeder = asyncio.create_task(feed())
    await scene.next()
    await scene.inspector.pause_queue("default")
    begun = time.time()
    await asyncio.sleep(0.3)
    feeder.cancel()
    with suppress(asyncio.CancelledError):
        await feeder
    last = begun
    while not scene.calls.empty():
        last = max(last, scene.calls.get_nowait())
    await scene.inspector.unpause_queue("default")
    await asyncio.sleep(0.5)
    scene.forget()
    return last - begun


async def ticked(scene: Scene) -> float:
    """Return the seconds by which the task of a tick starts late."""
    scheduler = Scheduler(scene.url, SchedulerConfig())
    scheduler.register("@every 1s", "note")
    await scheduler.start()
    at = await scene.next()
    await scheduler.shutdown()
    scene.forget()
    return at % 1.0


async def result_returned(scene: Scene) -> float:
    """Return the seconds from the call of a task's handler until `Client.wait` returns for this task."""
    info = await scene.client.enqueue("note", process_in=1, retention=60)
    await scene.client.wait("default", info.id)
    return time.time() - await scene.next()


async def limit_raised(scene: Scene) -> float:
    """Return the seconds from a raised limit to the start of a task that it held back."""
    await scene.inspector.set_queue_limits("default", max_run=1)
    held = [await scene.client.enqueue("hang", max_retry=0) for _ in range(2)]
    await scene.next()
    await asyncio.sleep(0.5)
    begun = time.time()
    await scene.inspector.set_queue_limits("default", max_run=None)
    started = await scene.next()
    for info in held:
        await scene.inspector.cancel(info.id, "default", outcome="delete")
        await scene.next()
    return started - begun


async def handed_over(scene: Scene) -> float:
    """Return the seconds from a worker's shutdown timeout until another worker runs its unfinished task."""
    async with scene.worker(concurrency=1, shutdown_timeout=0.5, cancel_timeout=CANCEL_TIMEOUT):
        info = await scene.client.enqueue("hang")
        await scene.next()
        begun = time.time()
    await scene.next()
    async with scene.worker():
        again = await scene.next()
        await scene.inspector.cancel(info.id, "default", outcome="delete")
        await scene.next()
    return again - begun - 0.5


async def aggregated(scene: Scene) -> float:
    """Return the seconds from the last task of a full group to its aggregation, at any time between polls."""
    await asyncio.sleep(time.time() % 3)
    for _ in range(GROUP_SIZE):
        await scene.client.enqueue("note", group="g")
    begun = time.time()
    called = await scene.next()
    await scene.next()  # the task that the aggregator made
    return called - begun


AT_A_WORKER: Final = (
    Delay("a new task, an idle worker", ROUND_TRIP, wake_up),
    Delay("a scheduled task, after its time", WHOLE_SECONDS + ROUND_TRIP, scheduled),
    Delay("a retry, after its delay", WHOLE_SECONDS + ROUND_TRIP, retried),
    Delay("a tick of a schedule", ROUND_TRIP, ticked),
    Delay("a pause: the last start after it", 0.05, paused),
    Delay("a cancellation", ROUND_TRIP, cancelled),
    Delay("a timeout of 1 s, after it", 0.25 + ROUND_TRIP, timed_out),
    Delay("a wait for a result, after the handler's call", ROUND_TRIP, result_returned),
    Delay("a stored limit is raised: the next start", 5.0, limit_raised),
)
"""Delays at one running worker."""
