"""Measure the delays that docs/guarantees.md bounds: `python -m bench.delays [SAMPLES [PART...]]`.

One embedded server, workers in this process unless they are to be killed. Each line: the median and the
longest of the samples, in milliseconds. The parts are `usual`, `lost`, `deaths` and `stuck`.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
from typing import TYPE_CHECKING, Any

from bench.delays import deaths, lost, stuck, usual
from bench.delays.scene import Scene
from pyasynq import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def tell(name: str, seconds: list[float]) -> None:
    """Print a line of the table."""
    middle, longest = statistics.median(seconds) * 1000, max(seconds) * 1000
    print(f"| {name} | {middle:,.0f} ms | {longest:,.0f} ms |", flush=True)


async def measure_usual(scene: Scene, samples: int) -> None:
    """Measure delays in normal operation."""
    async with scene.worker():
        for name, measure in usual.AT_A_WORKER.items():
            tell(name, [await measure(scene) for _ in range(samples)])
    tell("a stopped worker's task, elsewhere", [await usual.handed_over(scene) for _ in range(samples)])
    grouping: dict[str, Any] = {"group_aggregator": scene.aggregate, "group_max_size": usual.GROUP_SIZE}
    async with scene.worker(**grouping):
        tell("a full group is aggregated", [await usual.aggregated(scene) for _ in range(samples)])


async def measure_lost(scene: Scene, samples: int) -> None:
    """Measure delays without key change notifications of Redis."""
    async with lost.deaf_worker(scene) as proxy:
        for name, measure in lost.BEHIND_A_PROXY.items():
            tell(name, [await measure(scene, proxy) for _ in range(samples)])
    async with lost.deaf_client(scene) as proxy:
        tell(
            "a wait for a result, whose report is lost",
            [await lost.result(scene, proxy) for _ in range(samples)],
        )
    async with scene.worker(lost.url_without_reports(scene.url)):
        name = "a new task, where Redis cannot report"
        tell(name, [await lost.without_reports(scene) for _ in range(samples)])


async def measure_deaths(scene: Scene, samples: int) -> None:
    """Measure recovery; most samples of one kind run at the same time, because one takes up to a minute."""
    name = "a killed child's task is pending again"
    tell(name, [await deaths.killed_under_a_supervisor(scene) for _ in range(samples)])
    # A worker does not recover in the first 30 s of a Redis: its owners may still be reconnecting.
    await asyncio.sleep(30)
    tell("a killed worker's task starts elsewhere", await deaths.killed(scene, samples))
    for key in ("pending", "lease"):
        name = f"after the repair of the key `{key}`, a killed worker's task starts elsewhere"
        tell(name, await deaths.killed_behind_a_wrong_type(scene, samples, key))
    tell("a task of a killed worker in Go starts here", await deaths.killed_in_go(scene, samples))
    tell("after an outage, a task whose worker died in it", await deaths.killed_in_an_outage(scene, samples))


async def measure_stuck(scene: Scene, samples: int) -> None:
    """Measure delays with handlers that do not end."""
    async with scene.worker():
        tell("a blocked event loop is reported", [await stuck.blocked_loop(scene) for _ in range(samples)])
    tell("an overdue aggregator is reported", [await stuck.overdue_aggregator(scene) for _ in range(samples)])
    tell(
        "an overdue handler's worker has ended", [await stuck.overdue_handler(scene) for _ in range(samples)]
    )


PARTS: dict[str, Callable[[Scene, int], Awaitable[None]]] = {
    "usual": measure_usual,
    "lost": measure_lost,
    "deaths": measure_deaths,
    "stuck": measure_stuck,
}


async def main() -> None:
    """Measure everything, and print a table."""
    logging.disable()
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    print("| | median | longest |\n|---|---|---|")
    for part in sys.argv[2:] or PARTS:
        with EmbeddedServer() as redis:
            scene = Scene(redis.url)
            await PARTS[part](scene, samples)
            await scene.close()


if __name__ == "__main__":
    asyncio.run(main())
