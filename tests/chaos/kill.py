"""Kill a random worker every second while 10,000 tasks run, and look whether Redis and the handlers agree.

    python -m tests.chaos.kill --runs 10 --seed 7

Each run: no task lost, none archived, the invariants hold at the end, and the tasks of every killed worker
are pending again within 40 s of its death. A task may run twice, never zero times.
Exit code 1 on any violation.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import redis

from pyasynq.client import Client
from pyasynq.embedded import EmbeddedServer
from pyasynq.inspector import Inspector
from tests.chaos.app import JOURNAL_VARIABLE, QUEUE, read_journal, work_in_loop, work_in_thread
from tests.chaos.fleet import Fleet
from tests.invariants import violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.task import Task, TaskInfo

CONCURRENCY: Final = 10
WORKERS: Final = 4
RECOVERY_LIMIT_SECONDS: Final = 40.0
RUN_LIMIT_SECONDS: Final = 140.0
# Long enough that the first recovered tasks meet the last kills.
LONGEST_TASK_MILLISECONDS: Final = 300
KILL_INTERVAL_SECONDS: Final = 1.0
LOOK_INTERVAL_SECONDS: Final = 0.25


@dataclass(slots=True)
class Kill:
    """One killed worker and the tasks that were active in its name after its death."""

    server_id: str
    at: float
    held: frozenset[str] | None = None
    left: frozenset[str] = frozenset()
    seconds: float = 0.0
    """From the kill until the last of them had left its hands."""


@dataclass(slots=True)
class Result:
    """The figures of one run."""

    seed: int
    tasks: int
    seconds: float = 0.0
    kills: int = 0
    held: int = 0
    longest_recovery: float = 0.0
    completed: int = 0
    archived: int = 0
    begun_twice: int = 0
    ended_twice: int = 0
    violations: list[str] = field(default_factory=list)

    def row(self) -> tuple[str, ...]:
        """Return the figures as texts, in the order of `HEADERS`."""
        return (
            str(self.seed),
            f"{self.seconds:.1f}",
            str(self.kills),
            str(self.held),
            f"{self.longest_recovery:.1f}",
            str(self.completed),
            str(self.archived),
            str(self.tasks - self.completed - self.archived),
            str(self.begun_twice),
            str(self.ended_twice),
            str(len(self.violations)),
        )


HEADERS: Final = (
    "seed",
    "seconds",
    "kills",
    "held",
    "back after s",
    "completed",
    "archived",
    "lost",
    "begun twice",
    "ended twice",
    "violations",
)


class Run:
    """One run on a server and a fleet of its own."""

    def __init__(self, url: str, fleet: Fleet, inspector: Inspector, result: Result) -> None:
        self._url = url
        self._fleet = fleet
        self._inspector = inspector
        self._result = result
        self._random = random.Random(result.seed)
        self._kills: list[Kill] = []

    async def run(self, journal: Path) -> None:
        """Enqueue, kill and watch until nothing is left to do, then check."""
        await self._until_workers_are_ready()
        started = time.monotonic()
        ids = await self._enqueue()
        await self._kill_and_watch(started)
        self._result.seconds = time.monotonic() - started
        await self._check(ids, journal)

    async def _until_workers_are_ready(self) -> None:
        deadline = time.monotonic() + 30
        while {server.pid for server in await self._inspector.servers()} < set(self._fleet.pids()):
            if time.monotonic() > deadline or list(self._fleet.failures()):
                raise SystemExit("the workers did not start")
            await asyncio.sleep(LOOK_INTERVAL_SECONDS)

    async def _enqueue(self) -> set[str]:
        async with Client(self._url) as client:
            results = await client.enqueue_many(self._tasks())
        refused = [result for result in results if not result]
        if refused:
            raise SystemExit(f"{len(refused)} tasks could not be enqueued, the first: {refused[0]}")
        return {str(result.task_id) for result in results}

    def _tasks(self) -> Iterator[Task]:
        for number in range(self._result.tasks):
            milliseconds = self._random.randrange(LONGEST_TASK_MILLISECONDS)
            yield (work_in_loop if number % 2 else work_in_thread).task(milliseconds=milliseconds)

    async def _kill_and_watch(self, started: float) -> None:
        next_kill = started + KILL_INTERVAL_SECONDS
        is_first_pass = True
        while True:
            queue = await self._inspector.queue_info(QUEUE)
            self._watch(await self._active())
            is_first_pass = is_first_pass and queue.pending > 0
            if not queue.unfinished:
                break
            if time.monotonic() > started + RUN_LIMIT_SECONDS:
                self._result.violations.append(
                    f"{queue.unfinished} tasks unfinished after {RUN_LIMIT_SECONDS} s"
                )
                break
            self._result.violations.extend(self._fleet.failures())
            if is_first_pass and time.monotonic() >= next_kill:
                next_kill += KILL_INTERVAL_SECONDS
                await self._kill_one()
            await asyncio.sleep(LOOK_INTERVAL_SECONDS)

    async def _active(self) -> list[TaskInfo]:
        return await self._inspector.list_tasks(QUEUE, "active", page_size=1_000)

    async def _kill_one(self) -> None:
        pid = self._random.choice(self._fleet.pids())
        server_ids = [server.id for server in await self._inspector.servers() if server.pid == pid]
        self._fleet.kill(pid)
        self._result.kills += 1
        # A worker that had not announced itself yet had taken nothing yet.
        self._kills.extend(Kill(server_id, time.monotonic()) for server_id in server_ids)

    def _watch(self, active: list[TaskInfo]) -> None:
        """Note which tasks of the dead are still in their hands; the first look says what they held."""
        now = time.monotonic()
        for kill in self._kills:
            still = frozenset(task.id for task in active if task.server_id == kill.server_id)
            if kill.held is None:
                kill.held = kill.left = still
            elif kill.left:
                kill.left &= still
                kill.seconds = now - kill.at

    async def _check(self, ids: set[str], journal: Path) -> None:
        result = self._result
        queue = await self._inspector.queue_info(QUEUE)
        result.completed, result.archived = queue.completed, queue.archived
        result.held = sum(len(kill.held or ()) for kill in self._kills)
        result.longest_recovery = max((kill.seconds for kill in self._kills), default=0.0)
        begun, ended = read_journal(journal)
        result.begun_twice = sum(count > 1 for count in begun.values())
        result.ended_twice = sum(count > 1 for count in ended.values())
        if result.completed != len(ids) or result.archived:
            result.violations.append(
                f"{result.completed} completed, {result.archived} archived of {len(ids)}"
            )
        if never := ids - ended.keys():
            result.violations.append(f"{len(never)} tasks were never run to their end, such as {min(never)}")
        result.violations.extend(
            f"tasks of {kill.server_id} were pending again only after {kill.seconds:.1f} s"
            for kill in self._kills
            if kill.left or kill.seconds > RECOVERY_LIMIT_SECONDS
        )
        with redis.Redis.from_url(self._url) as client:
            result.violations.extend(violations(client))


async def one_run(seed: int, tasks: int) -> Result:
    """Do one run and return its figures."""
    result = Result(seed, tasks)
    with tempfile.TemporaryDirectory(prefix="pyasynq-chaos-") as folder, EmbeddedServer() as server:
        journal, log = Path(folder) / "journal", Path(folder) / "workers.log"
        journal.touch()
        environment = {"PYASYNQ_REDIS_URL": server.url, JOURNAL_VARIABLE: str(journal)}
        options = ["tests.chaos.app:app", "--concurrency", str(CONCURRENCY), "--queues", f"{QUEUE}=1"]
        with Fleet(WORKERS, [*options, "--log-level", "error"], environment, log) as fleet:
            async with Inspector(server.url) as inspector:
                await Run(server.url, fleet, inspector, result).run(journal)
        if result.violations:
            print(log.read_text(errors="replace")[-4_000:], file=sys.stderr)
    return result


def main() -> int:
    """Do the runs, print a line for each and a table at the end, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10, help="how many runs (10)")
    parser.add_argument("--tasks", type=int, default=10_000, help="tasks of each run (10,000)")
    parser.add_argument("--seed", type=int, default=None, help="of the first run; the next ones count up")
    arguments = parser.parse_args()
    first = random.SystemRandom().randrange(10_000) if arguments.seed is None else arguments.seed
    results = []
    for seed in range(first, first + arguments.runs):
        print(f"run {seed - first + 1} of {arguments.runs}, seed {seed}: ", end="", flush=True)
        result = asyncio.run(one_run(seed, arguments.tasks))
        print(
            ", ".join(f"{name} {text}" for name, text in zip(HEADERS[1:], result.row()[1:], strict=True)),
            flush=True,
        )
        for violation in result.violations:
            print(f"  VIOLATION: {violation}", flush=True)
        results.append(result)
    print_table(results)
    return 1 if any(result.violations for result in results) else 0


def print_table(results: list[Result]) -> None:
    """Print the figures of all runs below one another."""
    rows = [HEADERS, *(result.row() for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print()
    for row in rows:
        print("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
