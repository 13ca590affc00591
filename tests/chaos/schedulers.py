"""Three schedulers on one entry, two of them killed in turn: every tick is enqueued once.

    PYTHONPATH=src:. python tests/chaos/schedulers.py [--ticks 60]

The entry is `@every 1s` with `misfire="all"`, so the run takes as many seconds as it has ticks. The third
scheduler is part of the worker that runs the tasks.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from pyasynq.embedded import EmbeddedServer
from tests.worker_process import WorkerProcess

if TYPE_CHECKING:
    from tests.invariants import RedisClient

MODULE = """
import os

import redis

from pyasynq import App, context

app = App()
client = redis.Redis.from_url(os.environ["PYASYNQ_REDIS_URL"])


@app.cron("@every 1s", misfire="all")
@app.task("tick")
def tick() -> None:
    client.rpush("ran", context().task_id)
"""
PATIENCE = 30
"""Seconds until a tick that does not come is a failure."""


LATEST = 1.0
"""Seconds by which all ticks together may be late."""


@dataclass
class Run:
    """Result of a run: the ticks whose tasks were run, in Unix time, and how many seconds it took.

    The first ticks may have run before it began, so it may take less time than its ticks do.
    """

    ticks: list[int]
    seconds: float
    early: list[int]
    """Ticks that ran before their second."""

    def faults(self) -> list[str]:
        """Return what is wrong: ticks that ran twice or too early, or are missing between the others."""
        seen = sorted(self.ticks)
        twice = [f"tick {tick} ran twice" for tick, after in pairwise(seen) if tick == after]
        wanted = range(seen[0], seen[-1] + 1)
        missing = [f"tick {tick} is missing" for tick in wanted if tick not in set(seen)]
        return twice + missing + [f"tick {tick} ran too early" for tick in self.early]


def run(url: str, folder: Path, ticks: int) -> Run:
    """Let three schedulers run for this many ticks; kill one after a third of them, one after two thirds."""
    (folder / "ticking.py").write_text(MODULE)
    client: RedisClient
    with ExitStack() as stack, redis.Redis.from_url(url) as client:
        first, second = (
            stack.enter_context(WorkerProcess(folder, url, "scheduler", "ticking:app")) for _ in range(2)
        )
        last = stack.enter_context(WorkerProcess(folder, url, "worker", "ticking:app", "--with-scheduler"))
        for process in (first, second, last):
            process.wait_for("1 periodic task is scheduled")
        started = time.monotonic()
        ran = _wait_for(client, ticks // 3)
        first.kill()
        ran += _wait_for(client, ticks // 3)
        second.kill()
        ran += _wait_for(client, ticks - 2 * (ticks // 3))
        seconds = time.monotonic() - started
        last.terminate()
        assert 0 == last.wait(), last.text
        early = [tick for tick, moment in ran if moment < tick]
        seen = [tick for tick, _ in ran] + [_tick_of(task_id) for task_id in client.lrange("ran", 0, -1)]
    return Run(seen, seconds, early)


def _wait_for(client: RedisClient, number: int) -> list[tuple[int, float]]:
    """Return the next ticks, each with the Unix time at which it was seen."""
    ran = []
    for _ in range(number):
        found = client.blpop("ran", timeout=PATIENCE)
        assert found is not None, f"no tick for {PATIENCE} s"
        ran.append((_tick_of(found[1]), time.time()))
    return ran


def _tick_of(task_id: bytes) -> int:
    return int(task_id.rpartition(b":")[2])


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ticks", type=int, default=60)
    ticks = parser.parse_args().ticks
    with EmbeddedServer() as server, tempfile.TemporaryDirectory() as folder:
        done = run(server.url, Path(folder), ticks)
    faults = done.faults()
    if done.seconds > ticks + LATEST:
        faults.append(f"{ticks} ticks took {done.seconds:.1f} s")
    print(f"{len(done.ticks)} ticks in {done.seconds:.1f} s, {len(faults)} faults")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
