"""Depth: cost of a task when many tasks wait behind it, or when other workers run many long tasks."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from bench.contestants import PLAIN, Contestant
from bench.figures import RATE, REDIS_CPU, WORKER_CPU
from bench.measurements.drain import costs
from bench.measurements.shape import Entry, Measurement
from bench.peers.shape import Order
from bench.stage import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measurements.shape import Scene
    from bench.stage import Moment, Stage, Worker

DEPTHS: Final = (1_000, 100_000, 1_000_000)
ELSEWHERE: Final = 9_990
CHUNK: Final = 1_000
ACTIVE: Final = "asynq:{default}:active"
PENDING: Final = "asynq:{default}:pending"
WITHHELD: Final = "asynq:{default}:bench:withheld"
MOVE: Final = """
local ids = redis.call('RPOP', KEYS[1], ARGV[1])
if ids then redis.call('LPUSH', KEYS[2], unpack(ids)) end
"""


class Depth:
    """A separate Redis server with about `depth` pending tasks, of which some are drained."""

    def __init__(self, stage: Stage, depth: int) -> None:
        self._stage = stage
        self._depth = depth
        self._server = stage.new_server()
        self._drained = stage.most

    def run(self) -> dict[str, float]:
        """Measure how fast some of the pending tasks are drained.

        Raises:
            MeasurementError: a task is lost, or ran twice.
        """
        wanted = self._depth + self._drained
        if missing := wanted - self._present:
            self._stage.producer(PLAIN.peer, self._server).carry_out(Order("bulk", missing))
        # The hashes of all tasks exist, but the list has only the entries that keep its length constant.
        self._move(PENDING, WITHHELD, self._server.client.llen(PENDING) - self._depth)
        with self._stage.worker(PLAIN, server=self._server) as worker:
            figures = self._watch(worker)
        ran, left = worker.counters.ended, self._present
        if left + ran != wanted:
            raise MeasurementError(f"{wanted} tasks were there, {ran} ran, and {left} are left")
        return figures

    def close(self) -> None:
        """Stop the server."""
        self._server.stop()

    @property
    def _present(self) -> int:
        return int(self._server.client.llen(PENDING)) + int(self._server.client.llen(WITHHELD))

    def _watch(self, worker: Worker) -> dict[str, float]:
        counters = worker.counters
        moved = 0

        def feed() -> None:
            nonlocal moved
            if (ended := counters.ended) > moved:
                self._move(WITHHELD, PENDING, ended - moved)
                moved = ended

        worker.wait(lambda: counters.ended > 0, "waiting for the first task", meanwhile=feed)
        begin = worker.moment(commands=False)
        enough = int(self._drained * 0.9)
        worker.wait(lambda: counters.ended >= enough, f"waiting for {enough} tasks", meanwhile=feed)
        return _costs(begin, worker.moment(commands=False))

    def _move(self, source: str, target: str, count: int) -> None:
        for at in range(0, count, CHUNK):
            self._server.client.eval(MOVE, 2, source, target, str(min(CHUNK, count - at)))


@contextmanager
def _open(scene: Scene) -> Iterator[list[Entry]]:
    stage = scene.stage
    with ExitStack() as stack:
        entries = []
        for depth in DEPTHS:
            # A smoke run cannot wait for a million tasks.
            here = depth // 1_000 + 100 if stage.is_smoke else depth
            measured = Depth(stage, here)
            stack.callback(measured.close)
            key, title = f"{depth}-pending", f"about {depth:,} pending"
            entries.append(Entry(key, title, measured.run, reference=f"{DEPTHS[0]}-pending"))
        yield entries


DEPTH = Measurement(
    "depth",
    "Drain of a queue with many pending tasks (pyasynq, 100 slots)",
    (RATE, WORKER_CPU, REDIS_CPU),
    _open,
    compared=f"the rate with {DEPTHS[0]:,}",
    notes=(
        "The list of pending tasks is kept at its length while the worker drains; Redis has that work too.",
    ),
)


class Elsewhere:
    """A separate Redis server on which another worker keeps `held` long tasks active."""

    def __init__(self, stage: Stage, held: int) -> None:
        self._stage = stage
        self._held = held
        self._server = stage.new_server()
        self._stack = ExitStack()

    def open(self) -> None:
        """Start the other worker, and wait until it runs its `held` long tasks.

        Raises:
            MeasurementError: the worker does not start them in time.
        """
        if not self._held:
            return
        producer = self._stage.producer(PLAIN.peer, self._server)
        producer.carry_out(Order("naps of an hour", self._held))
        holder = self._stack.enter_context(self._stage.worker(_holder(self._held), server=self._server))
        holder.wait(lambda: holder.counters.started >= self._held, "waiting for the long tasks to begin")

    def run(self) -> dict[str, float]:
        """Measure how fast a queue is drained while the other worker holds its tasks.

        Raises:
            MeasurementError: a task is lost, or ran twice.
        """
        count = self._stage.most
        self._stage.producer(PLAIN.peer, self._server).carry_out(Order("bulk", count))
        with self._stage.worker(PLAIN, server=self._server) as worker:
            worker.wait(lambda: worker.counters.ended > 0, "waiting for the first task")
            begin = worker.moment(commands=False)
            worker.wait(lambda: worker.counters.ended >= count, f"waiting for {count} tasks")
            figures = _costs(begin, worker.moment(commands=False))
            active = ("LLEN", ACTIVE)
            worker.wait(lambda: self._server.left([list(active)], ("default",)) == self._held, "settling")
        if worker.counters.ended != count:
            raise MeasurementError(f"{count} tasks were enqueued, and {worker.counters.ended} ran")
        return figures

    def close(self) -> None:
        """Kill the other worker and stop the server."""
        self._stack.close()
        self._server.stop()


def _holder(held: int) -> Contestant:
    settings = {"concurrency": held, "shutdown_timeout": 0}
    return Contestant("holder", PLAIN.peer, "the holder of long tasks", settings)


@contextmanager
def _open_elsewhere(scene: Scene) -> Iterator[list[Entry]]:
    stage = scene.stage
    with ExitStack() as stack:
        entries = []
        for held in (0, ELSEWHERE):
            here = Elsewhere(stage, held // 100 if stage.is_smoke else held)
            stack.callback(here.close)
            here.open()
            title = f"{held:,} long tasks active in another worker" if held else "nothing else active"
            entries.append(Entry(f"{held}-elsewhere", title, here.run, reference="0-elsewhere"))
        yield entries


def _costs(begin: Moment, end: Moment) -> dict[str, float]:
    figures = costs(begin, end)
    return {name: figures[name] for name in (RATE.name, WORKER_CPU.name, REDIS_CPU.name)}


ELSEWHERE_ACTIVE = Measurement(
    "elsewhere",
    "Drain while another worker holds long tasks of the same queue (pyasynq, 100 slots)",
    (RATE, WORKER_CPU, REDIS_CPU),
    _open_elsewhere,
    compared="the rate with nothing else",
)
