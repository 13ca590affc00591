"""What processes write down about the fate of each task, in a way that survives their death.

Each process appends to a file of its own, one `write` for a record, so whatever a process has noted is on
file when it is killed. A record that is missing because of the kill is on the safe side: a task then seems
not to have begun, not to have ended, or its outcome not to have been confirmed.

Times are of the monotonic clock, which all processes of a machine share and which no jump of a clock moves.
"""

from __future__ import annotations

import enum
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_TAIL_BYTES: Final = 20_000


class What(enum.StrEnum):
    """The kinds of records."""

    INTENDED = "intended"
    """The task is about to be enqueued."""
    ACKNOWLEDGED = "acknowledged"
    """The enqueue succeeded."""
    REFUSED = "refused"
    """The enqueue failed, and its error says that the task is not in its queue."""
    UNKNOWN = "unknown"
    """The enqueue failed, and its error says that the task may be in its queue, or may not stay there."""
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    """The handler asks for another run."""
    BROKEN_OFF = "broken-off"
    """The handler was cancelled."""
    CRASHING = "crashing"
    """The handler is about to end its process."""
    SETTLED = "settled"
    """Redis has confirmed the outcome of a run, or that the task was put back."""
    SERVING = "serving"
    """A server with this id starts in the process."""
    RECOVERED = "recovered"
    """The task of a lost worker is pending again; followed by the id of the worker's server."""
    REPLACED = "replaced"
    """Redis has refused the outcome of a run three times, and its worker writes a failure in its place."""
    FAULT = "fault"


ENQUEUES = frozenset({What.INTENDED, What.ACKNOWLEDGED, What.REFUSED, What.UNKNOWN})


class Fault(NamedTuple):
    """Something that was done to the system."""

    kind: str
    began: float
    ended: float
    pids: frozenset[int] = frozenset()
    """Names of the processes that it touched; empty if it touched all of them."""

    def touches(self, pid: int) -> bool:
        """Return whether it can be the cause of what a process did or left undone."""
        return not self.pids or pid in self.pids


class Orphan(NamedTuple):
    """A task that a server held when it was lost, whether or not it had begun.

    Attributes:
        server: id of the server.
        recovered: when the task was pending again.
    """

    task_id: str
    server: str
    recovered: float


@dataclass(slots=True)
class Run:
    """One run of a task."""

    pid: int
    started: float
    ended: float | None = None
    how: What | None = None
    """`FINISHED`, `FAILED`, `BROKEN_OFF` or `CRASHING`; None if its process did not live to tell."""
    settled: float | None = None
    attempt: str = ""
    """What its worker knows the attempt by, if it wrote that down."""


@dataclass(slots=True)
class History:
    """All that has been written down."""

    enqueues: dict[str, What] = field(default_factory=dict)
    """Outcome of the enqueue of each task."""
    runs: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    """The runs of each task, in the order of their starts."""
    recoveries: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When each task was pending again after the loss of its worker, in order."""
    orphans: list[Orphan] = field(default_factory=list)
    servers: dict[str, int] = field(default_factory=dict)
    """The process of each server, by the server's id."""
    replaced: set[str] = field(default_factory=set)
    """Tasks of whose runs an outcome was replaced by a failure."""
    faults: list[Fault] = field(default_factory=list)

    def finishes(self) -> list[float]:
        """Return when tasks ran to their ends, in order."""
        return sorted(
            run.ended
            for runs in self.runs.values()
            for run in runs
            if run.how is What.FINISHED and run.ended is not None
        )


class Recorder:
    """Writes the records of this process.

    Args:
        folder: where the files of all processes are.
    """

    def __init__(self, folder: Path) -> None:
        name = f"{os.getpid()}-{time.monotonic_ns()}.records"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, what: What, task_id: str) -> None:
        """Write down what is happening to a task right now."""
        os.write(self._file, f"{what} {time.monotonic():.4f} {task_id}\n".encode())

    def note_all(self, what: What, task_ids: Iterable[str]) -> None:
        """Write the same down of many tasks, in one piece."""
        now = f"{time.monotonic():.4f}"
        os.write(self._file, "".join(f"{what} {now} {task_id}\n" for task_id in task_ids).encode())

    def note_fault(self, fault: Fault) -> None:
        """Write down what was done to the system."""
        pids = ",".join(map(str, sorted(fault.pids))) or "all"
        line = f"{What.FAULT} {fault.began:.4f} {pids} {fault.ended:.4f} {fault.kind}\n"
        os.write(self._file, line.encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def is_working(folder: Path, pid: int) -> bool:
    """Return whether a process is in the middle of a task, according to the end of its records."""
    running = set[str]()
    for path in folder.glob(f"{pid}-*.records"):
        for kind, _, subject, *_ in _lines(_read_tail(path)):
            if kind == What.STARTED:
                running.add(subject)
            elif kind != What.SETTLED:
                running.discard(subject)
    return bool(running)


def _read_tail(path: Path) -> str:
    """Return the last whole lines of a file."""
    with path.open("rb") as file:
        begin = max(0, path.stat().st_size - _TAIL_BYTES)
        file.seek(begin)
        text = file.read().decode()
    return text.partition("\n")[2] if begin else text


def read_history(folder: Path) -> History:
    """Put together what all processes have written."""
    history = History()
    for path in sorted(folder.glob("*.records")):
        _read_process(int(path.name.partition("-")[0]), _lines(path.read_text()), history)
    for runs in history.runs.values():
        runs.sort(key=lambda run: run.started)
    for times in history.recoveries.values():
        times.sort()
    history.faults.sort(key=lambda fault: fault.began)
    return history


def _lines(text: str) -> Iterator[list[str]]:
    for line in text.splitlines(keepends=True):
        # What is cut short was written by a process that was killed in the middle of it.
        if line.endswith("\n"):
            yield line[:-1].split(" ", 4)


def _read_process(pid: int, lines: Iterable[list[str]], history: History) -> None:
    last: dict[str, Run] = {}
    for kind, time_text, subject, *rest in lines:
        what, at = What(kind), float(time_text)
        if what in ENQUEUES:
            history.enqueues[subject] = what
        elif what is What.FAULT:
            ended, name = rest
            touched = frozenset(() if subject == "all" else map(int, subject.split(",")))
            history.faults.append(Fault(name, at, float(ended), touched))
        elif what is What.RECOVERED:
            history.recoveries[subject].append(at)
            history.orphans += [Orphan(subject, server, at) for server in rest]
        elif what is What.SERVING:
            history.servers[subject] = pid
        elif what is What.REPLACED:
            history.replaced.add(subject)
        elif what is What.STARTED:
            last[subject] = run = Run(pid, at, attempt="".join(rest))
            history.runs[subject].append(run)
        elif subject in last:
            _end_run(last[subject], what, at, history)


def _end_run(run: Run, what: What, at: float, history: History) -> None:
    if what is not What.SETTLED:
        run.ended, run.how = at, what
        if what is What.CRASHING:
            history.faults.append(Fault("crashing task", at, at, frozenset({run.pid})))
    elif run.how is What.FINISHED:
        # Without a finished run a task was put back.
        run.settled = at
