"""A worker under steady load with faults: its memory and connections at the end are what they were early on.

    python -m tests.chaos.soak [--minutes 30] [--seed 7]

They are measured each second; compared are the medians of the stretch that ends after a sixth of the time
(five of thirty minutes) and of the last stretch. Memory may differ by 5 % and counts only from five minutes
on: before that a worker still warms up. Exit code 1 if one of them grew, or if a task was lost.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, cast

import psutil
import redis.asyncio
import redis.exceptions
from rich.console import Console
from rich.progress import Progress

from tests.chaos.scenario import PROFILES, Scenario, run_scenario
from tests.fix_proxy import Cut, Proxy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.stage import Stage

TASKS_AT_ONCE: Final = 100
LOAD_INTERVAL_SECONDS: Final = 0.25
TOLERANCE: Final = 0.05
EARLY: Final = 1 / 6
LEAST_MINUTES: Final = 5.0
"""From this many on a growth of memory is a failure."""
_STRETCH: Final = 1 / 12
"""How long a stretch is, as a share of all."""
_MEGABYTE: Final = 1_000_000


class Sample(NamedTuple):
    """A measurement of the worker."""

    at: float
    memory: int
    """Resident, in bytes."""
    connections: int
    """To Redis."""


@dataclass(frozen=True, slots=True)
class Level:
    """The medians of a stretch."""

    memory: float
    connections: float

    @classmethod
    def before(cls, end: float, samples: Sequence[Sample], seconds: float) -> Level:
        """Return those of the stretch that ends then."""
        stretch = [one for one in samples if end - seconds * _STRETCH <= one.at <= end]
        return cls(
            statistics.median(one.memory for one in stretch),
            statistics.median(one.connections for one in stretch),
        )


class Soak(Scenario):
    """A steady load, and one of many faults every other second."""

    name: ClassVar = "soak"
    tasks: ClassVar = 0
    least_tasks: ClassVar = 0
    workers: ClassVar = 1
    proxy: ClassVar = Proxy

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.limit_seconds = seconds + 120  # type: ignore[misc]  # this one's depends on what was asked for
        self.samples: list[Sample] = []

    async def inject(self, stage: Stage) -> None:
        """Load, do harm and measure for this many seconds."""
        ends = time.monotonic() + self.seconds
        await asyncio.gather(self._load(stage, ends), self._harm(stage, ends), self._measure(stage, ends))

    async def _load(self, stage: Stage, ends: float) -> None:
        while time.monotonic() < ends:
            await stage.producer.run(stage.producer.acknowledged + TASKS_AT_ONCE)
            await asyncio.sleep(LOAD_INTERVAL_SECONDS)

    async def _harm(self, stage: Stage, ends: float) -> None:
        proxy = cast("Proxy", stage.proxy)
        async with redis.asyncio.Redis.from_url(stage.bed.url) as client:
            while time.monotonic() < ends:
                await stage.pause(0.5, 3.5)
                kind = stage.random.choice(["connection cut", "all cut", "CLIENT KILL", "SCRIPT FLUSH"])
                with stage.fault(kind):
                    if kind == "connection cut":
                        proxy.cut(stage.random.choice(list(Cut)), containing=b"EVALSHA")
                    elif kind == "all cut":
                        proxy.cut_all()
                    elif kind == "CLIENT KILL":
                        with suppress(redis.exceptions.RedisError):
                            await client.client_kill_filter(_type="normal", skipme=True)
                    else:
                        await client.script_flush()

    async def _measure(self, stage: Stage, ends: float) -> None:
        [pid] = stage.fleet.pids()
        worker, began = psutil.Process(pid), time.monotonic()
        while (now := time.monotonic()) < ends:
            connections = len(worker.net_connections("inet"))
            self.samples.append(Sample(now - began, worker.memory_info().rss, connections))
            stage.tell(int(now - began), int(self.seconds))
            await asyncio.sleep(min(1.0, self.seconds / 60))


def growth(soak: Soak) -> list[str]:
    """Print both levels; return a sentence about each that is too high."""
    early = Level.before(soak.seconds * EARLY, soak.samples, soak.seconds)
    late = Level.before(soak.samples[-1].at, soak.samples, soak.seconds)
    change = late.memory / early.memory - 1
    levels = [Level.before(soak.seconds * part / 6, soak.samples, soak.seconds) for part in range(1, 7)]
    print("memory in MB:", ", ".join(f"{level.memory / _MEGABYTE:.1f}" for level in levels))
    print(
        f"memory {early.memory / _MEGABYTE:.1f} MB after {soak.seconds * EARLY / 60:.2g} minutes, "
        f"{late.memory / _MEGABYTE:.1f} MB after {soak.seconds / 60:.2g} ({change:+.1%}); "
        f"connections {early.connections:g} and {late.connections:g}"
    )
    complaints = []
    if change > TOLERANCE and soak.seconds >= LEAST_MINUTES * 60:
        complaints.append(f"memory grew by {change:.1%}")
    if late.connections > early.connections * (1 + TOLERANCE):
        complaints.append(f"connections grew from {early.connections:g} to {late.connections:g}")
    return complaints


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, help="of all random choices")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.minutes:g} minutes", flush=True)
    soak = Soak(arguments.minutes * 60)
    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("seconds", total=soak.seconds)
        result = run_scenario(
            soak,
            seed,
            PROFILES["long"],
            lambda done, total: bars.update(bar, completed=done) if total else None,
        )
    verdict = result.verdict
    faults = ", ".join(f"{number} {kind}" for kind, number in sorted(verdict.faults.items()))
    print(f"{verdict.acknowledged:,} tasks, {verdict.again.total()} ran again; {faults}")
    complaints = [*growth(soak), *verdict.lost, *verdict.problems]
    for complaint in complaints:
        print(complaint)
    print(f"lost: {len(verdict.lost)}; seed {seed}; {result.seconds:.0f} s")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
