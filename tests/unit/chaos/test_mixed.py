"""The judges of the runs with mixed versions, and the installation of an earlier commit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.records import Fault, History, Run, What
from tests.mixed.base import MissingCommitError, install_base
from tests.mixed.run import judge_limit, judge_ticks, judge_versions


def history_of(runs: dict[str, list[Run]], *faults: Fault) -> History:
    """Return a history of these runs and faults."""
    return History(runs=runs, faults=list(faults))


def test_a_tick_that_is_missing_between_others_is_named() -> None:
    """The entry makes up for every tick, so a gap is an error."""
    runs = {f"entry:{tick}": [Run(1, 0.0)] for tick in (100, 101, 103)}
    assert ["tick 102 was never enqueued"] == list(judge_ticks(history_of(runs)))


def test_a_run_without_ticks_is_an_error() -> None:
    """Otherwise two silent schedulers would look well."""
    assert ["there were only 0 ticks"] == list(judge_ticks(history_of({"work-1-1": [Run(1, 0.0)]})))


def test_more_tasks_at_once_than_the_limit_are_counted() -> None:
    """Four of the limited queue overlap, and other queues do not count."""
    runs = {f"limited-1-{place}": [Run(1, 0.0, 1.0, What.FINISHED)] for place in range(4)}
    runs["work-1-9"] = [Run(1, 0.0, 1.0, What.FINISHED)]
    assert ["4 tasks of the queue mixed-limited ran at once, and its limit is 3"] == list(
        judge_limit(history_of(runs))
    )


def test_a_killed_process_ends_what_it_ran() -> None:
    """Its runs have no end of their own."""
    runs = {f"limited-1-{place}": [Run(7, 0.0)] for place in range(3)}
    runs["limited-1-3"] = [Run(8, 2.0, 3.0, What.FINISHED)]
    assert [] == list(judge_limit(history_of(runs, Fault("SIGKILL", 1.0, 1.0, frozenset({7})))))


def test_both_versions_must_have_run_tasks() -> None:
    """A run with one version alone proves nothing."""
    base = Path("/earlier")
    marks = {1: base / "pyasynq", 2: Path("/present/pyasynq")}
    runs, problems = judge_versions(history_of({"a": [Run(2, 0.0)]}), marks, base)
    assert Counter({"present": 1}) == runs
    assert ["the earlier version ran no task"] == problems


def test_a_commit_that_is_not_there_is_named() -> None:
    """A shallow clone lacks old commits, so the error says which one is missing."""
    with pytest.raises(MissingCommitError, match="commit 0000000 is not in this clone"):
        install_base("0000000")
