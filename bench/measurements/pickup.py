"""Pick-up: time from before the enqueue call until the handler of an idle worker begins."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from bench.contestants import GO, PEERS_IN_PYTHON, PLAIN, VALKEY, Contestant, Length, choose
from bench.figures import Figure, percentile
from bench.floors import FLOOR_PICK_UP, pick_up_floor
from bench.measurements.shape import Entry, Measurement
from bench.peers.shape import Order
from bench.stage import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measurements.shape import Scene
    from bench.stage import Stage

P50: Final = Figure("p50", "ms", 2)
P90: Final = Figure("p90", "ms", 2)
P99: Final = Figure("p99", "ms", 2)
SAMPLES: Final = 100
PAUSE: Final = 0.02
LIMIT_SECONDS: Final = 4.0
SETTLE_SECONDS: Final = 0.5


@dataclass(frozen=True)
class Pair:
    """A worker, and the client that enqueues its tasks."""

    key: str
    title: str
    worker: Contestant
    client: str


FIVE_QUEUES: Final = Contestant(
    "pyasynq-5-queues",
    PLAIN.peer,
    "pyasynq, five queues",
    queues=tuple(f"q{number}" for number in range(5)),
    length=Length.SMOKE,
)
ON_VALKEY: Final = Contestant("pyasynq-valkey", PLAIN.peer, "pyasynq, on Valkey", server=VALKEY)
PAIRS: Final = (
    Pair("pyasynq", "pyasynq", PLAIN, PLAIN.peer),
    Pair("pyasynq-from-go", "pyasynq, tasks from a client in Go", PLAIN, GO.peer),
    Pair("pyasynq-5-queues", "pyasynq, five queues", FIVE_QUEUES, PLAIN.peer),
    Pair("pyasynq-5-queues-from-go", "pyasynq, five queues, from a client in Go", FIVE_QUEUES, GO.peer),
    Pair("pyasynq-valkey", "pyasynq, on Valkey", ON_VALKEY, PLAIN.peer),
    Pair("asynq", "Asynq in Go", GO, GO.peer),
)
PAIRS_IN_PYTHON: Final = tuple(Pair(peer.key, peer.title, peer, peer.key) for peer in PEERS_IN_PYTHON)


def pick_up(stage: Stage, pair: Pair, samples: int) -> dict[str, float]:
    """Measure one worker, tasks one at a time.

    Raises:
        MeasurementError: a task did not run.
    """
    server = stage.server(pair.worker.server)
    server.flush()
    counters = stage.new_counters()
    producer = stage.new_producer(pair.client, server, counters)
    try:
        with stage.worker(pair.worker, server=server, counters=counters) as worker:
            queues = pair.worker.queues
            producer.carry_out(Order("one", len(queues), queues=queues))
            worker.wait(lambda: counters.ended >= len(queues), "waiting for the worker to be ready")
            time.sleep(SETTLE_SECONDS * stage.scale)
            order = Order("one", samples, queues=queues, paced=PAUSE, limit=LIMIT_SECONDS * stage.scale + 1)
            count = int(producer.carry_out(order)["count"])
            delays = [delay * 1e3 for delay in counters.delays(count)]
    finally:
        producer.stop()
    if not delays:
        raise MeasurementError(f"no task was picked up within {LIMIT_SECONDS * stage.scale + 1:.1f} s")
    return _percentiles(delays)


def _percentiles(delays: list[float]) -> dict[str, float]:
    return {
        P50.name: percentile(delays, 0.5),
        P90.name: percentile(delays, 0.9),
        P99.name: percentile(delays, 0.99),
    }


def floor(stage: Stage, samples: int) -> dict[str, float]:
    """Measure a worker and a client of bare sockets."""
    return _percentiles([delay * 1e3 for delay in pick_up_floor(stage, samples, PAUSE)])


@contextmanager
def _open(scene: Scene) -> Iterator[list[Entry]]:
    stage = scene.stage
    samples = max(5, int(SAMPLES * stage.scale))
    everyone = (*PAIRS, *PAIRS_IN_PYTHON) if scene.length is Length.LONG else PAIRS
    workers = [pair.worker for pair in everyone]
    workers = choose(workers, peers=scene.peers, servers=scene.servers, length=scene.length)
    pairs = [pair for pair in everyone if pair.worker in workers and pair.client in scene.peers]

    def entry(pair: Pair) -> Entry:
        run = partial(pick_up, stage, pair, samples)
        return Entry(pair.key, pair.title, run, floor=None if pair.worker.server == VALKEY else FLOOR_PICK_UP)

    entries = [entry(pair) for pair in pairs]
    title = "floor: the same work on the data, from bare sockets"
    yield [*entries, Entry(FLOOR_PICK_UP, title, lambda: floor(stage, samples))]


PICK_UP = Measurement(
    "pickup",
    "Pick-up by an idle worker",
    (P50, P90, P99),
    _open,
    notes=("Time from the call of `enqueue` to the first line of the handler; one task at a time.",),
)
