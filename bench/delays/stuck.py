"""Delays until hanging code is reported, or ends its worker."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from typing import TYPE_CHECKING, Final

from bench.delays.deaths import start_worker
from pyasynq._engine.settings import EngineSettings
from pyasynq.events import AggregationOverdue

if TYPE_CHECKING:
    from bench.delays.scene import Scene

LIMIT: Final = 2.0
"""Seconds of `overdue_limit`, which is 10 minutes by default."""
SHUTDOWN: Final = 0.5
"""Seconds that the worker gives its tasks when it drains."""
END_BAR: Final = SHUTDOWN + 1.0 + 2.0 + 1.0
"""Seconds until its end: with `cancel_timeout`, 2 s for a task that hangs, and 1 s to notice it and exit."""


class _Reports(logging.Handler):
    """Log handler that records the time of each line with this text, from any thread."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.at: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.at.append(record.created)


async def blocked_loop(scene: Scene) -> float:
    """Return the seconds until a handler that blocks the event loop is reported."""
    reports, log = _Reports("event loop"), logging.getLogger("pyasynq")
    logging.disable(logging.NOTSET)
    log.addHandler(reports)
    log.propagate = False
    try:
        await scene.client.enqueue("block", max_retry=0)
        begun = await scene.next()
        while not reports.at:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.01)
    finally:
        log.propagate = True
        log.removeHandler(reports)
        logging.disable()
    return reports.at[0] - begun


async def overdue_handler(scene: Scene) -> float:
    """Return the seconds from `overdue_limit` until a worker with a hanging handler has ended."""
    options = ("--overdue-limit", str(LIMIT), "--shutdown-timeout", str(SHUTDOWN), "--concurrency", "1")
    worker = start_worker(scene.url, *options)
    await scene.client.enqueue("swallow", timeout=1, max_retry=0)
    while not (await scene.inspector.queue_info("default")).active:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.01)
    begun = time.time()
    code = await asyncio.to_thread(worker.wait)
    ended = time.time()
    if code != 4:
        raise RuntimeError(f"the worker ended with code {code}")
    await scene.inspector.delete_all("default", "pending")
    return ended - begun - 1.0 - LIMIT


async def overdue_aggregator(scene: Scene) -> float:
    """Return the seconds from its timeout until a hanging aggregator is reported."""
    reported: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    end = asyncio.Event()

    async def aggregate(_group: str, _tasks: list[object]) -> None:
        scene.calls.put_nowait(time.time())
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    engine = dataclasses.replace(EngineSettings(), aggregation_timeout=1.0)
    async with scene.worker(engine=engine, group_aggregator=aggregate, group_max_size=1) as worker:
        worker.events.subscribe(AggregationOverdue, lambda _: reported.set_result(time.time()))
        await scene.client.enqueue("note", group="g")
        begun = await scene.next()
        delay = await reported - begun - 1.0
        end.set()
    await scene.inspector.delete_all("default", "aggregating", group="g")
    return delay
