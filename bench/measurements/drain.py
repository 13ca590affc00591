"""Drain: rate and cost per task when a worker starts with this many waiting tasks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.contestants import DRAINING, GO, GO_ON_VALKEY, PLAIN, VALKEY, choose
from bench.figures import BYTES, COMMANDS, PEAK_MEMORY, RATE, REDIS_CPU, WORKER_CPU
from bench.floors import FLOOR_DRAIN, FLOOR_DRAIN_VALKEY, drain_floor
from bench.measurements.shape import Entry, Measurement, entries_of
from bench.stage import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestants import Contestant
    from bench.measurements.shape import Scene
    from bench.stage import Moment, Stage, Worker

FIGURES = (RATE, WORKER_CPU, REDIS_CPU, COMMANDS, PEAK_MEMORY, BYTES)


def costs(begin: Moment, end: Moment) -> dict[str, float]:
    """Return rate and costs per task between two moments.

    Raises:
        MeasurementError: too few tasks ran between them.
    """
    tasks = end.ended - begin.ended
    if tasks <= 0:
        raise MeasurementError("all tasks ran between two looks: take more of them")
    return {
        RATE.name: tasks / (end.at - begin.at),
        WORKER_CPU.name: (end.worker - begin.worker) / tasks * 1e6,
        REDIS_CPU.name: (end.redis - begin.redis) / tasks * 1e6,
        COMMANDS.name: (end.commands - begin.commands) / tasks,
    }


def watch(worker: Worker, count: int, processes: int = 1) -> dict[str, float]:
    """Measure from the start of the last process to the last task; empty if all tasks had run by then."""
    counters = worker.counters

    def all_have_begun() -> bool:
        return counters.ended > 0 and (counters.processes >= processes or counters.ended >= count)

    worker.wait(all_have_begun, "waiting for the first task")
    begin = worker.moment()
    worker.wait(lambda: counters.ended >= count, f"waiting for {count} tasks")
    return costs(begin, worker.moment()) if begin.ended < count else {}


def drain(stage: Stage, contestant: Contestant, count: int, size: int = 100) -> dict[str, float]:
    """Measure one drain.

    Raises:
        MeasurementError: a wrong number of tasks ran, some are left in Redis, or they are too few to measure.
    """
    server = stage.server(contestant.server)
    server.flush()
    empty = server.memory()
    stage.fill(contestant, server, count, size=size)
    in_redis = (server.memory() - empty) / count
    with stage.worker(contestant) as worker:
        figures = watch(worker, count, contestant.settings.get("processes", 1))
        stage.wait_until_empty(worker, contestant)
        figures[PEAK_MEMORY.name] = worker.child.peak_memory() / 2**20
    if RATE.name not in figures and not stage.is_smoke:
        raise MeasurementError("all tasks had run at the first look: take more of them")
    ran = worker.counters.ended
    if ran != count:
        raise MeasurementError(f"{contestant.key}: {count} tasks were enqueued, and {ran} ran")
    return {**figures, BYTES.name: in_redis}


@contextmanager
def _open(scene: Scene) -> Iterator[list[Entry]]:
    stage = scene.stage
    contestants = choose(DRAINING, peers=scene.peers, servers=scene.servers, length=scene.length)

    def run(contestant: Contestant) -> dict[str, float]:
        return drain(stage, contestant, contestant.count(stage.most))

    def floor(contestant: Contestant) -> str:
        return FLOOR_DRAIN_VALKEY if contestant.server == VALKEY else FLOOR_DRAIN

    def reference(contestant: Contestant) -> str:
        return GO_ON_VALKEY.key if contestant.server == VALKEY else GO.key

    entries = entries_of(contestants, run, floor=floor, reference=reference)
    title = "floor: the same work on the data, 50 a call"
    entries.append(Entry(FLOOR_DRAIN, title, lambda: drain_floor(stage)))
    if VALKEY in scene.servers:
        on_valkey = f"{title}, on Valkey"
        entries.append(Entry(FLOOR_DRAIN_VALKEY, on_valkey, lambda: drain_floor(stage, VALKEY)))
    yield entries


@contextmanager
def _open_payloads(scene: Scene) -> Iterator[list[Entry]]:
    stage = scene.stage
    contestants = choose((PLAIN, GO), peers=scene.peers, servers=scene.servers, length=scene.length)

    def entry(contestant: Contestant, size: int, share: float) -> Entry:
        count = contestant.count(int(stage.most * share))
        title = f"{contestant.title}, {size // 1000} KB"
        return Entry(f"{contestant.key}-{size}", title, lambda: drain(stage, contestant, count, size))

    yield [
        entry(contestant, size, share)
        for size, share in ((1_000, 0.7), (100_000, 0.05))
        for contestant in contestants
    ]


DRAIN = Measurement(
    "drain",
    "Drain: no-op tasks of 100 bytes of JSON, decoded into a typed handler's arguments",
    FIGURES,
    _open,
    compared="Asynq in Go",
    notes=(
        "Time counts from the first task that ran, or from when both of two processes had run one.",
        "Redis commands include those inside scripts.",
        "Each gets as many tasks as it runs in about a second; exactly those ran, and nothing was left.",
    ),
)
PAYLOADS = Measurement(
    "payload",
    "Drain with larger payloads",
    FIGURES,
    _open_payloads,
    by_default=False,
)
