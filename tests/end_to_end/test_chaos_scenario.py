"""A scenario of the chaos runs from end to end: servers, workers, a load, a fault, and a verdict."""

from __future__ import annotations

import pytest

from tests.chaos.redis_harmed import ScriptsFlushed
from tests.chaos.scenario import Profile, run_scenario


@pytest.mark.long
def test_a_scenario_runs_and_is_judged() -> None:
    """Nothing is lost when Redis forgets its scripts all the time."""
    told: list[int] = []
    result = run_scenario(
        ScriptsFlushed(), 1, Profile("tiny", 0.0, {}), lambda done, tasks: told.append(tasks)
    )
    verdict = result.verdict
    assert ([], []) == (verdict.lost, verdict.problems), result.log
    assert ScriptsFlushed.least_tasks == verdict.acknowledged == verdict.finished
    assert verdict.faults["SCRIPT FLUSH"] >= 1
    assert {ScriptsFlushed.least_tasks} == set(told)
