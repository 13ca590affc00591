"""The judge of the race, on histories that are written here, and the files that PHP workers write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.hosted_judge import Ended
from tests.chaos.race import find_family
from tests.chaos.race_judge import (
    CHILD,
    GEARMAN,
    GUARD,
    PARENT,
    REDIS,
    SERVICE,
    RaceVerdict,
    judge_race,
)
from tests.chaos.records import Fault, History, Run, What, read_history

if TYPE_CHECKING:
    from pathlib import Path

LEASE = 30.0
DONE = {"a": Ended("completed", 0)}


def judge(
    *runs: Run,
    found: dict[str, Ended] | None = None,
    kills: tuple[Fault, ...] = (),
    fate: What | None = What.ACKNOWLEDGED,
) -> RaceVerdict:
    """Judge the history of one task, `a`."""
    history = History(faults=list(kills))
    if fate is not None:
        history.enqueues["a"] = fate
    if runs:
        history.runs["a"] = list(runs)
    return judge_race(history, DONE if found is None else found, LEASE)


def run(pid: int, at: float, *, ends: bool = True, attempt: str = "1") -> Run:
    """Return a run of a second, or one that was cut off."""
    ended, how = (at + 1, What.FINISHED) if ends else (None, None)
    return Run(pid, at, ended, how, attempt=attempt)


def kill(kind: str, at: float, *pids: int, seconds: float = 0.0) -> Fault:
    """Return a kill; without processes it met all of them."""
    return Fault(kind, at, at + seconds, frozenset(pids))


def test_a_task_that_ran_once_is_well() -> None:
    """It is completed, and nothing was killed."""
    assert RaceVerdict(acknowledged=1) == judge(run(7, 10))


@pytest.mark.parametrize("runs", [[], [run(7, 10)], [run(7, 10, ends=False)]])
def test_a_lost_task_is_told(runs: list[Run]) -> None:
    """Also if it ran: finished tasks are kept in this run."""
    [fault] = judge(*runs, found={}).faults
    assert fault.startswith("task a is lost")


@pytest.mark.parametrize("state", ["pending", "active", "retry", "scheduled"])
@pytest.mark.parametrize("runs", [[], [run(7, 10)]])
def test_a_stuck_task_is_told(state: str, runs: list[Run]) -> None:
    """Wherever it is stuck, and whether it ran or not."""
    [fault] = judge(*runs, found={"a": Ended(state, 0)}).faults
    assert fault.startswith("task a is stuck")


def test_a_completed_task_ran_to_its_end() -> None:
    """Otherwise its work was lost."""
    assert ["task a is completed, and never ran to its end"] == judge(run(7, 10, ends=False)).faults


def test_a_second_run_without_a_kill_is_told() -> None:
    """Both processes and times are named."""
    [fault] = judge(run(7, 10), run(8, 50)).faults
    assert "process 7 at 10.00, and again in process 8 at 50.00: no kill explains it" in fault


@pytest.mark.parametrize("cause", [CHILD, GEARMAN])
def test_a_kill_that_the_service_is_told_explains_a_second_run_at_once(cause: str) -> None:
    """It met the process of the run, and came between its begin and its settle."""
    runs = run(7, 10, ends=False), run(8, 11)
    assert ([], {cause: 1}) == (
        (verdict := judge(*runs, kills=(kill(cause, 10.5, 7),))).faults,
        verdict.again,
    )
    assert [] != judge(*runs, kills=(kill(cause, 10.5, 9),)).faults
    assert [] != judge(*runs, kills=(kill(cause, 11.5, 7),)).faults
    assert [] != judge(*runs, kills=(kill(cause, 5, 7),)).faults


@pytest.mark.parametrize("cause", [PARENT, GUARD, SERVICE, REDIS])
def test_after_other_kills_the_lease_has_to_lapse(cause: str) -> None:
    """A second run before that means that the task was handed out twice."""
    killed = kill(cause, 10.5, *(() if cause == REDIS else (7, 9)))
    late = judge(run(7, 10), run(8, 41), kills=(killed,))
    early = judge(run(7, 10), run(8, 20), kills=(killed,))
    assert ([], {cause: 1}) == (late.faults, late.again)
    assert 1 == len(early.faults)


def test_a_kill_long_after_the_end_of_a_run_explains_nothing() -> None:
    """The run was settled by then."""
    assert [] != judge(run(7, 10), run(8, 50), kills=(kill(SERVICE, 20, 7),)).faults
    assert [] != judge(run(7, 10), run(8, 50), kills=(kill(CHILD, 20, 7),)).faults


def test_a_service_that_was_away_explains_runs_of_that_time() -> None:
    """Its kill lasts until it is ready again."""
    assert [] == judge(run(7, 10), run(8, 50), kills=(kill(SERVICE, 5, 7, seconds=6),)).faults
    assert [] != judge(run(7, 10), run(8, 50), kills=(kill(SERVICE, 5, 7, seconds=1),)).faults


def test_a_handle_is_run_once() -> None:
    """Numbers of attempts may repeat, since a lapse spends no retry."""
    killed = (kill(GEARMAN, 10.5, 7),)
    same = judge(run(7, 10, ends=False, attempt="H:a:x"), run(8, 11, attempt="H:a:x"), kills=killed)
    assert ["attempt H:a:x was run 2 times"] == same.faults
    assert [] == judge(run(7, 10, ends=False), run(8, 11), kills=killed).faults


def test_poison_was_cut_off_by_kills() -> None:
    """The third kill may have come before the run was written down."""
    archived = {"a": Ended("archived", 0)}
    runs = run(7, 10, ends=False), run(8, 11, ends=False)
    kills = kill(GEARMAN, 10.5, 7), kill(GEARMAN, 11.5, 8)
    verdict = judge(*runs, found=archived, kills=kills)
    assert ([], 1) == (verdict.faults, verdict.poisoned)
    assert [] != judge(run(7, 10), found=archived).faults


@pytest.mark.parametrize("fate", [What.UNKNOWN, What.INTENDED])
def test_a_job_of_unknown_fate_may_be_there_or_not(fate: What) -> None:
    """If it is there, it ends as all others do."""
    assert [] == judge(found={}, fate=fate).faults
    assert [] == judge(run(7, 10), fate=fate).faults
    assert [] != judge(found={"a": Ended("active", 0)}, fate=fate).faults


def test_a_task_out_of_nowhere_is_told() -> None:
    """It ran, or is in Redis, or both."""
    for runs, found in (([run(7, 10)], DONE), ([run(7, 10)], {}), ([], DONE)):
        assert ["task a was never enqueued"] == judge(*runs, found=found, fate=None).faults


def test_runs_are_read_as_php_writes_them(tmp_path: Path) -> None:
    """A record that was cut short is left out."""
    (tmp_path / "7-1.records").write_text(
        "started 10.0000 a H:a:x\nfinished 11.0000 a\nstarted 12.0000 b 1\nfinis", "utf-8"
    )
    history = read_history(tmp_path)
    assert [Run(7, 10.0, 11.0, What.FINISHED, attempt="H:a:x")] == history.runs["a"]
    assert [Run(7, 12.0, attempt="1")] == history.runs["b"]


def test_a_family_has_all_that_descend_from_a_process() -> None:
    """Guard and children of a parent."""
    assert {1, 2, 3, 4} == find_family(1, {1: [2], 2: [3, 4], 5: [6]})
