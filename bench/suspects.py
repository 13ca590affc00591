"""Measure the effect of suspects on the tasks behind them: `python -m bench.suspects [ROUNDS]`.

Suspects are tasks whose workers died twice. Here they are long, but harmless, and 1,000 short tasks wait
behind them. Each line: the seconds until the last short task has ended (median of the rounds), and the ratio
to rounds without suspects. One embedded server, one worker with 20 slots. The exit code is 1 if a bar is
missed.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
import time
from typing import Final

import redis

from bench.bars import Bars
from pyasynq import Client, EmbeddedServer, Mux, Server, ServerConfig, Task
from pyasynq._wire.keys import queue_keys

SHORT_TASKS: Final = 1_000
SHORT_SECONDS: Final = 0.05
LONG_SECONDS: Final = 3_600.0
CRASHES: Final = 2
SLOTS: Final = 20
SUSPECTS: Final = (0, 12, 100)
MOST_TIMES: Final = {12: 2.0, 100: 3.0}
"""Upper bounds of the ratio to the time without suspects, by their number."""


async def measure(url: str, suspects: int) -> float:
    """Return the seconds from the start of a worker until the last short task has ended."""
    ended = 0
    all_ended = asyncio.Event()

    async def run_short(_task: Task) -> None:
        nonlocal ended
        await asyncio.sleep(SHORT_SECONDS)
        ended += 1
        if ended == SHORT_TASKS:
            all_ended.set()

    async def run_long(_task: Task) -> None:
        await asyncio.sleep(LONG_SECONDS)

    mux = Mux()
    mux.handler("short")(run_short)
    mux.handler("long")(run_long)
    with redis.Redis.from_url(url) as raw:
        raw.flushall()
        async with Client(url) as client:
            await client.enqueue_many(Task("long", task_id=f"long{number}") for number in range(suspects))
            for number in range(suspects):
                raw.hset(queue_keys("default").task(f"long{number}"), "x:crashes", CRASHES)
            await client.enqueue_many(Task("short") for _ in range(SHORT_TASKS))
    server = Server(url, ServerConfig(concurrency=SLOTS, shutdown_timeout=0, cancel_timeout=0.5))
    begun = time.monotonic()
    await server.start(mux)
    await all_ended.wait()
    seconds = time.monotonic() - begun
    await server.shutdown()
    return seconds


async def main() -> int:
    """Run the measurements in turns, print a table and the bars, and return the exit code."""
    logging.disable()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found: dict[int, list[float]] = {suspects: [] for suspects in SUSPECTS}
    with EmbeddedServer() as server:
        for _ in range(rounds):
            for suspects, seconds in found.items():
                seconds.append(await measure(server.url, suspects))
    usual = statistics.median(found[0])
    print("| suspects | seconds | of the usual | longest |\n|---:|---:|---:|---:|")
    for suspects, seconds in found.items():
        middle = statistics.median(seconds)
        print(f"| {suspects} | {middle:.2f} | {middle / usual:.2f} | {max(seconds):.2f} |")
    print()
    bars = Bars()
    for suspects, most in MOST_TIMES.items():
        times = statistics.median(found[suspects]) / usual
        bars.tell(f"{suspects} suspects, of the usual time", times, "x", most=most)
    return bars.exit_code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
