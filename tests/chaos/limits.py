"""Four workers on one queue with limits: never too many tasks at once, never too many starts in a time.

    PYTHONPATH=src:. python -m tests.chaos.limits concurrency [--tasks 1000]
    PYTHONPATH=src:. python -m tests.chaos.limits rate [--seconds 20]

Both are judged by a journal in Redis in which each task notes its begin and its end by the clock of Redis.
`concurrency`: three at once at the most, while two of the workers are killed in the middle of their tasks,
and every task runs in the end. `rate`: 50 a second, 10 at once, counted over 20.0 s from the first start:
1,000 to 1,020 starts, and no second with more than 61. Exit code 1 on any violation.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import redis

from pyasynq.client import Client
from pyasynq.embedded import EmbeddedServer
from tests.chaos.fleet import Fleet
from tests.chaos.limited_app import JOURNAL, NOTE, QUEUE, work
from tests.invariants import violations

if TYPE_CHECKING:
    from tests.invariants import RedisClient

WORKERS: Final = 4
CONCURRENCY: Final = 50
LIMIT: Final = 3
RATE: Final = 50
BURST: Final = 10
PATIENCE_SECONDS: Final = 120.0
_SECOND: Final = 1_000_000


class Note(NamedTuple):
    """A line of the journal; `at` in microseconds."""

    what: str
    task: str
    pid: int
    at: int


def read_journal(client: RedisClient) -> list[Note]:
    """Return what was written down, in order."""
    lines = [line.decode().split() for line in client.lrange(JOURNAL, 0, -1)]
    return [Note(what, task, int(pid), int(float(at))) for what, task, pid, at in lines]


def running_at_once(journal: list[Note]) -> int:
    """Return how many tasks ran at once at the most; a killed process ends what it was running."""
    most = 0
    running: set[tuple[int, str]] = set()
    for note in journal:
        if note.what == "begin":
            running.add((note.pid, note.task))
        elif note.what == "end":
            running.remove((note.pid, note.task))
        else:
            running = {one for one in running if one[0] != note.pid}
        most = max(most, len(running))
    return most


def starts_in(journal: list[Note], seconds: float) -> int:
    """Return how many tasks started within this many seconds of the first start."""
    begins = [note.at for note in journal if note.what == "begin"]
    return sum(at <= begins[0] + seconds * _SECOND for at in begins)


def most_starts_of_a_second(journal: list[Note]) -> int:
    """Return the most starts of any stretch of one second, wherever it begins."""
    most = 0
    window: deque[int] = deque()
    for at in (note.at for note in journal if note.what == "begin"):
        window.append(at)
        while at - window[0] >= _SECOND:
            window.popleft()
        most = max(most, len(window))
    return most


async def enqueue(url: str, tasks: int, milliseconds: int) -> None:
    """Put tasks into the queue that take up to this many milliseconds."""
    async with Client(url) as client:
        numbers = random.Random(tasks)
        results = await client.enqueue_many(
            work.task(milliseconds=numbers.randint(0, milliseconds)) for _ in range(tasks)
        )
    assert all(results)


def limited_fleet(url: str, folder: Path, *limits: str) -> Fleet:
    """Return four workers that serve the queue with these limits."""
    options = ["tests.chaos.limited_app:app", "--queues", f"{QUEUE}=1", "--concurrency", str(CONCURRENCY)]
    return Fleet(
        WORKERS,
        [*options, *limits, "--log-level", "error"],
        {"PYASYNQ_REDIS_URL": url},
        folder / "workers.log",
    )


def _wait(client: RedisClient, what: str, notes: int) -> list[Note]:
    """Wait until the journal has this many notes of a kind, and return it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        journal = read_journal(client)
        if sum(note.what == what for note in journal) >= notes:
            return journal
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(journal)} notes after {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.05)


def run_concurrency(url: str, folder: Path, *, tasks: int, kills: int) -> list[Note]:
    """Run tasks with a limit of three, kill this many workers that run some, and return the journal."""
    asyncio.run(enqueue(url, tasks, 60))
    client: RedisClient
    with (
        redis.Redis.from_url(url) as client,
        limited_fleet(url, folder, "--queue-max-run", f"{QUEUE}={LIMIT}") as fleet,
    ):
        for number in range(kills):
            _wait(client, "end", tasks * (number + 1) // (kills + 2))
            # The last that began something is most likely in the middle of it.
            pid = [note.pid for note in read_journal(client) if note.what == "begin"][-1]
            fleet.kill(pid, replace=False)
            client.eval(NOTE, 1, JOURNAL, "kill", "-", str(pid))
        journal = _wait(client, "end", tasks)
        assert [] == list(fleet.failures())
    return journal


def run_rate(url: str, folder: Path, *, seconds: float) -> list[Note]:
    """Run tasks at 50 a second for this many seconds and a little longer, and return the journal."""
    asyncio.run(enqueue(url, int(RATE * (seconds + 10)), 20))
    client: RedisClient
    limits = ("--queue-rate", f"{QUEUE}={RATE}/s+{BURST}")
    with redis.Redis.from_url(url) as client, limited_fleet(url, folder, *limits) as fleet:
        journal = _wait(client, "begin", int(RATE * (seconds + 1)) + BURST)
        assert [] == list(fleet.failures())
    return journal


def main() -> int:
    """Do one of the two, print the figures, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["concurrency", "rate"])
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    begun = time.monotonic()
    with EmbeddedServer() as server, tempfile.TemporaryDirectory(prefix="pyasynq-chaos-") as name:
        if arguments.what == "rate":
            journal = run_rate(server.url, Path(name), seconds=arguments.seconds)
        else:
            journal = run_concurrency(server.url, Path(name), tasks=arguments.tasks, kills=2)
        with redis.Redis.from_url(server.url) as client:
            faults = violations(client)
    if arguments.what == "rate":
        starts, most = starts_in(journal, arguments.seconds), most_starts_of_a_second(journal)
        least = int(RATE * arguments.seconds)
        print(f"{starts} starts in {arguments.seconds:.1f} s, at most {most} in a second")
        if not least <= starts <= least + 2 * BURST or most > RATE + BURST + 1:
            faults.append(f"wanted: {least} to {least + 2 * BURST} starts, at most {RATE + BURST + 1}")
    else:
        most, ran = running_at_once(journal), len({note.task for note in journal if note.what == "end"})
        workers = len({note.pid for note in journal if note.what == "begin"})
        seconds = time.monotonic() - begun
        print(f"{ran} tasks ran in {workers} workers in {seconds:.1f} s, at most {most} at once")
        if most > LIMIT or ran < arguments.tasks:
            faults.append(f"wanted: {arguments.tasks} tasks, at most {LIMIT} at once")
    for fault in faults:
        print(f"  VIOLATION: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
