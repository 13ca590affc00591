"""Proof from Redis, at the end of the demo, that no task was lost."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyasynq.cli.demo.analysis import SourceFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyasynq.cli.demo.sources import Sources
    from pyasynq.info import QueueInfo
    from pyasynq.task import TaskInfo


@dataclass(frozen=True, slots=True)
class Module:
    """A completed task: the file, its figures, and the worker process that computed them."""

    name: str
    worker_pid: int
    facts: SourceFacts


@dataclass(frozen=True, slots=True)
class Failure:
    """An archived task: the file, the last error, and the number of attempts."""

    name: str
    error: str
    attempts: int
    is_planted: bool


@dataclass(frozen=True, slots=True)
class WorkerKill:
    """A worker that was killed, and the fate of its tasks. Seconds count from the kill."""

    worker: str
    pid: int
    at_share: float
    """Share of the work that was finished at the kill, from 0 to 1."""
    held: frozenset[str]
    """Ids of the tasks that were active for this worker after its death."""
    first_back: float | None
    last_back: float | None
    """Seconds from the kill to the recovery of the first and of the last held task; None before it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Results of a demo. Everything except `enqueued`, `kill` and `seconds` was read from Redis."""

    enqueued: frozenset[str]
    """Ids of the tasks whose enqueueing Redis acknowledged."""
    found: frozenset[str]
    """Ids of the tasks that are completed or archived now."""
    queue: QueueInfo
    modules: Sequence[Module]
    failures: Sequence[Failure]
    run_again: frozenset[str]
    """Ids of the tasks that the killed worker held and another worker finished."""
    expected_attempts: int
    """Expected number of attempts: one for each completed task, retries plus one for each archived task."""
    kill: WorkerKill | None
    seconds: float
    """Seconds from the first enqueue to the last outcome."""

    @property
    def lost(self) -> int:
        """Number of tasks that were enqueued and are neither completed nor archived."""
        return len(self.enqueued - self.found)

    def violations(self) -> list[str]:
        """Return violations of "each task ended exactly once, and none was lost"; empty if it holds."""
        planted = [failure for failure in self.failures if failure.is_planted]
        queue, attempts = self.queue, self.queue.processed_total
        ended = queue.completed + queue.archived
        checks = {
            f"{self.lost} tasks are lost": self.lost == 0,
            f"{len(self.found - self.enqueued)} unknown tasks appeared": self.found <= self.enqueued,
            f"{queue.unfinished} tasks are unfinished": queue.unfinished == 0,
            f"{len(self.found)} ids were found, but {ended} tasks counted": len(self.found) == ended,
            f"{attempts} attempts were counted instead of {self.expected_attempts}": (
                attempts == self.expected_attempts
            ),
            f"only {len(planted)} of 3 planted files are in the archive": len(planted) == 3,
        }
        return [text for text, holds in checks.items() if not holds]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        kill = self.kill
        return {
            "enqueued": len(self.enqueued),
            "completed": self.queue.completed,
            "archived": self.queue.archived,
            "unfinished": self.queue.unfinished,
            "lost": self.lost,
            "attempts": self.queue.processed_total,
            "run_again": len(self.run_again),
            "violations": self.violations(),
            "seconds": round(self.seconds, 2),
            "kill": None
            if kill is None
            else {
                "worker": kill.worker,
                "pid": kill.pid,
                "at_share": round(kill.at_share, 3),
                "held": len(kill.held),
                "first_back_seconds": kill.first_back and round(kill.first_back, 1),
                "last_back_seconds": kill.last_back and round(kill.last_back, 1),
            },
            "failures": [asdict(failure) for failure in self.failures],
        }


@dataclass(frozen=True, slots=True)
class Remains:
    """Queue counts and finished tasks, as read from Redis after the last task has ended."""

    queue: QueueInfo
    completed: Sequence[TaskInfo]
    archived: Sequence[TaskInfo]


def summarize(
    remains: Remains, sources: Sources, *, enqueued: Iterable[str], kill: WorkerKill | None, seconds: float
) -> Summary:
    """Build the summary from the state of Redis."""
    planted = {str(path) for path in sources.planted}
    modules, run_again = [], set()
    for task in remains.completed:
        result = json.loads(task.result or b"{}")
        module = Module(sources.name_of(path_of(task)), result["worker_pid"], SourceFacts(**result["facts"]))
        modules.append(module)
        if kill and task.id in kill.held and module.worker_pid != kill.pid:
            run_again.add(task.id)
    failures = []
    for task in remains.archived:
        path = path_of(task)
        failures.append(Failure(sources.name_of(path), task.last_error, task.retried + 1, path in planted))
        if kill and task.id in kill.held:
            run_again.add(task.id)
    return Summary(
        enqueued=frozenset(enqueued),
        found=frozenset(task.id for task in (*remains.completed, *remains.archived)),
        queue=remains.queue,
        modules=modules,
        failures=sorted(failures, key=lambda failure: (not failure.is_planted, failure.name)),
        run_again=frozenset(run_again),
        expected_attempts=len(modules) + sum(failure.attempts for failure in failures),
        kill=kill,
        seconds=seconds,
    )


def path_of(task: TaskInfo) -> str:
    """Return the path that a task of the demo was enqueued with."""
    path: str = json.loads(task.payload)["path"]
    return path
