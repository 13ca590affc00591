"""Workers of an ordered queue are killed while they run its head: all tasks end in the order of enqueue.

    python -m tests.chaos.ordered [--tasks 2000] [--kills 3]

Two in a hundred tasks fail at their first try, without a delay before the next one. The head of a killed
worker comes back when its lease has ended; until then the queue starts no task. Exit code 1 on any violation.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis

from pyasynq import sync
from pyasynq.embedded import EmbeddedServer
from tests.chaos.fleet import Fleet
from tests.chaos.ordered_worker import QUEUE, Deed, work
from tests.invariants import violations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WORKER: Final = "tests.chaos.ordered_worker"
WORKERS: Final = 3
FAILS_EVERY: Final = 50
LIMIT_SECONDS: Final = 180.0
VICTIM_SECONDS: Final = 1.0


@dataclass(slots=True)
class Result:
    """Result of a run."""

    tasks: int
    seconds: float = 0.0
    """From the first start to the last end."""
    stalls: list[float] = field(default_factory=list)
    """How many seconds after each kill the head was begun again."""
    failures: int = 0
    handovers: int = 0
    """How often the next task was begun by another worker."""
    violations: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the figures in a line."""
        stalls = ", ".join(f"{seconds:.1f}" for seconds in self.stalls)
        running = self.seconds - sum(self.stalls)
        return (
            f"{self.tasks} tasks in {self.seconds:.1f} s, {running:.1f} s without the standstills; "
            f"{len(self.stalls)} kills, back after {stalls} s; {self.failures} failed tries, "
            f"{self.handovers} handovers, {len(self.violations)} violations"
        )


def run(
    url: str,
    folder: Path,
    *,
    tasks: int,
    kills: int,
    victim_seconds: float = VICTIM_SECONDS,
    engine: Mapping[str, Any] | None = None,
) -> Result:
    """Enqueue tasks, kill the worker that runs the head at evenly spaced ones, and look at the journal.

    Such tasks last for `victim_seconds`. `engine` changes settings of the workers.
    """
    result = Result(tasks)
    journal, log = folder / "journal", folder / "workers.log"
    journal.touch()
    settings = {"url": url, "journal": str(journal), "engine": dict(engine or {})}
    victims = [tasks * number // (kills + 1) for number in range(1, kills + 1)]
    with Fleet(WORKERS, [json.dumps(settings)], {}, log, program=WORKER) as fleet:
        _until_ready(url, fleet)
        started = time.monotonic()
        _enqueue(url, tasks, dict.fromkeys(victims, victim_seconds))
        for victim in victims:
            begun = _wait_for(journal, "begin", victim)
            fleet.kill(begun[0].pid)
            killed = time.monotonic()
            _wait_for(journal, "begin", victim, times=2)
            result.stalls.append(time.monotonic() - killed)
        _wait_for(journal, "end", tasks - 1)
        result.seconds = time.monotonic() - started
        result.violations.extend(fleet.failures())
        _until_settled(url)
    _judge(result, read_journal(journal))
    with redis.Redis.from_url(url) as client:
        result.violations.extend(violations(client))
    return result


def _until_ready(url: str, fleet: Fleet) -> None:
    with sync.Inspector(url) as inspector:
        while {server.pid for server in inspector.servers(QUEUE)} < set(fleet.pids()):
            if failures := list(fleet.failures()):
                raise SystemExit(failures[0])
            time.sleep(0.05)


def _enqueue(url: str, tasks: int, seconds: Mapping[int, float]) -> None:
    every = (
        work.task(
            number=number,
            fails=number % FAILS_EVERY == FAILS_EVERY // 2,
            seconds=seconds.get(number, 0),
        )
        for number in range(tasks)
    )
    with sync.Client(url) as client:
        refused = [one for one in client.enqueue_many(every, on_error="return") if not one]
    if refused:
        raise SystemExit(f"{len(refused)} tasks could not be enqueued, the first: {refused[0]}")


def _until_settled(url: str) -> None:
    with sync.Inspector(url) as inspector:
        while inspector.queue_info(QUEUE).unfinished:
            time.sleep(0.02)


def read_journal(path: Path) -> list[Deed]:
    """Return what the handlers have written, in that order."""
    lines = (line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n"))
    return [Deed(what, int(number), int(pid)) for what, number, pid in lines]


def _wait_for(journal: Path, what: str, number: int, *, times: int = 1) -> list[Deed]:
    """Wait until a task has done something this many times."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        found = [deed for deed in read_journal(journal) if (deed.what, deed.number) == (what, number)]
        if len(found) >= times:
            return found
        if time.monotonic() > deadline:
            raise SystemExit(f"task {number} did not {what} within {LIMIT_SECONDS:g} s")
        time.sleep(0.05)


def _judge(result: Result, journal: Sequence[Deed]) -> None:
    result.failures = sum(deed.what == "fail" for deed in journal)
    result.violations.extend(faults(journal, result.tasks, len(result.stalls)))
    begun = [deed.pid for deed in journal if deed.what == "begin"]
    result.handovers = sum(one != other for one, other in pairwise(begun))


def faults(journal: Sequence[Deed], tasks: int, kills: int) -> Iterator[str]:
    """Name what is wrong: a task that was begun before the one before it had ended, or never ended."""
    head, ended = 0, False
    again = -tasks
    for what, number, _ in journal:
        if number == head + 1 and what == "begin":
            if not ended:
                yield f"task {number} was begun before task {head} had ended"
            head, ended = number, False
        elif number != head:
            yield f"task {number}: {what}, while task {head} was the head"
        # A worker that is killed between the end of a task and its settle leaves it to be run again.
        ended = ended or what == "end"
        again += {"begin": 1, "fail": -1, "end": 0}[what]
    if head != tasks - 1 or not ended:
        yield f"the last task that was begun is {head} of {tasks}"
    if again > kills:
        yield f"{again} times a task was begun again without having failed, after {kills} kills"


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=2_000)
    parser.add_argument("--kills", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pyasynq-chaos-") as folder, EmbeddedServer() as server:
        result = run(server.url, Path(folder), tasks=arguments.tasks, kills=arguments.kills)
    if result.seconds > LIMIT_SECONDS:
        result.violations.append(f"it took more than {LIMIT_SECONDS:g} s")
    print(result.text())
    for violation in result.violations:
        print(f"  VIOLATION: {violation}")
    return 1 if result.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
