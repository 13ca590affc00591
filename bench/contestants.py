"""Contestants: each peer in its documented fast setup, and pyasynq in several."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bench.environments import GO_PEER, OURS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAIN: Final = "main"
VALKEY: Final = "valkey"
ONE_QUEUE: Final = ("default",)


class Length(enum.IntEnum):
    """Extent of a run: a smoke test, the most important measurements, or all of them."""

    SMOKE = 0
    DEFAULT = 1
    LONG = 2


@dataclass(frozen=True)
class Contestant:
    """One peer with the settings of its worker.

    Attributes:
        pace: approximate speed as a fraction of the fastest contestant's; also the fraction of its tasks to
            run.
        server: kind of Redis server that the contestant runs on.
        length: the shortest run that includes this contestant.
    """

    key: str
    peer: str
    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    queues: tuple[str, ...] = ONE_QUEUE
    pace: float = 1.0
    server: str = MAIN
    length: Length = Length.DEFAULT

    def count(self, most: int) -> int:
        """Return the number of tasks that this contestant runs if the fastest runs `most`; at least 20."""
        return max(20, int(most * self.pace))

    @property
    def work_settings(self) -> dict[str, Any]:
        """Settings of the contestant's worker, with its queues."""
        return {"queues": list(self.queues), **self.settings}


def _queues(count: int) -> tuple[str, ...]:
    return tuple(f"q{number}" for number in range(count))


PLAIN: Final = Contestant(OURS, OURS, "pyasynq, 100 slots (the default)", length=Length.SMOKE)
GO: Final = Contestant(
    GO_PEER, GO_PEER, "Asynq in Go, concurrency 100", {"concurrency": 100}, pace=0.3, length=Length.SMOKE
)
GO_ON_VALKEY: Final = Contestant(
    "asynq-valkey", GO_PEER, "Asynq in Go, on Valkey", {"concurrency": 100}, pace=0.3, server=VALKEY
)

_OURS: Final = (
    PLAIN,
    Contestant("pyasynq-1000", OURS, "pyasynq, 1,000 slots", {"concurrency": 1000}),
    Contestant("pyasynq-10", OURS, "pyasynq, 10 slots", {"concurrency": 10}, pace=0.6),
    Contestant(
        "pyasynq-one-call", OURS, "pyasynq, one call in flight, no prefetch", {"one_call": True}, pace=0.8
    ),
    Contestant("pyasynq-5-queues", OURS, "pyasynq, five queues", queues=_queues(5), length=Length.SMOKE),
    Contestant("pyasynq-10-queues", OURS, "pyasynq, ten queues", queues=_queues(10)),
    Contestant(
        "pyasynq-2-processes", OURS, "pyasynq, two processes", {"processes": 2}, pace=1.5, length=Length.SMOKE
    ),
    Contestant("pyasynq-valkey", OURS, "pyasynq, on Valkey", server=VALKEY, length=Length.SMOKE),
)
_GO: Final = (
    GO,
    Contestant(
        "asynq-1000",
        GO_PEER,
        "Asynq in Go, concurrency 1,000",
        {"concurrency": 1000},
        pace=0.3,
        length=Length.LONG,
    ),
    GO_ON_VALKEY,
)
_PYTHON: Final = {
    "celery": ("Celery", 0.04),
    "dramatiq": ("Dramatiq", 0.12),
    "rq": ("RQ", 0.008),
    "arq": ("arq", 0.05),
    "taskiq": ("taskiq", 0.1),
    "saq": ("SAQ", 0.07),
    "streaq": ("streaq", 0.05),
    "huey": ("Huey", 0.09),
}
PEERS_IN_PYTHON: Final = tuple(
    Contestant(key, key, title, pace=pace, length=Length.SMOKE) for key, (title, pace) in _PYTHON.items()
)
_TWO_PROCESSES: Final = tuple(
    Contestant(
        f"{key}-2-processes",
        key,
        f"{title}, two processes",
        {"processes": 2},
        pace=2 * pace,
        length=Length.LONG,
    )
    for key, (title, pace) in _PYTHON.items()
)
DRAINING: Final = (*_OURS, *_GO, *PEERS_IN_PYTHON, *_TWO_PROCESSES)


def choose(
    contestants: Iterable[Contestant], *, peers: Iterable[str], servers: Iterable[str], length: Length
) -> list[Contestant]:
    """Return the contestants of these peers and servers whose `length` is at most the given one."""
    peers, servers = set(peers), set(servers)
    return [
        contestant
        for contestant in contestants
        if contestant.peer in peers and contestant.server in servers and contestant.length <= length
    ]
