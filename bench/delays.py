"""Measure the delays that docs/guarantees.md bounds, on this machine: `python bench/delays.py [SAMPLES]`.

One embedded server, workers in this process. Each line: the median and the longest of the samples, in
milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pyasynq import (
    Client,
    EmbeddedServer,
    Inspector,
    Mux,
    Scheduler,
    SchedulerConfig,
    Server,
    ServerConfig,
    Task,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


class Bench:
    """A client, an inspector, and handlers that note when they are called."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = Client(url)
        self.inspector = Inspector(url)
        self.calls: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        self.mux = Mux()
        self.mux.handler("note")(self._note)
        self.mux.handler("hang")(self._hang)
        self.mux.handler("fail")(self._fail)

    async def _note(self, task: Task) -> None:
        self.calls.put_nowait((task.payload.decode() if task.payload else "", time.time()))

    async def _hang(self, _task: Task) -> None:
        self.calls.put_nowait(("begun", time.time()))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.calls.put_nowait(("cut", time.time()))
            raise

    async def _fail(self, _task: Task) -> None:
        self.calls.put_nowait(("failed", time.time()))
        raise RuntimeError

    async def next(self) -> float:
        """Return when the next call was."""
        return (await self.calls.get())[1]

    @asynccontextmanager
    async def worker(self, **settings: float) -> AsyncIterator[Server]:
        """Run a worker."""
        server = Server(self.url, ServerConfig(retry_delay=1.0, **settings))  # type: ignore[arg-type]
        await server.start(self.mux)
        try:
            yield server
        finally:
            await server.shutdown()


async def wake_up(bench: Bench) -> float:
    """Return how long an idle worker lets a new task wait."""
    await asyncio.sleep(0.05)
    begun = time.time()
    await bench.client.enqueue("note")
    return await bench.next() - begun


async def scheduled(bench: Bench) -> float:
    """Return how late a scheduled task begins."""
    begun = time.time()
    await bench.client.enqueue("note", process_in=1.5)
    return await bench.next() - begun - 1.5


async def retried(bench: Bench) -> float:
    """Return how late a retry begins."""
    await bench.client.enqueue("fail", max_retry=1)
    failed = await bench.next()
    return await bench.next() - failed - 1.0


async def cancelled(bench: Bench) -> float:
    """Return how long it takes from the inspector to the handler."""
    info = await bench.client.enqueue("hang")
    await bench.next()
    begun = time.time()
    await bench.inspector.cancel(info.id, "default", outcome="delete")
    return await bench.next() - begun


async def timed_out(bench: Bench) -> float:
    """Return how late a time-out is."""
    await bench.client.enqueue("hang", timeout=1, max_retry=0)
    begun = await bench.next()
    return await bench.next() - begun - 1.0


async def paused(bench: Bench) -> float:
    """Return how long after a pause a task was last begun; nothing is 0."""

    async def feed() -> None:
        while True:
            await bench.client.enqueue("note")

    feeder = asyncio.create_task(feed())
    await bench.next()
    await bench.inspector.pause_queue("default")
    begun = time.time()
    await asyncio.sleep(0.3)
    feeder.cancel()
    last = begun
    while not bench.calls.empty():
        last = max(last, bench.calls.get_nowait()[1])
    await bench.inspector.unpause_queue("default")
    await asyncio.sleep(0.5)
    while not bench.calls.empty():
        bench.calls.get_nowait()
    return last - begun


async def handed_over(bench: Bench) -> float:
    """Return how long after the end of its patience a stopped worker's task runs at another one."""
    async with bench.worker(concurrency=1, shutdown_timeout=0.5, cancel_timeout=0.5):
        info = await bench.client.enqueue("hang")
        await bench.next()
        begun = time.time()
    await bench.next()
    async with bench.worker():
        again = await bench.next()
        await bench.inspector.cancel(info.id, "default", outcome="delete")
        await bench.next()
    return again - begun - 0.5


async def ticked(bench: Bench) -> float:
    """Return how late the task of a tick begins."""
    scheduler = Scheduler(bench.url, SchedulerConfig())
    scheduler.register("@every 1s", "note")
    await scheduler.start()
    at = await bench.next()
    await scheduler.shutdown()
    return at % 1.0


MEASURED: dict[str, Callable[[Bench], Awaitable[float]]] = {
    "a new task, an idle worker": wake_up,
    "a scheduled task, after its time": scheduled,
    "a retry, after its delay": retried,
    "a cancellation": cancelled,
    "a time-out of 1 s, after it": timed_out,
    "a pause: the last start after it": paused,
    "a tick of a schedule": ticked,
}


async def main() -> None:
    """Measure everything, and print a table."""
    logging.disable()
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with EmbeddedServer() as redis:
        bench = Bench(redis.url)
        print("| | median | longest |\n|---|---|---|")
        async with bench.worker():
            for name, measure in MEASURED.items():
                print(line(name, [await measure(bench) for _ in range(samples)]), flush=True)
        print(line("a stopped worker's task, elsewhere", [await handed_over(bench) for _ in range(samples)]))
        await bench.client.close()
        await bench.inspector.close()


def line(name: str, seconds: list[float]) -> str:
    """Return a line of the table."""
    return f"| {name} | {statistics.median(seconds) * 1000:.0f} ms | {max(seconds) * 1000:.0f} ms |"


if __name__ == "__main__":
    asyncio.run(main())
