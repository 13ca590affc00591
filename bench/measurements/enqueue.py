"""Enqueue: tasks per second that one client enqueues, in each of its modes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.contestants import GO, PEERS_IN_PYTHON, PLAIN, choose
from bench.figures import CLIENT_CPU, RATE, REDIS_CPU
from bench.floors import FLOOR_ENQUEUE, FLOOR_ONE, FLOOR_PIPELINED, enqueue_floor, trivial_floor
from bench.measurements.shape import Entry, Measurement
from bench.peers.shape import Order
from bench.stage import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestants import Contestant
    from bench.measurements.shape import Scene
    from bench.stage import Stage

WARM_UP: Final = 50
PIPELINE: Final = 500


@dataclass(frozen=True)
class Way:
    """One way of enqueueing.

    Attributes:
        share: number of tasks, as a fraction of the tasks that the fastest contestant drains.
        paced: whether slower clients get fewer.
    """

    title: str
    share: float
    floor: str
    paced: bool


WAYS: Final = {
    "one": Way("one by one", 0.1, FLOOR_ONE, paced=False),
    "concurrent": Way("100 at once", 0.6, FLOOR_ENQUEUE, paced=True),
    "bulk": Way("all in one call", 1.0, FLOOR_ENQUEUE, paced=True),
    "blocking one": Way("blocking, one by one", 0.1, FLOOR_ONE, paced=False),
    "blocking bulk": Way("blocking, all in one call", 1.0, FLOOR_ENQUEUE, paced=True),
}


def enqueue(stage: Stage, contestant: Contestant, mode: str, count: int) -> dict[str, float]:
    """Measure one client.

    Raises:
        MeasurementError: Redis does not have exactly this many tasks afterwards.
    """
    server = stage.server(contestant.server)
    server.flush()
    producer = stage.producer(contestant.peer, server)
    producer.carry_out(Order(mode, WARM_UP))
    producer.prepare(Order(mode, count))
    redis = server.cpu_seconds()
    producer.start()
    found = producer.result()
    used = server.cpu_seconds() - redis
    queued = stage.left(contestant.peer, server)
    if queued != count + WARM_UP:
        raise MeasurementError(f"{count + WARM_UP} tasks were enqueued, but {queued} are in Redis")
    return {
        RATE.name: count / found["seconds"],
        CLIENT_CPU.name: found["cpu"] / count * 1e6,
        REDIS_CPU.name: used / count * 1e6,
    }


def _count(stage: Stage, contestant: Contestant, way: Way) -> int:
    pace = 1.0 if contestant.peer in (PLAIN.peer, GO.peer) else contestant.pace * 2 if way.paced else 0.3
    return max(WARM_UP, int(stage.most * way.share * pace))


def _entry(stage: Stage, contestant: Contestant, mode: str) -> Entry:
    way = WAYS[mode]
    count = _count(stage, contestant, way)
    name = "100 goroutines" if (contestant.peer, mode) == (GO.peer, "concurrent") else way.title
    title = f"{stage.programs[contestant.peer].description.title}, {name}"
    return Entry(
        f"{contestant.key} {mode}",
        title,
        lambda: enqueue(stage, contestant, mode, count),
        way.floor,
        f"{GO.key} {'one' if way.floor == FLOOR_ONE else 'concurrent'}",
    )


@contextmanager
def _open(scene: Scene) -> Iterator[list[Entry]]:
    stage = scene.stage
    contestants = choose(
        (PLAIN, GO, *PEERS_IN_PYTHON), peers=scene.peers, servers=scene.servers, length=scene.length
    )
    entries = [
        _entry(stage, contestant, mode)
        for contestant in contestants
        for mode in stage.programs[contestant.peer].description.modes
        if mode in WAYS
    ]
    few, many = int(stage.most * 0.1), stage.most
    entries += [
        Entry(
            FLOOR_ONE, "floor: EVALSHA of nothing, one by one", lambda: trivial_floor(stage, few, at_once=1)
        ),
        Entry(
            FLOOR_PIPELINED,
            "floor: EVALSHA of nothing, pipelined",
            lambda: trivial_floor(stage, many, at_once=PIPELINE),
        ),
        Entry(
            FLOOR_ENQUEUE, "floor: the same work on the data, 50 a call", lambda: enqueue_floor(stage, many)
        ),
    ]
    yield entries


ENQUEUE = Measurement(
    "enqueue",
    "Enqueue",
    (RATE, CLIENT_CPU, REDIS_CPU),
    _open,
    compared="Asynq in Go",
    notes=("One by one is compared with one goroutine, all else with 100 goroutines.",),
)
