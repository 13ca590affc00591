"""The records of the chaos runs, written and read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.chaos.records import Fault, Orphan, Recorder, What, is_working, read_history

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """The fate of the enqueue, each run, and the faults."""
    recorder = Recorder(tmp_path)
    recorder.note_all(What.INTENDED, ["a", "b", "c"])
    recorder.note_all(What.ACKNOWLEDGED, ["a", "b"])
    for what in (What.STARTED, What.FAILED, What.STARTED, What.FINISHED, What.SETTLED):
        recorder.note(what, "a")
    recorder.note(What.STARTED, "b")
    recorder.note_fault(Fault("kill", 1.5, 2.5, frozenset({3, 4})))
    recorder.note_fault(Fault("outage", 0.5, 1.0))
    recorder.close()
    history = read_history(tmp_path)
    assert {"a": What.ACKNOWLEDGED, "b": What.ACKNOWLEDGED, "c": What.INTENDED} == history.enqueues
    assert [What.FAILED, What.FINISHED] == [run.how for run in history.runs["a"]]
    assert [False, True] == [run.settled is not None for run in history.runs["a"]]
    [run] = history.runs["b"]
    assert (os.getpid(), None, None) == (run.pid, run.ended, run.how)
    assert [Fault("outage", 0.5, 1.0), Fault("kill", 1.5, 2.5, frozenset({3, 4}))] == history.faults


def test_records_of_many_processes_are_put_together(tmp_path: Path) -> None:
    """Runs of a task are sorted by their starts, on all workers."""
    (tmp_path / "12-1.records").write_text("started 5.0 a\nfinished 6.0 a\n")
    (tmp_path / "11-1.records").write_text("started 9.0 a\n")
    assert [12, 11] == [run.pid for run in read_history(tmp_path).runs["a"]]


def test_recoveries_are_sorted_by_their_times(tmp_path: Path) -> None:
    """The server that recovers a task did not run it."""
    (tmp_path / "12-1.records").write_text("recovered 8.0 a\n")
    (tmp_path / "11-1.records").write_text("recovered 5.0 a\n")
    history = read_history(tmp_path)
    assert ({"a": [5.0, 8.0]}, {}) == (history.recoveries, history.runs)


def test_an_orphan_is_recorded_with_its_server(tmp_path: Path) -> None:
    """The server's own process tells its id."""
    (tmp_path / "12-1.records").write_text("serving 1.0 first\n")
    (tmp_path / "11-1.records").write_text("serving 2.0 second\nrecovered 8.0 a first\n")
    history = read_history(tmp_path)
    assert ({"first": 12, "second": 11}, [Orphan("a", "first", 8.0)]) == (history.servers, history.orphans)


def test_a_record_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    """Its process was killed in the middle of it."""
    (tmp_path / "12-1.records").write_text("started 5.0 a\nfinished 6.")
    assert [None] == [run.how for run in read_history(tmp_path).runs["a"]]


def test_a_task_that_ends_its_process_is_a_fault_of_that_process(tmp_path: Path) -> None:
    """It explains why its neighbours run again."""
    (tmp_path / "12-1.records").write_text("started 5.0 a\ncrashing 6.0 a\n")
    assert [Fault("crashing task", 6.0, 6.0, frozenset({12}))] == read_history(tmp_path).faults


def test_a_task_that_was_put_back_has_no_confirmed_outcome(tmp_path: Path) -> None:
    """It may not even have begun."""
    (tmp_path / "12-1.records").write_text("settled 4.0 b\nstarted 5.0 a\nbroken-off 6.0 a\nsettled 7.0 a\n")
    history = read_history(tmp_path)
    assert [None] == [run.settled for run in history.runs["a"]]
    assert {"a"} == history.runs.keys()


def test_a_process_works_while_a_run_has_not_ended(tmp_path: Path) -> None:
    """Only the end of its records is read, and a line that is being written counts for nothing."""
    path = tmp_path / "12-1.records"
    assert not is_working(tmp_path, 12)
    path.write_text("serving 1.0 s\nstarted 2.0 a\nstarted 2.0 b\nfinished 3.0 a\n")
    assert (True, False) == (is_working(tmp_path, 12), is_working(tmp_path, 1))
    path.write_text("started 2.0 a\nfailed 3.0 a\nsettled 4.0 a\nstarted 5.0 b")
    assert not is_working(tmp_path, 12)
    path.write_text("started 2.0 old\n" + "started 3.0 a\nfinished 4.0 a\n" * 1_000)
    assert not is_working(tmp_path, 12)
