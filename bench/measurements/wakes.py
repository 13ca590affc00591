"""Wakes: the load that many idle workers put on Redis when a task arrives."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.contestants import PLAIN
from bench.figures import Figure
from bench.floors import BareSocket, bare_workers
from bench.measurements.shape import Entry, Measurement
from bench.peers.shape import Order
from bench.stage import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.children import Child
    from bench.measurements.shape import Scene
    from bench.servers import RedisServer
    from bench.stage import Counters, Stage

COST: Final = Figure("Redis CPU", "µs an enqueue", 0)
WOKEN: Final = Figure("wakes", "an enqueue", 1)
CALLS: Final = Figure("script calls", "an enqueue", 1)
FLEETS: Final = (1, 20, 200)
IN_ONE_PROCESS: Final = 50
TASKS: Final = 40
PAUSE: Final = 0.03
_BARE_KEY: Final = "floor:key"
SETTLE_SECONDS: Final = 6.0
"""Seconds for a heartbeat, with a margin: after it, each server knows the number of servers."""


def wake(stage: Stage, number: int) -> dict[str, float]:
    """Measure this many idle servers.

    Raises:
        MeasurementError: a task did not run, or ran twice.
    """
    server = stage.server()
    server.flush()
    counters = stage.new_counters()
    tasks = max(3, int(TASKS * stage.scale))
    producer = stage.new_producer(PLAIN.peer, server, counters)
    try:
        with _fleet(stage, server, counters, number):
            time.sleep(SETTLE_SECONDS * stage.scale)
            producer.prepare(Order("one", tasks, paced=PAUSE))
            resting = _during(server, lambda: time.sleep(PAUSE * tasks))
            producer.start()
            working = _during(server, producer.result)
    finally:
        producer.stop()
    if counters.ended != tasks:
        raise MeasurementError(f"{tasks} tasks were enqueued, and {counters.ended} ran")
    share = working.seconds / resting.seconds
    return {
        COST.name: (working.cpu - resting.cpu * share) / tasks * 1e6,
        WOKEN.name: (working.looks - resting.looks * share) / tasks,
        CALLS.name: (working.calls - resting.calls * share) / tasks,
    }


def bare_wake(stage: Stage, number: int) -> dict[str, float]:
    """Return the CPU time of Redis for waking this many bare connections, which only read a changed key."""
    server = stage.server()
    server.flush()
    changes = max(3, int(TASKS * stage.scale))

    def repeat(change: Callable[[], object]) -> None:
        for _ in range(changes):
            time.sleep(PAUSE)
            change()

    with bare_workers(stage, server, _BARE_KEY, number), BareSocket(server) as bare:

        def set_key() -> None:
            bare.send(("SET", _BARE_KEY, "value"))
            bare.receive()

        resting = _during(server, lambda: repeat(lambda: None))
        working = _during(server, lambda: repeat(set_key))
    return {
        COST.name: (working.cpu - resting.cpu) / changes * 1e6,
        WOKEN.name: (working.looks - resting.looks) / changes,
        CALLS.name: 0.0,
    }


class Spent(NamedTuple):
    """Work of Redis during one interval."""

    seconds: float
    cpu: float
    looks: int
    """Number of repeated reads by which workers watch a key again: one after each wake-up."""
    calls: int


def _during(server: RedisServer, action: Callable[[], object]) -> Spent:
    begun, cpu = time.perf_counter(), server.cpu_seconds()
    looks, calls = server.calls("exists"), server.calls("evalsha")
    action()
    return Spent(
        time.perf_counter() - begun,
        server.cpu_seconds() - cpu,
        server.calls("exists") - looks,
        server.calls("evalsha") - calls,
    )


@contextmanager
def _fleet(stage: Stage, server: RedisServer, counters: Counters, number: int) -> Iterator[None]:
    """Run this many idle servers during a block.

    Raises:
        MeasurementError: the servers do not start.
    """
    environment = stage.programs[PLAIN.peer].environment(server.url, counters.path)
    parts = [min(IN_ONE_PROCESS, number - at) for at in range(0, number, IN_ONE_PROCESS)]
    processes: list[Child] = []
    try:
        for part in parts:
            command = [sys.executable, "-m", "bench.fleet", server.url, str(part)]
            processes.append(stage.children.start(command, name="fleet", environment=environment, pipes=True))
        for process in processes:
            pipe = process.process.stdout
            if pipe is None or not pipe.readline():
                raise MeasurementError(f"the fleet did not start: {process.said}")
        yield
    finally:
        for process in processes:
            process.kill()


@contextmanager
def _open(scene: Scene) -> Iterator[list[Entry]]:
    stage = scene.stage

    def entry(number: int) -> Entry:
        here = min(number, 5) if stage.is_smoke else number
        title = f"{number} idle worker{'s' if number > 1 else ''}"
        return Entry(f"{number}-idle", title, lambda: wake(stage, here), reference=f"{FLEETS[0]}-idle")

    def floor(number: int) -> Entry:
        here = min(number, 5) if stage.is_smoke else number
        title = f"floor: {number} bare socket{'s' if number > 1 else ''}"
        return Entry(f"{number}-bare", title, lambda: bare_wake(stage, here), reference=f"{FLEETS[0]}-bare")

    yield [*(entry(number) for number in FLEETS), *(floor(number) for number in FLEETS[:2])]


WAKES = Measurement(
    "wakes",
    "Cost of a task for Redis where many workers are idle (pyasynq)",
    (COST, WOKEN, CALLS),
    _open,
    compared="one of them",
    notes=(
        "From enqueue to done, apart from what the idle workers cost anyway.",
        "A wake is a key that a worker reads again to be told of its next change.",
        "With one idle worker all script calls are the task's own, and so are three reads by those scripts.",
        "Bare sockets read a key again that is set, and do no more.",
    ),
)
