"""Cost of the drivers compared with raw redis-py: single calls of an empty script, one after another.

    python bench/driver.py [URL]     without a URL: an embedded server in memory

Rates depend on the machine; the ratios within one run are what counts.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from typing import TYPE_CHECKING

import redis
import redis.asyncio

from pyasynq._redis.driver import AsyncDriver, BlockingDriver
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._redis.script import Script, ScriptForm
from pyasynq._redis.url import parse_redis_url
from pyasynq.embedded import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CALLS = 2_000
ROUNDS = 5
FORM = ScriptForm(b"return 1")
NOTHING = Script("bench/nothing", False, FORM, FORM)
COMMAND = ("EVALSHA", FORM.sha, 1, "{q}:key", "argument")


def plan() -> Plan[object]:
    """Run one empty script."""
    return (yield ScriptCall(NOTHING, ("{q}:key",), ("argument",), Replay.SAFE))


def report(name: str, rounds: list[tuple[float, float]]) -> None:
    """Print the medians of a measurement."""
    seconds = statistics.median(wall for wall, _ in rounds)
    processor = statistics.median(used for _, used in rounds)
    print(
        f"{name:<24}{CALLS / seconds:>9,.0f} calls/s {processor / CALLS * 1e6:>6.0f} us of processor a call"
    )


async def measure(call: Callable[[], Awaitable[object]]) -> list[tuple[float, float]]:
    """Measure rounds of awaited calls: wall-clock and processor time."""
    rounds = []
    for _ in range(ROUNDS):
        wall, used = time.perf_counter(), time.process_time()
        for _ in range(CALLS):
            await call()
        rounds.append((time.perf_counter() - wall, time.process_time() - used))
    return rounds


def measure_blocking(call: Callable[[], object]) -> list[tuple[float, float]]:
    """Measure rounds of blocking calls: wall-clock and processor time."""
    rounds = []
    for _ in range(ROUNDS):
        wall, used = time.perf_counter(), time.process_time()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - wall, time.process_time() - used))
    return rounds


def _execute(client: redis.asyncio.Redis) -> Awaitable[object]:
    answer: Awaitable[object] = client.execute_command(*COMMAND)  # type: ignore[no-untyped-call] # redis-py's
    return answer


async def compare_async(url: str) -> None:
    """Measure redis-py and the asyncio driver."""
    driver = AsyncDriver(parse_redis_url(url))
    await driver.run(plan())
    async with redis.asyncio.Redis.from_url(url, protocol=2) as client:
        report("redis-py, asyncio", await measure(lambda: _execute(client)))
        report("AsyncDriver.run", await measure(lambda: driver.run(plan())))
        report("without the shield", await measure(lambda: driver.run_unshielded([plan()])))
    await driver.close()


def compare_blocking(url: str) -> None:
    """Measure redis-py and the blocking driver."""
    driver = BlockingDriver(parse_redis_url(url))
    driver.run(plan())
    with redis.Redis.from_url(url, protocol=2) as client:
        report("redis-py, blocking", measure_blocking(lambda: client.execute_command(*COMMAND)))
        report("BlockingDriver.run", measure_blocking(lambda: driver.run(plan())))
    driver.close()


def main() -> None:
    """Measure all."""
    if len(sys.argv) > 1:
        asyncio.run(compare_async(sys.argv[1]))
        compare_blocking(sys.argv[1])
        return
    with EmbeddedServer() as server:
        asyncio.run(compare_async(server.url))
        compare_blocking(server.url)


if __name__ == "__main__":
    main()
