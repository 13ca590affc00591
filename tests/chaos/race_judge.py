"""Judge of tasks that ran in PHP workers while these, the service and Redis were killed.

- Every task whose enqueue was acknowledged is completed, and ran to an end. Nothing else ran.
- A task is archived only as poison: kills have cut off its runs.
- A second run has a recorded kill that touched the process of the run before, from its begin to its settle.
- If the service was not told of that kill, the second run comes after the lease of the first one.
- A handle of a Gearman attempt is run once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.chaos.hosted_judge import CRASH_LIMIT
from tests.chaos.records import What

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.chaos.hosted_judge import Ended
    from tests.chaos.records import Fault, History, Run

PARENT: Final = "parent"
CHILD: Final = "child"
GUARD: Final = "guard"
GEARMAN: Final = "Gearman worker"
SERVICE: Final = "service"
REDIS: Final = "Redis"
_TOLD: Final = frozenset({CHILD, GEARMAN})
"""Kills that the service hears of at once: from the parent, or by the broken connection."""
_SLACK_SECONDS: Final = 2.0
"""Longest time from a lease to the begin of its run, and from the end of a run to its settle."""
_HANDLE: Final = "H:"


@dataclass(slots=True)
class RaceVerdict:
    """Result of a run; `faults` must be empty."""

    acknowledged: int = 0
    faults: list[str] = field(default_factory=list)
    """Sentences about whatever must not be."""
    again: Counter[str] = field(default_factory=Counter)
    """Number of runs that were begun again, by the kill that explains them."""
    poisoned: int = 0
    """Number of tasks that kills have made poison."""


def judge_race(history: History, found: Mapping[str, Ended], lease: float) -> RaceVerdict:
    """Judge a run.

    Args:
        history: what producers, workers and the killer have written down.
        found: all tasks in Redis, after the last one has ended.
        lease: seconds of a lease.
    """
    verdict = RaceVerdict()
    for task_id, fate in history.enqueues.items():
        verdict.acknowledged += fate is What.ACKNOWLEDGED
        if fate is What.ACKNOWLEDGED or task_id in found:
            verdict.faults += _judge_end(task_id, history.runs.get(task_id, ()), found.get(task_id), verdict)
    strangers = [one for one in (*history.runs, *found) if one not in history.enqueues]
    verdict.faults += [f"task {one} was never enqueued" for one in dict.fromkeys(strangers)]
    for task_id, runs in history.runs.items():
        for run, after in pairwise(runs):
            kill = _find_cause(run, after, history.faults, lease)
            if kill is None:
                verdict.faults.append(
                    f"task {task_id} ran in process {run.pid} at {run.started:.2f}, and again in process "
                    f"{after.pid} at {after.started:.2f}: no kill explains it"
                )
            else:
                verdict.again[kill.kind] += 1
    handles = Counter(run.attempt for runs in history.runs.values() for run in runs)
    verdict.faults += [
        f"attempt {one} was run {number} times"
        for one, number in handles.items()
        if number > 1 and one.startswith(_HANDLE)
    ]
    return verdict


def _judge_end(task_id: str, runs: Sequence[Run], found: Ended | None, verdict: RaceVerdict) -> Iterator[str]:
    has_finished = any(run.how is What.FINISHED for run in runs)
    how_far = f"was begun {len(runs)} times and ran to its end" if has_finished else "never ran to its end"
    if found is None:
        yield f"task {task_id} is lost: it {how_far}, and is gone"
    elif found.state == "archived":
        verdict.poisoned += 1
        # A kill may meet a task before its run is written down.
        if sum(run.how is None for run in runs) < CRASH_LIMIT - 1:
            yield f"task {task_id} is archived: it {how_far}, and kills have not cut it off so often"
    elif found.state != "completed":
        yield f"task {task_id} is stuck: it {how_far}, and is {found.state}"
    elif not has_finished:
        yield f"task {task_id} is completed, and {how_far}"


def _find_cause(run: Run, after: Run, faults: Sequence[Fault], lease: float) -> Fault | None:
    """Return the kill that has broken off a run, or kept its outcome from the service."""
    until = after.started if run.ended is None else min(after.started, run.ended + _SLACK_SECONDS)
    has_lapsed = after.started >= run.started + lease - _SLACK_SECONDS
    for kill in faults:
        if kill.began > until:
            return None
        is_met = kill.touches(run.pid) and kill.ended >= run.started - _SLACK_SECONDS
        if is_met and (has_lapsed or kill.kind in _TOLD):
            return kill
    return None
