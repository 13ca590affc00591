"""The checker of the chaos runs, on histories that are written here."""

from __future__ import annotations

import pytest

from tests.chaos.checker import FinalState, Verdict, check
from tests.chaos.records import Fault, History, Orphan, Run, What

NOTHING = FinalState({})


def history(*runs: Run, fate: What | None = What.ACKNOWLEDGED, faults: tuple[Fault, ...] = ()) -> History:
    """Return the history of one task, `a`."""
    made = History(faults=list(faults))
    if fate is not None:
        made.enqueues["a"] = fate
    if runs:
        made.runs["a"] = list(runs)
    return made


def finished(pid: int, started: float, *, settled: bool = True) -> Run:
    """Return a run that took a second."""
    return Run(pid, started, started + 1, What.FINISHED, started + 1.1 if settled else None)


def test_a_task_that_ran_to_its_end_is_well() -> None:
    """And so is one whose run was not confirmed, since it may have been written."""
    assert Verdict(acknowledged=1, finished=1) == check(history(finished(7, 10)), NOTHING)
    assert Verdict(acknowledged=1, finished=1) == check(history(finished(7, 10, settled=False)), NOTHING)


@pytest.mark.parametrize("state", ["pending", "scheduled", "retry", "completed"])
def test_a_task_that_is_still_in_its_queue_is_not_lost(state: str) -> None:
    """Whether it ran or not."""
    assert Verdict(acknowledged=1) == check(history(), FinalState({"a": state}))


def test_an_acknowledged_task_that_is_nowhere_is_lost() -> None:
    """The sentence tells how far it came."""
    never = check(history(), NOTHING)
    begun = check(history(Run(7, 10), Run(7, 12, 13, What.BROKEN_OFF)), NOTHING)
    assert ["task a is lost: its enqueue was acknowledged, it never ran, and is gone"] == never.lost
    assert "it was begun 2 times and never ran to its end" in begun.lost[0]


@pytest.mark.parametrize("fate", [What.UNKNOWN, What.INTENDED])
def test_a_task_of_an_unclear_enqueue_may_run_or_not(fate: What) -> None:
    """The enqueue was not acknowledged."""
    assert Verdict() == check(history(fate=fate), NOTHING)
    assert Verdict() == check(history(finished(7, 10), fate=fate), NOTHING)
    assert Verdict() == check(history(fate=fate), FinalState({"a": "pending"}))


def test_a_task_whose_enqueue_was_refused_must_not_run() -> None:
    """Nor be in a queue."""
    ran = check(history(finished(7, 10), fate=What.REFUSED), NOTHING)
    waits = check(history(fate=What.REFUSED), FinalState({"a": "pending"}))
    assert ["task a ran in process 7, and its enqueue was refused"] == ran.problems
    assert ["task a is pending, and its enqueue was refused or never made"] == waits.problems


def test_a_task_that_was_not_enqueued_must_not_run() -> None:
    """It came out of nowhere."""
    verdict = check(history(finished(7, 10), fate=None), NOTHING)
    assert ["task a ran in process 7, and its enqueue was never made"] == verdict.problems


def test_a_second_run_without_a_fault_is_a_problem() -> None:
    """Both processes are named."""
    verdict = check(history(finished(7, 10), finished(8, 20)), NOTHING)
    expected = "task a ran in process 7 and again in process 8, and no fault explains it"
    assert [expected] == verdict.problems


def test_a_fault_explains_a_second_run_and_is_counted() -> None:
    """Also what it was, how long it took, and whether the first run had come to its end."""
    kill = Fault("kill", 10.5, 10.5, frozenset({7}))
    verdict = check(history(Run(7, 10), finished(8, 40), faults=(kill,)), NOTHING)
    ended = check(history(finished(7, 9.4, settled=False), finished(8, 40), faults=(kill,)), NOTHING)
    assert ([], {"kill": 1}, {"kill": 0}) == (verdict.problems, verdict.again, verdict.twice)
    assert 29.5 == verdict.longest_recovery
    assert ([], {"kill": 1}, {"kill": 1}) == (ended.problems, ended.again, ended.twice)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("kill", 12, 12, frozenset({8})),
        Fault("kill", 5, 6, frozenset({7})),
        Fault("kill", 41, 42, frozenset({7})),
        Fault("outage", 41, 42),
    ],
    ids=["of another process", "before the run", "after the second run", "of all after the second run"],
)
def test_a_fault_that_cannot_be_the_cause_explains_nothing(fault: Fault) -> None:
    """It must have touched the first run's process, between the two."""
    verdict = check(history(Run(7, 10), finished(8, 40), faults=(fault,)), NOTHING)
    assert 1 == len(verdict.problems)


def test_a_confirmed_outcome_must_not_be_undone_by_a_fault() -> None:
    """The fault explains the second run, but does not explain the loss of what was confirmed."""
    outage = Fault("outage", 20, 25)
    verdict = check(history(finished(7, 10), finished(8, 40), faults=(outage,)), NOTHING)
    assert "although Redis had confirmed its outcome before any fault" in verdict.problems[0]


def test_a_primary_that_is_lost_may_undo_what_it_had_confirmed() -> None:
    """Its replica did not have it yet."""
    failover = Fault("failover", 20, 25)
    made = history(finished(7, 10), finished(8, 40), faults=(failover,))
    assert [] == check(made, NOTHING, undoes=True).problems


def test_a_run_that_the_handler_asked_for_is_not_a_duplicate() -> None:
    """A failed try is followed by another one."""
    failed = Run(7, 10, 11, What.FAILED, 11.1)
    assert Verdict(acknowledged=1, finished=1) == check(history(failed, finished(7, 20)), NOTHING)


def test_an_active_task_without_a_worker_is_a_problem() -> None:
    """If it had ended, the end was not recorded."""
    ended = check(history(finished(7, 10, settled=False)), FinalState({"a": "active"}))
    begun = check(history(Run(7, 10)), FinalState({"a": "active"}))
    stem = "task a is active although no worker lives"
    assert [f"{stem}: it ran to its end, so its settle was dropped"] == ended.problems
    assert [f"{stem}: it was not put back"] == begun.problems


def test_only_a_task_that_fails_or_crashes_its_worker_may_be_archived() -> None:
    """Its neighbours are not to blame."""
    archived = FinalState({"a": "archived"})
    neighbour = check(history(Run(7, 10)), archived)
    crashing = Run(7, 10, 11, What.CRASHING)
    assert ["task a is archived although it neither failed nor crashed its worker"] == neighbour.problems
    assert [] == check(history(crashing), archived).problems


def test_a_replaced_outcome_explains_a_second_run_and_an_archived_task() -> None:
    """Only where the faults may make Redis refuse outcomes."""
    again = history(finished(7, 10, settled=False), finished(8, 40))
    archived = history(finished(7, 10, settled=False))
    for made, final in ((again, NOTHING), (archived, FinalState({"a": "archived"}))):
        made.replaced.add("a")
        assert 1 == len(check(made, final).problems)
        assert ([], 0) == (
            check(made, final, refuses=True).problems,
            check(made, final, refuses=True).again.total(),
        )


def test_what_redis_looks_like_is_part_of_the_verdict() -> None:
    """The complaints of the invariants and the doctor."""
    verdict = check(history(finished(7, 10)), FinalState({}, ["default: a lock is leaked"]))
    assert ["default: a lock is leaked"] == verdict.problems


def test_the_first_recovery_of_a_task_is_counted_apart() -> None:
    """The second fault makes a suspect of it, which may wait for a silence."""
    kills = (Fault("kill", 10.5, 10.5, frozenset({7})), Fault("kill", 21, 21, frozenset({8})))
    verdict = check(history(Run(7, 10), Run(8, 20), finished(9, 90), faults=kills), NOTHING)
    assert (9.5, 69.0) == (verdict.first_recovery, verdict.longest_recovery)


def test_the_first_recovery_ends_when_the_task_is_pending_again() -> None:
    """The next worker may have been killed before it began the task, which no run tells."""
    kills = (Fault("kill", 10.5, 10.5, frozenset({7})), Fault("kill", 50, 50, frozenset({8})))
    made = history(Run(7, 10), finished(9, 90), faults=kills)
    made.recoveries["a"] = [5.0, 47.0, 86.0]
    verdict = check(made, NOTHING)
    assert (36.5, 79.5) == (verdict.first_recovery, verdict.longest_recovery)


def test_recovery_is_also_the_time_until_anything_ends_after_a_fault_of_all() -> None:
    """Counted from the end of the fault."""
    outage = Fault("outage", 20, 25)
    verdict = check(history(finished(7, 30), faults=(outage,)), NOTHING)
    assert 6.0 == verdict.longest_recovery


def test_an_orphan_need_not_have_begun() -> None:
    """A worker was killed with tasks in its prefetch buffer; later faults and other workers do not count."""
    kills = (Fault("kill", 10, 10, frozenset({7})), Fault("kill", 60, 60, frozenset({7, 8})))
    made = history(finished(9, 90), faults=kills)
    made.servers = {"first": 7, "second": 8}
    made.orphans = [Orphan("a", "first", 51.0), Orphan("a", "second", 5.0), Orphan("a", "unknown", 99.0)]
    assert (41.0, 0.0) == ((verdict := check(made, NOTHING)).longest_orphan, verdict.first_recovery)
