"""Measure the cost of a delivery with many waiting calls of `take`: `python -m bench.waiting_takes [TURNS]`.

A consumer in this process has 100 or 10,000 waiting calls, in turns, and another process enqueues tasks one
by one. A delivery is everything from the notification to the settled attempt and the next waiting call. The
figures are CPU time of this process from the moment when all calls wait: each new call first asks its queues
once. The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import statistics
import sys
import time
from typing import Final

from bench.bars import Bars
from pyasynq import Client, Consumer, ConsumerConfig, EmbeddedServer

CALLS: Final = (100, 10_000)
TASKS: Final = 1_000
"""Number of deliveries of a turn."""
PAUSE: Final = 0.002
"""Seconds between two tasks, so that each is a delivery of its own."""
BAR: Final = 1.2
"""CPU time of a delivery with 10,000 waiting calls, as a multiple of the one with 100."""


async def feed(url: str) -> None:
    """Enqueue `TASKS` tasks one by one."""
    async with Client(url) as client:
        for _ in range(TASKS):
            await client.enqueue("note")
            await asyncio.sleep(PAUSE)


async def measure(url: str, calls: int) -> float:
    """Return the CPU seconds of a delivery while this many calls wait."""
    delivered = 0
    all_delivered = asyncio.Event()

    async def take_all(consumer: Consumer) -> None:
        nonlocal delivered
        while not all_delivered.is_set():
            async with consumer.take() as attempts:
                for attempt in attempts:
                    await attempt.done()
                    delivered += 1
            if delivered == TASKS:
                all_delivered.set()

    config = ConsumerConfig(queues={"default": 1})
    async with asyncio.TaskGroup() as group, Consumer(url, config) as consumer:
        for _ in range(calls):
            group.create_task(take_all(consumer))
        await asyncio.sleep(0)
        unlooked = consumer._engine.sink._unlooked  # type: ignore[union-attr] # noqa: SLF001 - nothing public tells it
        while unlooked:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.05)
        gc.collect()  # the new calls are not garbage, and to find that out is part of their start
        before = time.process_time()
        feeder = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.waiting_takes", "feed", url
        )
        await all_delivered.wait()
        used = time.process_time() - before
        await feeder.wait()
    return used / TASKS


async def main() -> int:
    """Measure in turns, print a table and the bar, and return the exit code."""
    logging.disable()
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    found: dict[int, list[float]] = {calls: [] for calls in CALLS}
    with EmbeddedServer() as server:
        for _ in range(turns):
            for calls, used in found.items():
                used.append(await measure(server.url, calls))
    print("| waiting calls | CPU of a delivery, median | lowest | highest |\n|---:|---:|---:|---:|")
    for calls, used in found.items():
        middle, lowest, highest = (1e6 * cpu for cpu in (statistics.median(used), min(used), max(used)))
        print(f"| {calls:,} | {middle:,.0f} µs | {lowest:,.0f} µs | {highest:,.0f} µs |")
    few, many = (found[calls] for calls in CALLS)
    times = statistics.median(after / before for before, after in zip(few, many, strict=True))
    print()
    bars = Bars()
    bars.tell("CPU of a delivery with 10,000 waiting calls, of 100's", times, "x", most=BAR)
    return bars.exit_code


if __name__ == "__main__":
    if sys.argv[1:2] == ["feed"]:
        asyncio.run(feed(sys.argv[2]))
    else:
        sys.exit(asyncio.run(main()))
