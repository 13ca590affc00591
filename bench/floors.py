"""Floors: theoretical limits of any client of this Redis, measured with a bare socket that packs commands."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import hiredis

from bench.contestants import MAIN
from bench.figures import RATE, REDIS_CPU
from bench.stage import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from bench.children import Child
    from bench.servers import RedisServer
    from bench.stage import Stage

FLOOR_ONE: Final = "floor-one"
FLOOR_PIPELINED: Final = "floor-pipelined"
FLOOR_ENQUEUE: Final = "floor-enqueue"
FLOOR_DRAIN: Final = "floor-drain"
FLOOR_DRAIN_VALKEY: Final = "floor-drain-valkey"
FLOOR_PICK_UP: Final = "floor-pick-up"
BATCH: Final = 50
IN_FLIGHT: Final = 2
MESSAGE: Final = b"m" * 180
"""Placeholder for a task message: as long as one with 100 bytes of JSON."""

_LUA: Final = Path(__file__).parent / "lua"
_PREFIX: Final = "floor:{default}:t:"
_KEYS: Final = tuple(f"floor:{{default}}:{name}" for name in ("pending", "active", "lease", "processed"))


class BareSocket:
    """A connection that only packs commands and reads replies."""

    def __init__(self, server: RedisServer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, *commands: tuple[Any, ...]) -> None:
        """Send commands in one write."""
        self._socket.sendall(b"".join(hiredis.pack_command(command) for command in commands))

    def receive(self) -> Any:
        """Wait for the next reply.

        Raises:
            MeasurementError: the reply is an error.
        """
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(1 << 16))
        if isinstance(reply, hiredis.ReplyError):
            raise MeasurementError(f"a floor got the answer {reply}")
        return reply

    def load(self, script: str) -> str:
        """Load a script into Redis, and return its digest."""
        self.send(("SCRIPT", "LOAD", script))
        self.receive()
        return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


class _Stopwatch:
    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._redis, self._at = server.cpu_seconds(), time.perf_counter()

    def figures(self, count: int) -> dict[str, float]:
        """Return the rate, and Redis' processor time since the start."""
        seconds, redis = time.perf_counter() - self._at, self._server.cpu_seconds() - self._redis
        return {RATE.name: count / seconds, REDIS_CPU.name: redis / count * 1e6}


def trivial_floor(stage: Stage, count: int, *, at_once: int) -> dict[str, float]:
    """Measure EVALSHA calls of an empty script, with this many in flight."""
    server = stage.server()
    with BareSocket(server) as bare:
        command = ("EVALSHA", bare.load("return 1"), 1, "{default}:key", "argument")
        watch = _Stopwatch(server)
        for _ in range(0, count, at_once):
            bare.send(*(command for _ in range(at_once)))
            for _ in range(at_once):
                bare.receive()
        return watch.figures(count // at_once * at_once)


def enqueue_floor(stage: Stage, count: int, kind: str = MAIN) -> dict[str, float]:
    """Measure the creation of tasks, 50 a call, two calls in flight.

    Raises:
        MeasurementError: Redis does not have this many tasks afterwards.
    """
    server = stage.server(kind)
    server.flush()
    calls = count // BATCH
    with BareSocket(server) as bare:
        sha = bare.load((_LUA / "enqueue.lua").read_text())
        watch = _Stopwatch(server)
        for call in range(calls + IN_FLIGHT):
            if call < calls:
                tasks = (word for at in range(BATCH) for word in (f"{call:016}-{at:019}", MESSAGE))
                bare.send(("EVALSHA", sha, 1, _KEYS[0], _PREFIX, *tasks))
            if call >= IN_FLIGHT:
                bare.receive()
        figures = watch.figures(calls * BATCH)
    queued = server.client.llen(_KEYS[0])
    if queued != calls * BATCH:
        raise MeasurementError(f"the floor enqueued {queued} of {calls * BATCH} tasks")
    return figures


def drain_floor(stage: Stage, kind: str = MAIN) -> dict[str, float]:
    """Measure taking and finishing tasks, 50 a call, two calls in flight.

    Raises:
        MeasurementError: some tasks were not drained.
    """
    server = stage.server(kind)
    enqueue_floor(stage, stage.most, kind)
    with BareSocket(server) as bare:
        sha = bare.load((_LUA / "drain.lua").read_text())
        watch = _Stopwatch(server)
        count = _drain(bare, sha)
        figures = watch.figures(count)
    left = server.client.llen(_KEYS[0]) + server.client.llen(_KEYS[1])
    if left or count != stage.most // BATCH * BATCH:
        raise MeasurementError(f"the floor drained {count} tasks and left {left}")
    return figures


def _drain(bare: BareSocket, sha: str) -> int:
    """Take and finish tasks until none is left; return their number."""
    count, in_flight, done = 0, 0, []
    for _ in range(IN_FLIGHT):
        bare.send(("EVALSHA", sha, 4, *_KEYS, _PREFIX, BATCH))
        in_flight += 1
    while in_flight:
        done = bare.receive()[::2]
        in_flight -= 1
        count += len(done)
        if done:
            bare.send(("EVALSHA", sha, 4, *_KEYS, _PREFIX, BATCH, *done))
            in_flight += 1
    return count


def pick_up_floor(stage: Stage, samples: int, pause: float) -> list[float]:
    """Return the seconds from the start of an enqueue call until a bare worker has the task.

    Raises:
        MeasurementError: the worker has ended.
    """
    server = stage.server()
    server.flush()
    delays = []
    with BareSocket(server) as bare:
        enqueue = bare.load((_LUA / "enqueue.lua").read_text())
        take = ("EVALSHA", bare.load((_LUA / "drain.lua").read_text()), "4", *_KEYS, _PREFIX, "1")
        with bare_workers(stage, server, _KEYS[0], 1, *take) as worker:
            for number in range(samples):
                time.sleep(pause)
                sent = time.time_ns()
                bare.send(("EVALSHA", enqueue, 1, _KEYS[0], _PREFIX, f"{number:036}", MESSAGE))
                bare.receive()
                delays.append((int(_line(worker)) - sent) / 1e9)
    return delays


@contextmanager
def bare_workers(stage: Stage, server: RedisServer, key: str, number: int, *command: str) -> Iterator[Child]:
    """Make this many bare connections watch a key during a block.

    Raises:
        MeasurementError: the workers do not start.
    """
    words = [sys.executable, "-m", "bench.bare_workers", str(server.port), key, str(number), *command]
    worker = stage.children.start(words, name="bare-workers", environment=os.environ, pipes=True)
    try:
        _line(worker)
        yield worker
    finally:
        worker.kill()


def _line(worker: Child) -> str:
    pipe = worker.process.stdout
    line: bytes = pipe.readline() if pipe is not None else b""
    if not line:
        raise MeasurementError(f"a bare worker has ended: {worker.said}")
    return line.decode()
