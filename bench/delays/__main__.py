"""Measure the delays that docs/guarantees.md bounds: `python -m bench.delays [SAMPLES [PART...]]`.

One embedded server, workers in this process unless they are to be killed. Each line: the median and the
longest of the samples, and the bar of the longest, which is the promise of the page. A round trip may take
0.1 s. The parts are `usual`, `lost`, `deaths`, `stuck`, and `many` (a worker of 300 queues). The exit code is
1 if a bar is missed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import sys
from typing import TYPE_CHECKING, Any, Final

from bench.bars import Bars
from bench.delays import deaths, lost, stuck, usual
from bench.delays.scene import ROUND_TRIP, Scene
from pyasynq import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


QUEUES: Final = 300
"""Number of queues of the worker of the part `many`."""
SUSPENDED: Final = 30.0
"""Seconds of a Redis' life in which workers recover nothing: owners of tasks may still be reconnecting."""


class Table:
    """Printed lines of delays, and the bars that they missed."""

    def __init__(self) -> None:
        self.bars = Bars()

    def tell(self, name: str, bar: float, seconds: list[float]) -> None:
        """Print a line of the table; `bar` is the upper bound of the longest, in seconds."""
        middle, longest = statistics.median(seconds) * 1000, max(seconds) * 1000
        verdict = self.bars.check(name, longest / 1000, most=bar)
        print(f"| {name} | {middle:,.0f} ms | {longest:,.0f} ms | {bar:g} s | {verdict} |", flush=True)


async def measure_usual(scene: Scene, samples: int, table: Table) -> None:
    """Measure delays in normal operation."""
    async with scene.worker():
        for name, bar, measure in usual.AT_A_WORKER:
            table.tell(name, bar, [await measure(scene) for _ in range(samples)])
    handed_over = [await usual.handed_over(scene) for _ in range(samples)]
    table.tell("a stopped worker's task, elsewhere", usual.CANCEL_TIMEOUT + ROUND_TRIP, handed_over)
    grouping: dict[str, Any] = {"group_aggregator": scene.aggregate, "group_max_size": usual.GROUP_SIZE}
    async with scene.worker(**grouping):
        table.tell("a full group is aggregated", 7.0, [await usual.aggregated(scene) for _ in range(samples)])


async def measure_lost(scene: Scene, samples: int, table: Table) -> None:
    """Measure delays without key change notifications of Redis."""
    async with lost.deaf_worker(scene) as proxy:
        for name, (bar, measure) in lost.BEHIND_A_PROXY.items():
            table.tell(name, bar, [await measure(scene, proxy) for _ in range(samples)])
    async with lost.deaf_client(scene) as proxy:
        name = "a wait for a result, whose report is lost"
        table.tell(name, 1.0 + ROUND_TRIP, [await lost.result(scene, proxy) for _ in range(samples)])
    async with scene.worker(lost.url_without_reports(scene.url)):
        name = "a new task, where Redis cannot report"
        table.tell(name, 1.5, [await lost.without_reports(scene) for _ in range(samples)])


async def measure_deaths(scene: Scene, samples: int, table: Table) -> None:
    """Measure recovery; most samples of one kind run at the same time, because one takes up to a minute."""
    name = "a killed child's task is pending again"
    table.tell(name, 1.0, [await deaths.killed_under_a_supervisor(scene) for _ in range(samples)])
    await asyncio.sleep(SUSPENDED)
    table.tell("a killed worker's task starts elsewhere", 40.0, await deaths.killed(scene, samples))
    for key, bar in (("pending", 8.0), ("lease", 40.0)):
        name = f"after the repair of the key `{key}`, a killed worker's task starts elsewhere"
        table.tell(name, bar, await deaths.killed_behind_a_wrong_type(scene, samples, key))
    table.tell("a task of a killed worker in Go starts here", 65.0, await deaths.killed_in_go(scene, samples))
    name = "after an outage, a task whose worker died in it"
    # The leases have ended within the outage; slack and polls may take 8 s more.
    table.tell(name, SUSPENDED + 8.0, await deaths.killed_in_an_outage(scene, samples))


async def measure_stuck(scene: Scene, samples: int, table: Table) -> None:
    """Measure delays with handlers that do not end."""
    async with scene.worker():
        name = "a blocked event loop is reported"
        table.tell(name, 1.5 + ROUND_TRIP, [await stuck.blocked_loop(scene) for _ in range(samples)])
    name = "an overdue aggregator is reported"
    table.tell(name, 8.0, [await stuck.overdue_aggregator(scene) for _ in range(samples)])
    name = "an overdue handler's worker has ended"
    table.tell(name, stuck.END_BAR, [await stuck.overdue_handler(scene) for _ in range(samples)])


async def measure_many(scene: Scene, samples: int, table: Table) -> None:
    """Measure a lost notification and recovery at a worker of 300 queues."""
    queues = {f"q{number}": 1 for number in range(QUEUES)}
    async with lost.deaf_worker(scene, queues=queues) as proxy:
        table.tell(
            f"{QUEUES} queues: a scheduled task, whose report is lost",
            6.0,
            [await lost.scheduled_task(scene, proxy, random.choice([*queues])) for _ in range(samples)],  # noqa: S311 - guards nothing
        )
    await asyncio.sleep(SUSPENDED)
    name = f"{QUEUES} queues: a killed worker's task starts elsewhere"
    table.tell(name, 40.0, await deaths.killed(scene, samples, QUEUES - samples))


PARTS: dict[str, Callable[[Scene, int, Table], Awaitable[None]]] = {
    "usual": measure_usual,
    "lost": measure_lost,
    "deaths": measure_deaths,
    "stuck": measure_stuck,
    "many": measure_many,
}


async def main() -> int:
    """Measure everything, print a table, and return the exit code."""
    logging.disable()
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    table = Table()
    print("| | median | longest | at most | |\n|---|---|---|---|---|")
    for part in sys.argv[2:] or PARTS:
        with EmbeddedServer() as redis:
            scene = Scene(redis.url)
            await PARTS[part](scene, samples, table)
            await scene.close()
    return table.bars.exit_code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
