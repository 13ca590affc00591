"""The judge of a chaos run: a pure function of what was written down and of what Redis holds at the end.

- Every task whose enqueue was acknowledged ran to an end at least once, or is still in its queue.
- Nothing ran, or is in a queue, whose enqueue was refused or never made.
- A task ran again only where a fault explains it: one that touched the process of the run before, after that
  run had begun and before the next one did. A run that a handler requested is not a duplicate.
- An outcome that Redis had confirmed is not undone, whatever the faults were.
- No task is archived that neither failed nor crashed its worker, and none is active when no worker lives.
- Where a fault may make Redis refuse an outcome three times, the failure in its place explains both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.chaos.records import What

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tests.chaos.records import Fault, History, Run

_TAKEN_BEFORE: Final = 1.0
"""How many seconds before its handler begins a worker may have taken a task."""
_MAY_HAVE_RUN: Final = frozenset({What.ACKNOWLEDGED, What.UNKNOWN, What.INTENDED})
_ITS_OWN_FAULT: Final = frozenset({What.FAILED, What.CRASHING})


class FinalState(NamedTuple):
    """What is left when all workers have been stopped."""

    states: Mapping[str, str]
    """Id and state of each task in Redis."""
    complaints: Sequence[str] = ()
    """Findings of the invariants and of the doctor."""


@dataclass(slots=True)
class Verdict:
    """Result of a run. `lost` and `problems` must be empty."""

    acknowledged: int = 0
    finished: int = 0
    lost: list[str] = field(default_factory=list)
    """Sentences about acknowledged tasks that neither ran to an end nor are in a queue."""
    problems: list[str] = field(default_factory=list)
    """Sentences about whatever else must not be."""
    faults: Counter[str] = field(default_factory=Counter)
    again: Counter[str] = field(default_factory=Counter)
    """How many runs were begun again, by cause."""
    twice: Counter[str] = field(default_factory=Counter)
    """How many of these came after a run that had come to its end."""
    longest_recovery: float = 0.0
    """Seconds: from a fault until a task that it met ran again, or until anything ran to its end after it."""
    first_recovery: float = 0.0
    """Seconds from a fault until a task that no fault had met before was pending again, or ran again.

    Other tasks may be suspects. The time until the next run can include the lease of a worker that was killed
    with the task in its prefetch buffer: that leaves no record of a run.
    """
    longest_orphan: float = 0.0
    """Seconds from a fault of one process until a task that its server held was pending again.

    Tasks in its prefetch buffer count, too.
    """


def check(history: History, final: FinalState, *, undoes: bool = False, refuses: bool = False) -> Verdict:
    """Judge a run.

    Args:
        history: what was written down.
        final: what is left.
        undoes: whether the faults may undo what Redis had confirmed, as the loss of a primary does.
        refuses: whether the faults may make Redis refuse an outcome until a failure is written in its place.
    """
    verdict = Verdict(faults=Counter(fault.kind for fault in history.faults))
    replaced = history.replaced if refuses else frozenset()
    verdict.problems.extend(final.complaints)
    for task_id, fate in history.enqueues.items():
        if fate is What.ACKNOWLEDGED:
            _check_acknowledged(task_id, history, final, verdict)
    verdict.problems.extend(_strangers(history, final))
    verdict.problems.extend(_stuck(history, final, replaced))
    faults = sorted(history.faults, key=lambda fault: fault.began)
    for task_id, runs in history.runs.items():
        if task_id in replaced:
            continue
        causes = [
            (fault.began, after.started)
            for run, after in pairwise(runs)
            if (fault := _check_rerun(task_id, run, after, faults, verdict, undoes=undoes)) is not None
        ]
        if causes:
            longest = max(started - began for began, started in causes)
            verdict.longest_recovery = max(verdict.longest_recovery, longest)
            first = _measure_recovery(*causes[0], history.recoveries.get(task_id, ()))
            verdict.first_recovery = max(verdict.first_recovery, first)
    verdict.longest_recovery = max([verdict.longest_recovery, *_standstills(history)])
    verdict.longest_orphan = max(_measure_orphans(history), default=0.0)
    return verdict


def _check_acknowledged(task_id: str, history: History, final: FinalState, verdict: Verdict) -> None:
    verdict.acknowledged += 1
    runs = history.runs.get(task_id, ())
    if any(run.how is What.FINISHED for run in runs):
        verdict.finished += 1
    elif task_id not in final.states:
        begun = f"was begun {len(runs)} times and never ran to its end" if runs else "never ran"
        verdict.lost.append(f"task {task_id} is lost: its enqueue was acknowledged, it {begun}, and is gone")


def _strangers(history: History, final: FinalState) -> Iterator[str]:
    """Name what is or was there although it was never enqueued."""
    for task_id, runs in history.runs.items():
        fate = history.enqueues.get(task_id)
        if fate not in _MAY_HAVE_RUN:
            why = "was never made" if fate is None else "was refused"
            yield f"task {task_id} ran in process {runs[0].pid}, and its enqueue {why}"
    for task_id, state in final.states.items():
        if history.enqueues.get(task_id) not in _MAY_HAVE_RUN:
            yield f"task {task_id} is {state}, and its enqueue was refused or never made"


def _stuck(history: History, final: FinalState, replaced: Collection[str]) -> Iterator[str]:
    for task_id, state in final.states.items():
        runs = history.runs.get(task_id, ())
        if state == "active":
            ended = any(run.how is What.FINISHED for run in runs)
            why = "it ran to its end, so its settle was dropped" if ended else "it was not put back"
            yield f"task {task_id} is active although no worker lives: {why}"
        elif state == "archived" and not (
            task_id in replaced or any(run.how in _ITS_OWN_FAULT for run in runs)
        ):
            yield f"task {task_id} is archived although it neither failed nor crashed its worker"


def _check_rerun(
    task_id: str, run: Run, after: Run, faults: Sequence[Fault], verdict: Verdict, *, undoes: bool
) -> Fault | None:
    """Return the fault that caused a rerun; None if the handler asked for it, or no fault explains it."""
    if run.how is What.FAILED:
        return None
    fault = _cause(run, after, faults)
    where = f"task {task_id} ran in process {run.pid} and again in process {after.pid}"
    if fault is None:
        verdict.problems.append(f"{where}, and no fault explains it")
        return None
    if not undoes and run.settled is not None and run.settled < min(after.started, fault.began):
        verdict.problems.append(f"{where}, although Redis had confirmed its outcome before any fault")
    verdict.again[fault.kind] += 1
    verdict.twice[fault.kind] += run.how is What.FINISHED
    return fault


def _measure_recovery(began: float, started: float, recoveries: Sequence[float]) -> float:
    """Return the seconds from a fault until its task was pending again, or at the latest ran again."""
    return min([started, *(at for at in recoveries if at >= began)]) - began


def _measure_orphans(history: History) -> Iterator[float]:
    """Yield how long each orphan was active after the last fault of its process."""
    faults: dict[int, list[float]] = defaultdict(list)
    for fault in history.faults:
        for pid in fault.pids:
            faults[pid].append(fault.began)
    for orphan in history.orphans:
        causes = [
            began for began in faults[history.servers.get(orphan.server, 0)] if began <= orphan.recovered
        ]
        if causes:
            yield orphan.recovered - max(causes)


def _cause(run: Run, after: Run, faults: Sequence[Fault]) -> Fault | None:
    """Return the first fault that can have broken the run off or kept its outcome from Redis."""
    for fault in faults:
        if fault.began > after.started:
            return None
        if fault.touches(run.pid) and fault.ended >= run.started - _TAKEN_BEFORE:
            return fault
    return None


def _standstills(history: History) -> Iterator[float]:
    """Yield for each fault that touched everybody how long nothing ran to its end after it."""
    finishes = history.finishes()
    for fault in history.faults:
        place = bisect_left(finishes, fault.ended)
        if not fault.pids and place < len(finishes):
            yield finishes[place] - fault.ended
