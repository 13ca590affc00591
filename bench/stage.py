"""Setup of the measurements of one run: servers, producers and workers."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from bench.contestants import MAIN, ONE_QUEUE
from bench.peers.counters import FIRST_SAMPLE, SAMPLES, STAYING, WORDS, map_counters, sum_of
from bench.peers.shape import Order
from bench.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from bench.children import Child, Children
    from bench.contestants import Contestant
    from bench.environments import Program
    from pyasynq.embedded import ServerBinary

LOOK_SECONDS = 0.002
STALLED_SECONDS = 30.0
EMPTY_SECONDS = 20.0


class MeasurementError(Exception):
    """Error: a measurement failed; the message says why."""


class Counters:
    """Counters shared with the worker processes, in a mapped file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(WORDS * 8))
        self._words = map_counters(path)

    @property
    def ended(self) -> int:
        """Number of handlers that have ended."""
        return sum_of(self._words)

    @property
    def processes(self) -> int:
        """Number of processes that have run a task."""
        return self._words[0]

    @property
    def started(self) -> int:
        """Number of handlers that have begun, for peers whose handlers report it."""
        return sum_of(self._words, 1)

    @property
    def staying(self) -> int:
        """Pid of the process whose handler never ends."""
        return self._words[STAYING]

    def delays(self, count: int) -> list[float]:
        """Return the pick-up delays of this many numbered tasks, in seconds."""
        return [self._words[FIRST_SAMPLE + number % SAMPLES] / 1e9 for number in range(count)]


class Moment(NamedTuple):
    """A snapshot of a worker at work; processor times in seconds."""

    at: float
    ended: int
    redis: float
    worker: float
    commands: int


class Producer:
    """A process that enqueues tasks with a peer's library."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def prepare(self, order: Order) -> None:
        """Send an order; the process makes the arguments of its tasks."""
        self._send(json.dumps(asdict(order)))
        self._receive()

    def start(self) -> None:
        """Tell the process to run the prepared order."""
        self._send("go")

    def result(self) -> dict[str, float]:
        """Wait until the order is done; return `count`, `seconds` and the processor time `cpu`."""
        return cast("dict[str, float]", self._receive())

    def carry_out(self, order: Order) -> dict[str, float]:
        """Prepare an order, start it, and return its result."""
        self.prepare(order)
        self.start()
        return self.result()

    def stop(self) -> None:
        """Kill the process."""
        self._child.kill()

    def _send(self, line: str) -> None:
        pipe = self._child.process.stdin
        assert pipe is not None  # noqa: S101 - it was started with pipes
        pipe.write(line.encode() + b"\n")
        pipe.flush()

    def _receive(self) -> Any:
        pipe = self._child.process.stdout
        assert pipe is not None  # noqa: S101 - as above
        line = pipe.readline()
        if not line:
            raise MeasurementError(f"the producer {self._child.name} ended: {self._child.said}")
        return json.loads(line)


@dataclass
class Worker:
    """A running worker of a contestant, the counters of its handlers, and its server."""

    child: Child
    counters: Counters
    server: RedisServer

    def moment(self, *, commands: bool = True) -> Moment:
        """Take a snapshot; the time and the count first, since the others take a little."""
        at, ended = time.perf_counter(), self.counters.ended
        redis, worker = self.server.cpu_seconds(), self.child.cpu_seconds()
        return Moment(at, ended, redis, worker, self.server.commands() if commands else 0)

    def wait(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        seconds: float = STALLED_SECONDS,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Check every two milliseconds until a condition holds.

        Raises:
            MeasurementError: the worker has ended, or nothing has happened for this many seconds.
        """
        seen, since = -1, time.monotonic()
        while not condition():
            ended, now = self.counters.ended, time.monotonic()
            if ended != seen:
                seen, since = ended, now
            elif now - since > seconds:
                raise MeasurementError(f"{what}: {ended} tasks ran, then nothing; {self.child.said}")
            if not self.child.alive:
                raise MeasurementError(f"{what}: the worker ended: {self.child.said}")
            if meanwhile is not None:
                meanwhile()
            time.sleep(LOOK_SECONDS)


@dataclass
class Stage:
    """Resources that all measurements of a run share: servers, programs, producers.

    Attributes:
        most: number of tasks of the fastest contestant.
        scale: factor that shortens waits and windows in a smoke run; 1 otherwise.
    """

    children: Children
    folder: Path
    binaries: Mapping[str, ServerBinary]
    programs: Mapping[str, Program]
    most: int
    scale: float = 1.0
    servers: dict[str, RedisServer] = field(default_factory=dict)
    _producers: dict[tuple[str, str], tuple[Producer, Counters]] = field(default_factory=dict)
    _number: int = 0

    @property
    def is_smoke(self) -> bool:
        """Whether this run only checks that everything works (smoke test)."""
        return self.scale < 1

    def server(self, name: str = MAIN) -> RedisServer:
        """Return the Redis server of a kind; start it at the first use."""
        if name not in self.servers:
            self.servers[name] = self.new_server(name)
        return self.servers[name]

    def new_server(self, name: str = MAIN) -> RedisServer:
        """Start another server of this kind."""
        return RedisServer(self.binaries[name], self.children, self.folder)

    def new_counters(self) -> Counters:
        """Return new counters, all zero."""
        self._number += 1
        return Counters(self.folder / f"{self._number}.counters")

    def producer(self, peer: str, server: RedisServer) -> Producer:
        """Return the running producer of a peer; an earlier one is reused."""
        key = (peer, server.url)
        if key not in self._producers:
            counters = self.new_counters()
            self._producers[key] = self.new_producer(peer, server, counters), counters
        return self._producers[key][0]

    def new_producer(self, peer: str, server: RedisServer, counters: Counters) -> Producer:
        """Start a producer with these counters; the caller must stop it."""
        program = self.programs[peer]
        child = self.children.start(
            program.arguments("enqueue"),
            name=f"{peer}-producer",
            environment=program.environment(server.url, counters.path),
            pipes=True,
        )
        return Producer(child)

    def dismiss_producers(self) -> None:
        """Stop the producers."""
        for producer, _ in self._producers.values():
            producer.stop()
        self._producers.clear()

    @contextmanager
    def worker(
        self, contestant: Contestant, *, server: RedisServer | None = None, counters: Counters | None = None
    ) -> Iterator[Worker]:
        """Run a worker during a block."""
        program = self.programs[contestant.peer]
        server = server if server is not None else self.server(contestant.server)
        counters = counters if counters is not None else self.new_counters()
        child = self.children.start(
            program.arguments("work", contestant.work_settings),
            name=f"{contestant.key}-worker",
            environment=program.environment(server.url, counters.path),
        )
        try:
            yield Worker(child, counters, server)
        except BaseException:
            # Ctrl-C ends the run at once, without a graceful end.
            child.kill()
            raise
        else:
            child.stop()
        finally:
            counters.path.unlink(missing_ok=True)

    def left(self, peer: str, server: RedisServer, queues: tuple[str, ...] = ONE_QUEUE) -> int:
        """Return the number of a peer's tasks that have not ended."""
        return server.left(self.programs[peer].description.left, queues)

    def fill(
        self,
        contestant: Contestant,
        server: RedisServer,
        count: int,
        *,
        size: int = 100,
        mode: str | None = None,
    ) -> None:
        """Enqueue tasks in the fastest mode.

        Raises:
            MeasurementError: Redis does not have this many tasks afterwards.
        """
        producer = self.producer(contestant.peer, server)
        mode = mode if mode is not None else self.programs[contestant.peer].description.fill
        producer.carry_out(Order(mode, count, size, contestant.queues))
        left = self.left(contestant.peer, server, contestant.queues)
        if left != count:
            raise MeasurementError(f"{contestant.key}: {count} tasks were enqueued, but {left} are in Redis")

    def wait_until_empty(self, worker: Worker, contestant: Contestant) -> None:
        """Wait for the last acknowledgements.

        Raises:
            MeasurementError: tasks are left although all have run.
        """
        ends = time.monotonic() + EMPTY_SECONDS
        while left := self.left(contestant.peer, worker.server, contestant.queues):
            if time.monotonic() > ends:
                raise MeasurementError(f"{contestant.key}: all tasks ran, but {left} are still in Redis")
            time.sleep(LOOK_SECONDS)
