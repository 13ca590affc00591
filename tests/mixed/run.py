"""Workers, producers and schedulers of an earlier commit and of this one share queues while some are killed.

    python -m tests.mixed.run [--base COMMIT] [--seconds 120] [--seed 7]

Nothing that was acknowledged may be lost, a task may run again only if its process was killed, no tick may be
enqueued twice or left out, and the limit of a queue holds for both versions together. Exit code 1 if anything
is wrong, 2 if the commit cannot be had.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import redis

from pyasynq.embedded import EmbeddedServer
from pyasynq.errors import QueueNotFoundError
from pyasynq.inspector import Inspector
from tests.chaos.checker import check
from tests.chaos.final import read_final_state
from tests.chaos.fleet import Fleet
from tests.chaos.records import Fault, Recorder, What, read_history
from tests.mixed.base import MissingCommitError, install_base
from tests.mixed.settings import LIMIT, LIMITED_QUEUE, QUEUES, RECORDS_VARIABLE, read_marks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.chaos.records import History
    from tests.invariants import RedisClient

BASE: Final = "cf79e1b"
"""The commit that this one must work with."""
_WORKERS: Final = 2
_WORKER_OPTIONS: Final = (
    *("tests.mixed.app:app", "--log-level", "warning"),
    *("--queues", ",".join(QUEUES)),
)
_DRAIN_SECONDS: Final = 180.0
"""A killed worker's tasks are back after 40 seconds at most; the rest is for a busy machine."""
_START_SECONDS: Final = 60.0
_SHOWN: Final = 20


@dataclass(slots=True)
class Report:
    """The result of a run."""

    acknowledged: int
    problems: list[str]
    """Sentences; empty if all is well."""
    faults: Counter[str]
    again: Counter[str]
    """How many tasks ran again, by cause."""
    runs: Counter[str] = field(default_factory=Counter)
    """How many runs each version had."""


class MixedRun:
    """One run, in a folder for its records."""

    def __init__(self, url: str, base: Path, folder: Path, seed: int) -> None:
        self._url = url
        self._base = base
        self._folder = folder
        self._random = random.Random(seed)
        self._recorder = Recorder(folder)

    async def perform(self, seconds: float) -> list[str]:
        """Produce and kill for some time, wait until the queues are empty, and return what went wrong."""
        # Stored, because the versions do not have the same options for it.
        async with Inspector(self._url) as inspector:
            await inspector.set_queue_limits(LIMITED_QUEUE, max_run=LIMIT)
        with ExitStack() as stack:
            fleets = {name: stack.enter_context(fleet) for name, fleet in self._fleets().items()}
            await self._until_marked(sum(fleet.size for fleet in fleets.values()))
            await self._kill(fleets, seconds)
            problems = [problem for fleet in fleets.values() for problem in fleet.failures()]
            problems += [problem for name in fleets if "producer" in name for problem in fleets[name].stop()]
            problems += [problem for name in fleets if "scheduler" in name for problem in fleets[name].stop()]
            problems += await self._until_drained()
            problems += [problem for name in fleets if "worker" in name for problem in fleets[name].stop()]
        self._recorder.close()
        return problems

    def _fleets(self) -> dict[str, Fleet]:
        variables = {"PYASYNQ_REDIS_URL": self._url, RECORDS_VARIABLE: str(self._folder)}
        fleets = {}
        for version, path in (("earlier", self._base), ("present", None)):
            for role, size, program, arguments in (
                ("worker", _WORKERS, "", _WORKER_OPTIONS),
                ("scheduler", 1, "pyasynq.cli", ("scheduler", "tests.mixed.app:app")),
                ("producer", 1, "tests.mixed.producer", ()),
            ):
                log = self._folder / f"{version}-{role}.log"
                fleets[f"{version} {role}"] = Fleet(
                    size, arguments, variables, log, program=program, package=path
                )
        return fleets

    async def _until_marked(self, number: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while len(read_marks(self._folder)) < number:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all of the {number} processes have started: {self._logs()}")
            await asyncio.sleep(0.1)

    async def _kill(self, fleets: Mapping[str, Fleet], seconds: float) -> None:
        """Kill a random process every second or so, and replace it by one of the same version."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await asyncio.sleep(self._random.uniform(0.5, 2))
            name = self._random.choice(list(fleets))
            pid = self._random.choice(fleets[name].pids())
            began = time.monotonic()
            fleets[name].kill(pid)
            self._recorder.note_fault(Fault(f"SIGKILL: {name}", began, time.monotonic(), frozenset({pid})))

    async def _until_drained(self) -> list[str]:
        deadline = time.monotonic() + _DRAIN_SECONDS
        async with Inspector(self._url) as inspector:
            while left := [await _unfinished(inspector, queue) for queue in QUEUES]:
                if not sum(left):
                    return []
                if time.monotonic() > deadline:
                    return [f"{left} tasks of {', '.join(QUEUES)} were left after {_DRAIN_SECONDS:g} s"]
                await asyncio.sleep(0.2)
        return []

    def _logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2_000:] for path in self._folder.glob("*.log"))


async def _unfinished(inspector: Inspector, queue: str) -> int:
    try:
        return (await inspector.queue_info(queue)).unfinished
    except QueueNotFoundError:
        return 0


def judge_ticks(history: History) -> Iterator[str]:
    """Name ticks that ran twice although no process died, and ticks that are missing between others."""
    ticks = sorted(int(task_id.rpartition(":")[2]) for task_id in history.runs if ":" in task_id)
    if len(ticks) < 2:
        yield f"there were only {len(ticks)} ticks"
        return
    missing = set(range(ticks[0], ticks[-1] + 1)).difference(ticks)
    yield from (f"tick {tick} was never enqueued" for tick in sorted(missing))


def judge_limit(history: History) -> Iterator[str]:
    """Say so if more tasks of the limited queue ran at once than its limit allows."""
    deaths = {pid: fault.ended for fault in history.faults for pid in fault.pids}
    changes: list[tuple[float, int]] = []
    for task_id, runs in history.runs.items():
        for run in runs if task_id.startswith("limited-") else ():
            ended = run.ended if run.ended is not None else deaths.get(run.pid, run.started)
            changes += [(run.started, 1), (ended, -1)]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    if most > LIMIT:
        yield f"{most} tasks of the queue {LIMITED_QUEUE} ran at once, and its limit is {LIMIT}"


def judge_versions(history: History, marks: Mapping[int, Path], base: Path) -> tuple[Counter[str], list[str]]:
    """Count the runs of both versions; complain if one of them had no share of the work."""
    runs = Counter(
        "earlier" if marks[run.pid].is_relative_to(base) else "present"
        for task_runs in history.runs.values()
        for run in task_runs
    )
    return runs, [
        f"the {version} version ran no task" for version in ("earlier", "present") if not runs[version]
    ]


def run(base: Path, seconds: float, seed: int) -> Report:
    """Do a run on a server of its own, and judge it."""
    client: RedisClient
    with (
        EmbeddedServer() as server,
        tempfile.TemporaryDirectory(prefix="mixed-") as name,
        redis.Redis.from_url(server.url) as client,
    ):
        folder = Path(name)
        problems = asyncio.run(MixedRun(server.url, base, folder, seed).perform(seconds))
        final = asyncio.run(read_final_state(server.url, client, QUEUES))
        history = read_history(folder)
        # Ticks are enqueued by the schedulers, which write nothing down.
        history.enqueues |= {task_id: What.INTENDED for task_id in history.runs if ":" in task_id}
        verdict = check(history, final)
        runs, unfair = judge_versions(history, read_marks(folder), base)
        problems += [*verdict.lost, *verdict.problems, *unfair, *judge_ticks(history)]
        problems += judge_limit(history)
        return Report(verdict.acknowledged, problems, verdict.faults, verdict.again, runs)


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", default=BASE, help=f"the earlier commit ({BASE})")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long processes are killed (120)")
    parser.add_argument("--seed", type=int, help="of all random choices")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, with {arguments.base}", flush=True)
    try:
        base = install_base(arguments.base)
    except MissingCommitError as error:
        print(error, file=sys.stderr)
        return 2
    report = run(base, arguments.seconds, seed)
    for what, counts in (("faults", report.faults), ("ran again", report.again), ("runs", report.runs)):
        print(
            f"{what}: {', '.join(f'{number:,} {name}' for name, number in sorted(counts.items())) or 'none'}"
        )
    for problem in report.problems[:_SHOWN]:
        print(problem)
    print(f"{report.acknowledged:,} tasks, {len(report.problems)} problems; seed {seed}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
