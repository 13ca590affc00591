"""Idle: the load of a worker without tasks on Redis and on its own processor."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

import redis

from bench.contestants import GO, PEERS_IN_PYTHON, PLAIN, Length, choose
from bench.figures import PEAK_MEMORY, Figure
from bench.measurements.shape import Entry, Measurement, entries_of
from bench.peers.shape import Order
from bench.stage import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestants import Contestant
    from bench.measurements.shape import Scene
    from bench.servers import RedisServer
    from bench.stage import Stage

CALLS: Final = Figure("commands", "/s", 1)
INSIDE: Final = Figure("with those inside scripts", "/s", 1)
SHARE: Final = Figure("worker CPU", "% of a core", 2)
REDIS_SHARE: Final = Figure("Redis CPU", "% of a core", 2)
SETTLE_SECONDS: Final = 1.5
WINDOW_SECONDS: Final = 6.0


class Listener:
    """Counter of the commands that Redis runs, in total and as sent by clients (MONITOR).

    Raises:
        MeasurementError: at the end of the block, if it missed some commands.
    """

    def __init__(self, server: RedisServer) -> None:
        self.count = 0
        self.inside = 0
        # An idle worker may be silent for longer than a client usually waits.
        self._client = redis.Redis(port=server.port, socket_timeout=None)
        self._monitor = self._client.monitor()  # type: ignore[no-untyped-call] # redis-py leaves it out
        self._stop = threading.Event()
        self._failure: redis.RedisError | None = None
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Self:
        self._monitor.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        # A command for MONITOR, so that the thread wakes up.
        self._client.ping()
        self._thread.join()
        self._monitor.__exit__(*error)
        self._client.close()
        if self._failure is not None:
            raise MeasurementError(f"listening to Redis failed: {self._failure}") from self._failure

    def _listen(self) -> None:
        try:
            while not self._stop.is_set():
                heard = self._monitor.next_command()
                if self._stop.is_set():
                    return
                self.inside += 1
                self.count += heard["client_type"] != "lua"
        except redis.RedisError as error:
            self._failure = error


def idle(stage: Stage, contestant: Contestant) -> dict[str, float]:
    """Measure one worker that has run one task and waits for more."""
    server = stage.server(contestant.server)
    server.flush()
    stage.producer(contestant.peer, server).carry_out(Order("one", 1))
    # The producer may call Redis now and then; only the worker is to be counted.
    stage.dismiss_producers()
    with stage.worker(contestant) as worker:
        worker.wait(lambda: worker.counters.ended >= 1, "waiting for the worker to be ready")
        time.sleep(SETTLE_SECONDS * stage.scale)
        begin = worker.moment(commands=False)
        with Listener(server) as listener:
            time.sleep(WINDOW_SECONDS * stage.scale)
            end = worker.moment(commands=False)
            count, inside = listener.count, listener.inside
        peak = worker.child.peak_memory()
    seconds = end.at - begin.at
    return {
        CALLS.name: count / seconds,
        INSIDE.name: inside / seconds,
        SHARE.name: (end.worker - begin.worker) / seconds * 100,
        REDIS_SHARE.name: (end.redis - begin.redis) / seconds * 100,
        PEAK_MEMORY.name: peak / 2**20,
    }


@contextmanager
def _open(scene: Scene) -> Iterator[list[Entry]]:
    contestants = (PLAIN, GO, *PEERS_IN_PYTHON) if scene.length is Length.LONG else (PLAIN,)
    chosen = choose(contestants, peers=scene.peers, servers=scene.servers, length=scene.length)
    yield entries_of(chosen, lambda contestant: idle(scene.stage, contestant))


IDLE = Measurement("idle", "An idle worker", (CALLS, INSIDE, SHARE, REDIS_SHARE, PEAK_MEMORY), _open)
