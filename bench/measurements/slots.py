"""Slots: throughput of many handlers that sleep."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.contestants import PLAIN, Contestant
from bench.figures import PEAK_MEMORY, RATE, REDIS_CPU, WORKER_CPU, Figure
from bench.measurements.shape import Entry, Measurement
from bench.stage import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measurements.shape import Scene
    from bench.stage import Stage

SHARE: Final = Figure("of the ideal", "%", 1, rising=True)


@dataclass(frozen=True)
class Sleepers:
    """One scenario of tasks that sleep.

    Attributes:
        mode: name of the enqueue order.
        seconds: average sleep of a task in seconds.
        turns: number of tasks that each slot runs.
    """

    key: str
    title: str
    mode: str
    concurrency: int
    seconds: float
    turns: int


SLEEPERS: Final = (
    Sleepers("100ms-1000", "100 ms of sleep, 1,000 slots", "naps of 100 ms", 1_000, 0.1, 20),
    Sleepers("10ms-100", "10 ms of sleep, 100 slots", "naps of 10 ms", 100, 0.01, 200),
    Sleepers(
        "random-10000",
        "up to 500 ms of sleep, 10,000 slots, random ends",
        "dozes of up to 500 ms",
        10_000,
        0.25,
        6,
    ),
)


def sleep(stage: Stage, sleepers: Sleepers) -> dict[str, float]:
    """Measure one worker from the beginning of the first handler to the end of the last.

    Raises:
        MeasurementError: not exactly the enqueued tasks ran, or some are left.
    """
    server = stage.server()
    server.flush()
    count = int(sleepers.concurrency * max(1, sleepers.turns * stage.scale))
    contestant = Contestant(sleepers.key, PLAIN.peer, sleepers.title, {"concurrency": sleepers.concurrency})
    stage.fill(contestant, server, count, mode=sleepers.mode)
    with stage.worker(contestant) as worker:
        counters = worker.counters
        worker.wait(lambda: counters.started > 0, "waiting for the first task")
        begin = worker.moment(commands=False)
        worker.wait(lambda: counters.ended >= count, f"waiting for {count} tasks")
        end = worker.moment(commands=False)
        stage.wait_until_empty(worker, contestant)
        peak = worker.child.peak_memory()
    if counters.ended != count:
        raise MeasurementError(f"{count} tasks were enqueued, and {counters.ended} ran")
    rate = count / (end.at - begin.at)
    return {
        RATE.name: rate,
        SHARE.name: rate / (sleepers.concurrency / sleepers.seconds) * 100,
        WORKER_CPU.name: (end.worker - begin.worker) / count * 1e6,
        REDIS_CPU.name: (end.redis - begin.redis) / count * 1e6,
        PEAK_MEMORY.name: peak / 2**20,
    }


@contextmanager
def _open(scene: Scene) -> Iterator[list[Entry]]:
    def entry(sleepers: Sleepers) -> Entry:
        return Entry(sleepers.key, sleepers.title, lambda: sleep(scene.stage, sleepers))

    yield [entry(sleepers) for sleepers in SLEEPERS]


SLOTS = Measurement(
    "slots",
    "Handlers that sleep (pyasynq)",
    (RATE, SHARE, WORKER_CPU, REDIS_CPU, PEAK_MEMORY),
    _open,
    notes=(
        "The ideal is the number of slots divided by the sleep, with no time for starting and finishing.",
        "With random ends it cannot be reached: the last slots empty one by one.",
    ),
)
