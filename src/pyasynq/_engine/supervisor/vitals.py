"""Signs of life of workers, and the answers to probes."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._background.plain_http import Answer
from pyasynq.events import QueuesAsked, ServerStateChanged, SignOfLife

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq.events import Events

SILENCE: Final = 10.0
"""Seconds without a sign of life after which a worker is not live: two timeouts of a call to Redis."""
STARTING: Final = "starting"
_ACTIVE: Final = "active"


@dataclass(slots=True, eq=False)
class Vitals:
    """One worker's signs of life. Each field is written in one step (atomic), so any thread may read it.

    Attributes:
        worker: its number, from 1.
        pid: id of its process.
        state: `starting`, then as in `ServerState`.
        beat_at: monotonic time of the last sign of life of the renewing thread that the event loop passed on.
        reachable: number of its queues for which Redis answered the last call.
        unreachable: names of its other queues.
    """

    worker: int
    pid: int
    state: str = STARTING
    beat_at: float | None = None
    reachable: int = 0
    unreachable: tuple[str, ...] = ()

    def watch(self, events: Events) -> None:
        """Record events of a server of this process, which has not been started yet."""
        events.subscribe(ServerStateChanged, self._on_state)
        events.subscribe(SignOfLife, self._beat)
        events.subscribe(QueuesAsked, lambda event: self.note_queues(event.queues, event.unreachable))

    def note_queues(self, queues: int, unreachable: Iterable[str]) -> None:
        """Record the number of queues that the worker asked, and the names of the unreachable queues."""
        self.unreachable = tuple(unreachable)
        self.reachable = queues - len(self.unreachable)

    def _on_state(self, event: ServerStateChanged) -> None:
        self.state = event.state

    def _beat(self, _: SignOfLife) -> None:
        self.beat_at = time.monotonic()

    def is_live(self, now: float) -> bool:
        """Return whether event loop and renewing thread run (liveness); True before their first sign."""
        return self.beat_at is None or now - self.beat_at <= SILENCE

    def is_ready(self, now: float) -> bool:
        """Return whether the worker takes tasks, and can ask at least one of its queues (readiness)."""
        alive = self.beat_at is not None and self.is_live(now)
        return alive and self.state == _ACTIVE and self.reachable > 0


def is_live(workers: Iterable[Vitals], now: float) -> bool:
    """Return whether all workers are live. Ended workers do not count: they are being replaced."""
    return all(worker.is_live(now) for worker in workers)


def answer(path: str, workers: Iterable[Vitals], now: float) -> Answer:
    """Return the HTTP response to a probe.

    200 at `/live` if all workers are live, at `/ready` if any is ready; otherwise 503. 404 at other paths.
    """
    workers = list(workers)
    if path == "/live":
        well = is_live(workers, now)
    elif path == "/ready":
        well = any(worker.is_ready(now) for worker in workers)
    else:
        return Answer(404, _json({"error": "only /live and /ready exist"}))
    told = [
        {
            "worker": worker.worker,
            "pid": worker.pid,
            "state": worker.state,
            "seconds_since_heartbeat": None if worker.beat_at is None else round(now - worker.beat_at, 1),
            "unreachable_queues": list(worker.unreachable),
        }
        for worker in workers
    ]
    return Answer(200 if well else 503, _json({path[1:]: well, "workers": told}))


def _json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
