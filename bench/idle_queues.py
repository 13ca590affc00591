"""Measure the cost of idle queues: `python -m bench.idle_queues [SECONDS [SAMPLES]]`.

One embedded server; each worker is a process of its own. A line for each number of queues and workers: script
calls, pipelines and commands a second, the CPU of Redis and of one worker in percent of a core, how long a
worker takes to start, and until Redis reports the next task of each queue. Then SAMPLES (default 2,000) tasks
are picked up in turn by workers of 1 and of 300 queues. Then the cost of 92 tasks a second in one queue after
another. The workers' heartbeats are in all figures. The CPU of Redis leaves out what the same Redis uses
without any worker, which the first line says: that alone is about 0.09 %.

At the end the bars, and the exit code is 1 if one is missed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import resource
import statistics
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, cast

import redis

from bench.bars import Bars
from pyasynq import Client, EmbeddedServer, Mux, Server, ServerConfig, Task
from pyasynq._engine.take.intake import Intake
from pyasynq._engine.take.queue_state import Watch
from pyasynq._redis.pool_async import AsyncPool

if TYPE_CHECKING:
    from collections.abc import Iterable

SCENES: Final = ((1, 1), (300, 1), (1_000, 1), (300, 10))
"""Numbers of queues and workers."""
PAUSE: Final = 0.01
"""Seconds between two tasks that are picked up."""
PACE: Final = 1 / 92
"""Seconds between two tasks of the busy worker; at 92 tasks a second, `BUSY_TASKS` take ten seconds."""
BUSY_QUEUES: Final = 200
BUSY_TASKS: Final = 920
SETTLE_SECONDS: Final = 1.0
HEAD: Final = (
    "| queues | workers | scripts/s | pipelines/s | commands/s | Redis CPU | worker CPU "
    "| start | watched |\n" + "|---:" * 9 + "|"
)
PICK_UP_HEAD: Final = "| queues | wait p50 | wait p99 | longest |\n" + "|---:" * 4 + "|"
BUSY_HEAD: Final = (
    "| queues | order, slots | dequeue calls a task | worker CPU | wait p50 | wait p99 | longest |\n"
    + "|---:" * 7
    + "|"
)


REDIS_BAR: Final = 0.1
"""Percent of a core that a worker of 300 idle queues may cost Redis; of 1,000 queues, three times as much."""
WORKER_BAR: Final = 0.5
"""The same for the worker itself."""
FLEET_BAR: Final = 1.0
"""Percent of a core that ten workers of 300 idle queues may cost Redis."""
START_BAR: Final = 2.0
"""Seconds in which a worker of 1,000 queues may start."""
CALLS_BAR: Final = 0.2
"""Calls a second that 300 idle queues may add to those of one queue: noise of the heartbeats."""
PICK_UP_BAR: Final = 1.2
"""The 99th percentile of pick-ups with 300 queues, as a multiple of the one with one queue."""
ASKS_BAR: Final = 3.0
LONGEST_BAR: Final = 50.0
"""Milliseconds that a task may wait while slots are free."""
BUSY_BAR: Final = 2.0
"""CPU of a worker of `BUSY_QUEUES` busy queues, as a multiple of the one with one queue."""


class Idle(NamedTuple):
    """Cost of idle workers: calls a second, CPU in percent of a core, and seconds of their starts."""

    scripts: float
    pipelines: float
    commands: float
    redis: float
    worker: float
    start: float
    watched: float


class Busy(NamedTuple):
    """Cost of a busy worker: dequeue calls of a task, CPU in percent of a core, waits in milliseconds."""

    asks: float
    worker: float
    waits: list[float]


class Worker:
    """Program of a worker process: serves queues, and answers each line of input with its figures."""

    def __init__(self, url: str, queues: int, settings: dict[str, Any]) -> None:
        priorities = {f"q{number}": number % 50 + 1 for number in range(queues)}
        self.server = Server(url, ServerConfig(queues=priorities, **settings))
        self.waits: list[float] = []
        self.pipelines = self.asks = 0
        self._count()

    def _count(self) -> None:
        perform, ask = AsyncPool.perform, Intake._ask  # noqa: SLF001 - nothing public tells these

        def counting(pool: AsyncPool, *arguments: Any) -> Any:
            self.pipelines += 1
            return perform(pool, *arguments)

        def noting(intake: Intake, *arguments: Any, **settings: Any) -> Any:
            self.asks += 1
            return ask(intake, *arguments, **settings)

        AsyncPool.perform = counting  # type: ignore[assignment, method-assign]
        Intake._ask = noting  # type: ignore[assignment, method-assign] # noqa: SLF001 - as above

    async def handle(self, task: Task) -> None:
        """Record the waiting time of the task."""
        self.waits.append(time.time() - float(task.payload or b"0"))

    def figures(self) -> dict[str, Any]:
        """Return the counts so far, and the waits since the last call."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        waits, self.waits = self.waits, []
        return {
            "pipelines": self.pipelines,
            "asks": self.asks,
            "cpu": used.ru_utime + used.ru_stime,
            "waits": waits,
        }

    async def run(self) -> None:
        """Start, report how long that took, and serve until the input ends."""
        mux = Mux()
        mux.handler("note")(self.handle)
        begun = time.monotonic()
        await self.server.start(mux)
        started = time.monotonic() - begun
        board = self.server._engine._board  # type: ignore[union-attr] # noqa: SLF001 - as above
        while not all(  # noqa: ASYNC110 - no event tells it
            queue.state.watch is Watch.TASKS for queue in board.queues
        ):
            await asyncio.sleep(0.005)
        tell({"start": started, "watched": time.monotonic() - begun})
        while await asyncio.to_thread(sys.stdin.readline):
            tell(self.figures())
        await self.server.shutdown()


def tell(figures: dict[str, Any]) -> None:
    """Write a line for the measuring process."""
    print(json.dumps(figures), flush=True)


class Process:
    """A worker process, as seen by the measuring process."""

    def __init__(self, url: str, queues: int, **settings: Any) -> None:
        command = [
            sys.executable,
            "-m",
            "bench.idle_queues",
            "worker",
            url,
            str(queues),
            json.dumps(settings),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._input = cast("IO[str]", self._process.stdin)
        self._output = cast("IO[str]", self._process.stdout)
        self.begun = self._read()

    def _read(self) -> dict[str, Any]:
        figures: dict[str, Any] = json.loads(self._output.readline())
        return figures

    def figures(self) -> dict[str, Any]:
        """Read the worker's current figures."""
        self._input.write("\n")
        self._input.flush()
        return self._read()

    def end(self) -> None:
        """End the worker, and wait for it."""
        self._input.close()
        self._process.wait()
        self._output.close()


def redis_figures(client: redis.Redis) -> tuple[int, int, float]:
    """Return the number of script calls and of commands so far, and the CPU seconds of Redis."""
    stats: Any = client.info("commandstats")
    cpu: Any = client.info("cpu")
    scripts = sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))
    commands = sum(one["calls"] for one in stats.values())
    return scripts, commands, cpu["used_cpu_user"] + cpu["used_cpu_sys"]


async def enqueue(client: Client, queues: int) -> None:
    """Enqueue a task into a random queue."""
    queue = f"q{random.randrange(queues)}"  # noqa: S311 - guards nothing
    await client.enqueue("note", f"{time.time()}".encode(), queue=queue)


async def keep_busy(url: str, queues: int) -> None:
    """Enqueue `BUSY_TASKS` tasks at a pace."""
    async with Client(url) as client:
        due = time.monotonic()
        for _ in range(BUSY_TASKS):
            await enqueue(client, queues)
            due += PACE
            await asyncio.sleep(max(0.0, due - time.monotonic()))


async def enqueue_in_turn(urls: dict[int, str], samples: int) -> None:
    """Enqueue this many tasks for each worker, in turn; the keys are the numbers of their queues."""
    clients = {queues: Client(url) for queues, url in urls.items()}
    for _ in range(samples):
        for queues, client in clients.items():
            await enqueue(client, queues)
            await asyncio.sleep(PAUSE)
    for client in clients.values():
        await client.close()


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]


def measure_alone(embedded: EmbeddedServer, seconds: float) -> float:
    """Return the share of a core that Redis uses without any worker."""
    client = redis_client(embedded)
    _, _, before = redis_figures(client)
    begun = time.monotonic()
    time.sleep(seconds)
    _, _, after = redis_figures(client)
    client.close()
    return (after - before) / (time.monotonic() - begun)


def idle(embedded: EmbeddedServer, queues: int, workers: int, seconds: float, alone: float) -> Idle:
    """Measure idle workers, and print their table row. `alone` is the result of `measure_alone`."""
    client = redis_client(embedded)
    client.flushall()
    processes = [Process(embedded.url, queues) for _ in range(workers)]
    time.sleep(SETTLE_SECONDS)
    before, used = redis_figures(client), [one.figures() for one in processes]
    begun = time.monotonic()
    time.sleep(seconds)
    after, now = redis_figures(client), [one.figures() for one in processes]
    passed = time.monotonic() - begun
    for one in processes:
        one.end()
    client.close()
    cost = Idle(
        scripts=(after[0] - before[0]) / passed,
        pipelines=sum(b["pipelines"] - a["pipelines"] for a, b in zip(used, now, strict=True)) / passed,
        commands=(after[1] - before[1]) / passed,
        redis=100 * ((after[2] - before[2]) / passed - alone),
        worker=100 * sum(b["cpu"] - a["cpu"] for a, b in zip(used, now, strict=True)) / workers / passed,
        start=statistics.mean(one.begun["start"] for one in processes),
        watched=statistics.mean(one.begun["watched"] for one in processes),
    )
    cells = [
        f"{queues:,}",
        f"{workers}",
        f"{cost.scripts:.1f}",
        f"{cost.pipelines:.1f}",
        f"{cost.commands:,.0f}",
        f"{cost.redis:.2f} %",
        f"{cost.worker:.2f} %",
        f"{cost.start:.2f} s",
        f"{cost.watched:.2f} s",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)
    return cost


def pick_up(samples: int) -> dict[int, float]:
    """Measure pick-ups by workers of 1 and of 300 queues, and print a table row for each.

    Each worker has a Redis of its own. Return the 99th percentile of the waits by the number of queues.
    """
    with EmbeddedServer() as one, EmbeddedServer() as many:
        urls = {1: one.url, 300: many.url}
        processes = {queues: Process(url, queues) for queues, url in urls.items()}
        time.sleep(SETTLE_SECONDS)
        asyncio.run(enqueue_in_turn(urls, samples))
        time.sleep(SETTLE_SECONDS)
        waits = {queues: process.figures()["waits"] for queues, process in processes.items()}
        for process in processes.values():
            process.end()
    for queues, found in waits.items():
        cells = [f"{queues}", *(f"{wait * 1000:.1f} ms" for wait in middle_and_worst(found))]
        print(f"| {' | '.join(cells)} |", flush=True)
    return {queues: percentile(found, 0.99) for queues, found in waits.items()}


def middle_and_worst(waits: list[float]) -> tuple[float, float, float]:
    """Return the median, the 99th percentile and the maximum."""
    return statistics.median(waits), percentile(waits, 0.99), max(waits)


def busy(embedded: EmbeddedServer, queues: int, slots: int, *, strict: bool) -> Busy:
    """Measure a worker that gets 92 tasks a second, in one queue after another; print its table row."""
    client = redis_client(embedded)
    client.flushall()
    process = Process(embedded.url, queues, concurrency=slots, strict_priority=strict)
    time.sleep(SETTLE_SECONDS)
    before, begun = process.figures(), time.monotonic()
    asyncio.run(keep_busy(embedded.url, queues))
    passed = time.monotonic() - begun
    time.sleep(SETTLE_SECONDS)
    after = process.figures()
    process.end()
    client.close()
    cost = Busy(
        asks=(after["asks"] - before["asks"]) / BUSY_TASKS,
        worker=100 * (after["cpu"] - before["cpu"]) / passed,
        waits=[wait * 1000 for wait in after["waits"]],
    )
    cells = [
        f"{queues:,}",
        describe(slots, strict=strict),
        f"{cost.asks:.2f}",
        f"{cost.worker:.1f} %",
        *(f"{wait:.1f} ms" for wait in middle_and_worst(cost.waits)),
    ]
    print(f"| {' | '.join(cells)} |", flush=True)
    return cost


def describe(slots: int, *, strict: bool) -> str:
    """Return the order and the slots of a busy worker in words."""
    return f"{'strict' if strict else 'weighted'}, {slots} {'slot' if slots == 1 else 'slots'}"


def judge_idle(bars: Bars, costs: dict[tuple[int, int], Idle]) -> None:
    """Compare idle workers with their bars."""
    one, usual, many, fleet = (costs[scene] for scene in SCENES)
    bars.tell(
        "300 idle queues, script calls more than with one", usual.scripts - one.scripts, "/s", most=CALLS_BAR
    )
    bars.tell(
        "300 idle queues, pipelines more than with one", usual.pipelines - one.pipelines, "/s", most=CALLS_BAR
    )
    bars.tell("300 idle queues, Redis", usual.redis, "%", most=REDIS_BAR)
    bars.tell("300 idle queues, worker", usual.worker, "%", most=WORKER_BAR)
    bars.tell("300 idle queues and ten workers, Redis", fleet.redis, "%", most=FLEET_BAR)
    bars.tell("1,000 idle queues, Redis", many.redis, "%", most=3 * REDIS_BAR)
    bars.tell("1,000 idle queues, worker", many.worker, "%", most=3 * WORKER_BAR)
    bars.tell("1,000 idle queues, start", many.start, "s", most=START_BAR)


def judge_busy(bars: Bars, name: str, one: Busy, many: Busy) -> None:
    """Compare a busy worker with its bars, and with a worker of one queue."""
    name = f"{BUSY_QUEUES} busy queues, {name}"
    bars.tell(f"{name}: dequeue calls of a task", many.asks, most=ASKS_BAR)
    bars.tell(f"{name}: longest wait", max(many.waits), "ms", most=LONGEST_BAR)
    bars.tell(f"{name}: CPU, of one queue's", many.worker / one.worker, "x", most=BUSY_BAR)


def redis_client(embedded: EmbeddedServer) -> redis.Redis:
    """Return a client for reading the server's statistics."""
    return redis.Redis.from_url(embedded.url)


def main() -> int:
    """Measure everything, print three tables and the bars, and return the exit code."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 12.0
    samples = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000
    busy_costs: dict[str, list[Busy]] = {}
    with EmbeddedServer() as embedded:
        alone = measure_alone(embedded, seconds)
        print(f"Redis without workers: {alone:.2%} of a core\n\n{HEAD}")
        idle_costs = {scene: idle(embedded, *scene, seconds, alone) for scene in SCENES}
        print(f"\n{PICK_UP_HEAD}")
        pick_ups = pick_up(samples)
        print(f"\n{BUSY_HEAD}")
        for strict in (True, False):
            for slots in (1, 100):
                busy_costs[describe(slots, strict=strict)] = [
                    busy(embedded, queues, slots, strict=strict) for queues in (1, BUSY_QUEUES)
                ]
    print()
    bars = Bars()
    judge_idle(bars, idle_costs)
    bars.tell("300 queues, pick-up p99 of one queue's", pick_ups[300] / pick_ups[1], "x", most=PICK_UP_BAR)
    for name, (one, many) in busy_costs.items():
        judge_busy(bars, name, one, many)
    return bars.exit_code


if __name__ == "__main__":
    logging.disable()
    if sys.argv[1:2] == ["worker"]:
        asyncio.run(Worker(sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])).run())
    else:
        sys.exit(main())
