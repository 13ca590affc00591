"""Recovery: time until another worker runs the task of a killed worker."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from bench.contestants import GO, PEERS_IN_PYTHON, PLAIN, Contestant, Length, choose
from bench.figures import Figure
from bench.measurements.shape import Entry, Measurement, entries_of
from bench.peers.shape import Order
from bench.stage import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measurements.shape import Scene
    from bench.stage import Stage

SECONDS: Final = Figure("recovered after", "s", 1)
LIMIT_SECONDS: Final = 150.0
READY_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.05
# For other peers, only the documentation says that recovery takes longer or does not happen.
FAST_ENOUGH: Final = ("streaq",)
SUPERVISED: Final = Contestant(
    "pyasynq-2-processes",
    PLAIN.peer,
    "pyasynq, one of two processes under a supervisor",
    {"processes": 2},
    length=Length.SMOKE,
)


def recover(stage: Stage, contestant: Contestant) -> dict[str, float]:
    """Kill the process that runs a task; measure until the task runs again.

    Raises:
        MeasurementError: the task does not run again within 150 seconds.
    """
    server = stage.server(contestant.server)
    server.flush()
    counters = stage.new_counters()
    with ExitStack() as stack:
        first = stack.enter_context(stage.worker(contestant, server=server, counters=counters))
        mode = stage.programs[contestant.peer].description.fill
        stage.producer(contestant.peer, server).carry_out(Order(mode, 1, stay=True))
        first.wait(lambda: counters.started > 0, "waiting for the task")
        if contestant is SUPERVISED:
            os.kill(counters.staying, signal.SIGKILL)
        else:
            stack.enter_context(stage.worker(contestant, server=server, counters=counters))
            time.sleep(READY_SECONDS)
            first.child.kill()
        killed = time.monotonic()
        while not counters.ended:
            if time.monotonic() - killed > LIMIT_SECONDS:
                raise MeasurementError(f"the task was not run again within {LIMIT_SECONDS:g} s")
            time.sleep(LOOK_SECONDS)
        return {SECONDS.name: time.monotonic() - killed}


@contextmanager
def _open(scene: Scene) -> Iterator[list[Entry]]:
    others = tuple(peer for peer in PEERS_IN_PYTHON if peer.key in FAST_ENOUGH)
    # A smoke run does not wait for a lease.
    contestants = (SUPERVISED,) if scene.stage.is_smoke else (PLAIN, SUPERVISED, GO, *others)
    chosen = choose(contestants, peers=scene.peers, servers=scene.servers, length=scene.length)
    yield entries_of(chosen, lambda contestant: recover(scene.stage, contestant))


RECOVERY = Measurement(
    "recovery",
    "Recovery: the process that runs a task is killed, another worker is there",
    (SECONDS,),
    _open,
    notes=("Peers that are missing here take minutes, or do not run the task again: see the last table.",),
    by_default=False,
    most_rounds=3,
)
