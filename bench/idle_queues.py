"""Measure the cost of idle queues: `python bench/idle_queues.py [SECONDS]`.

One embedded server; each worker is a process of its own. A line for each number of queues and workers: script
calls, pipelines and commands a second, the CPU of Redis and of one worker in percent of a core, how long a
worker takes to start, and until Redis reports the next task of each queue, and how long tasks wait for it.
Then the cost of 92 tasks a second in one queue after another. The workers' heartbeats are in all figures.
The CPU of Redis leaves out what the same Redis uses without any worker, which the first line says: that alone
is about 0.09 %.
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
from typing import IO, TYPE_CHECKING, Any, Final, cast

import redis

from pyasynq import Client, EmbeddedServer, Mux, Server, ServerConfig, Task
from pyasynq._engine.take.intake import Intake
from pyasynq._engine.take.queue_state import Watch
from pyasynq._redis.pool_async import AsyncPool

if TYPE_CHECKING:
    from collections.abc import Iterable

SCENES: Final = ((1, 1), (300, 1), (1_000, 1), (300, 10))
"""Numbers of queues and workers."""
PICKED_UP: Final = 300
"""Number of tasks that are picked up, one after another."""
PACE: Final = 1 / 92
"""Seconds between two tasks of the busy worker; at 92 tasks a second, `BUSY_TASKS` take ten seconds."""
BUSY_QUEUES: Final = 200
BUSY_TASKS: Final = 920
SETTLE_SECONDS: Final = 1.0
HEAD: Final = (
    "| queues | workers | scripts/s | pipelines/s | commands/s | Redis CPU | worker CPU "
    "| start | watched | wait p50 | wait p99 |\n" + "|---:" * 11 + "|"
)
BUSY_HEAD: Final = (
    "| queues | order | slots | dequeue calls a task | worker CPU | wait p50 | wait p99 | longest |\n"
    + "|---:" * 8
    + "|"
)


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
        command = [sys.executable, __file__, "worker", url, str(queues), json.dumps(settings)]
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


async def pick_up(url: str, queues: int, tasks: int, pace: float | None = None) -> None:
    """Enqueue tasks into random queues, one after another, or at a pace."""
    async with Client(url) as client:
        due = time.monotonic()
        for _ in range(tasks):
            queue = f"q{random.randrange(queues)}"  # noqa: S311 - guards nothing
            await client.enqueue("note", f"{time.time()}".encode(), queue=queue)
            due += PACE if pace is None else pace
            await asyncio.sleep(max(0.0, due - time.monotonic()))


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


def idle(embedded: EmbeddedServer, queues: int, workers: int, seconds: float, alone: float) -> str:
    """Measure idle workers; return their table row. `alone` is the result of `measure_alone`."""
    client = redis_client(embedded)
    client.flushall()
    processes = [Process(embedded.url, queues) for _ in range(workers)]
    time.sleep(SETTLE_SECONDS)
    before, used = redis_figures(client), [one.figures() for one in processes]
    begun = time.monotonic()
    time.sleep(seconds)
    after, now = redis_figures(client), [one.figures() for one in processes]
    passed = time.monotonic() - begun
    pipelines = sum(b["pipelines"] - a["pipelines"] for a, b in zip(used, now, strict=True))
    cpu = sum(b["cpu"] - a["cpu"] for a, b in zip(used, now, strict=True)) / workers
    asyncio.run(pick_up(embedded.url, queues, PICKED_UP, 0.03))
    time.sleep(SETTLE_SECONDS)
    waits = [wait for one in processes for wait in one.figures()["waits"]]
    for one in processes:
        one.end()
    client.close()
    cells = [
        f"{queues:,}",
        f"{workers}",
        f"{(after[0] - before[0]) / passed:.1f}",
        f"{pipelines / passed:.1f}",
        f"{(after[1] - before[1]) / passed:,.0f}",
        f"{(after[2] - before[2]) / passed - alone:.2%}",
        f"{cpu / passed:.2%}",
        f"{statistics.mean(one.begun['start'] for one in processes):.2f} s",
        f"{statistics.mean(one.begun['watched'] for one in processes):.2f} s",
        f"{statistics.median(waits) * 1000:.1f} ms",
        f"{percentile(waits, 0.99) * 1000:.1f} ms",
    ]
    return f"| {' | '.join(cells)} |"


def busy(embedded: EmbeddedServer, queues: int, slots: int, *, strict: bool) -> str:
    """Measure a worker that gets 92 tasks a second, in one queue after another; return its table row."""
    client = redis_client(embedded)
    client.flushall()
    process = Process(embedded.url, queues, concurrency=slots, strict_priority=strict)
    time.sleep(SETTLE_SECONDS)
    before, begun = process.figures(), time.monotonic()
    asyncio.run(pick_up(embedded.url, queues, BUSY_TASKS))
    passed = time.monotonic() - begun
    time.sleep(SETTLE_SECONDS)
    after = process.figures()
    process.end()
    client.close()
    waits = after["waits"]
    cells = [
        f"{queues:,}",
        "strict" if strict else "weighted",
        f"{slots}",
        f"{(after['asks'] - before['asks']) / BUSY_TASKS:.2f}",
        f"{(after['cpu'] - before['cpu']) / passed:.1%}",
        f"{statistics.median(waits) * 1000:.1f} ms",
        f"{percentile(waits, 0.99) * 1000:.1f} ms",
        f"{max(waits) * 1000:.1f} ms",
    ]
    return f"| {' | '.join(cells)} |"


def redis_client(embedded: EmbeddedServer) -> redis.Redis:
    """Return a client for reading the server's statistics."""
    return redis.Redis.from_url(embedded.url)


def main() -> None:
    """Measure everything, and print two tables."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 12.0
    with EmbeddedServer() as embedded:
        alone = measure_alone(embedded, seconds)
        print(f"Redis without workers: {alone:.2%} of a core\n\n{HEAD}")
        for queues, workers in SCENES:
            print(idle(embedded, queues, workers, seconds, alone), flush=True)
        print(f"\n{BUSY_HEAD}")
        for strict in (True, False):
            for slots in (1, 100):
                for queues in (1, BUSY_QUEUES):
                    print(busy(embedded, queues, slots, strict=strict), flush=True)


if __name__ == "__main__":
    logging.disable()
    if sys.argv[1:2] == ["worker"]:
        asyncio.run(Worker(sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])).run())
    else:
        main()
