"""Workers that lease from the task service: their reports, and how those of several instances are merged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyasynq._broker.operating.instance_reports import MAX_REPORT_BYTES
from pyasynq.operations import HeldTask, LeaseWorkerReport, make_worker_id
from pyasynq.operations.lease_workers import decode_report, encode_report, merge_reports

NOW = 1_700_000_000
LEASED = {"resize": {"a", "b"}}


def report(**fields: Any) -> LeaseWorkerReport:
    """Return a report of an instance through which the worker leases."""
    given: dict[str, Any] = {"name": "n", "key_id": "k", "queues": ("resize",), "seen": NOW - 1.0}
    return LeaseWorkerReport("w", **{**given, **fields})


def by_key(*tasks: HeldTask) -> dict[tuple[str, str], HeldTask]:
    """Return held tasks by queue and id."""
    return {(task.queue, task.task_id): task for task in tasks}


def test_a_report_is_read_as_it_was_written() -> None:
    """With names that are not UTF-8 too."""
    held = [HeldTask("a\udcff", "ü", NOW), HeldTask("b", "2", NOW + 1)]
    one = report(
        language="php 8.3", version="1", pid=7, host="h", queues=("a\udcff",), parked=2, tasks=by_key(*held)
    )
    read = decode_report("w", encode_report(one))
    assert read is not None
    assert held[::-1] == list(read.tasks.values())
    one.tasks = read.tasks
    assert one == read


@pytest.mark.parametrize("text", ["x", "\x1b", "ü", "\udcff"])
def test_a_report_has_at_most_its_bytes(text: str) -> None:
    """Whatever a worker calls itself and its tasks; of these the newest are kept."""
    long = text * 1_000
    held = [HeldTask(long if at % 2 else "q", f"{at}", NOW) for at in range(300)]
    texts = dict.fromkeys(("name", "language", "version", "host"), long)
    one = report(**texts, pid=2**63 - 1, queues=(long,) * 100, tasks=by_key(*held))
    data = encode_report(one)
    assert len(data) <= MAX_REPORT_BYTES
    read = decode_report("w", data)
    assert read is not None
    assert held[-1] == next(iter(read.tasks.values()))


@pytest.mark.parametrize(
    "change",
    [
        {"name": 1}, {"pid": "7"}, {"pid": True}, {"queues": "q"}, {"queues": [1]}, {"seen": "x"},
        {"seen": 1e300}, {"seen": None}, {"tasks": [["q", "i"]]}, {"tasks": [["q", 1, 2]]}, {"parked": None},
    ],
)  # fmt: skip
def test_other_values_are_not_reports(change: dict[str, Any]) -> None:
    """Redis may hold anything."""
    content = json.loads(encode_report(report()))
    assert decode_report("w", json.dumps({**content, **change}).encode()) is None


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"{", b"[" * 100_000, b"\xff"])
def test_other_bytes_are_not_reports(data: bytes) -> None:
    """Also what is nested too deeply."""
    assert decode_report("w", data) is None


def test_instances_know_one_worker_together() -> None:
    """Leased through one, extended through the other, which knows the id only."""
    one = report(name="resizer", parked=1, tasks=by_key(HeldTask("resize", "a", NOW + 9)))
    two = LeaseWorkerReport(
        "w", seen=NOW - 0.5, tasks=by_key(*(HeldTask("resize", at, NOW + 60) for at in "ab"))
    )
    [worker] = merge_reports([(NOW, one), (NOW, two)], LEASED, NOW)
    assert ("resizer", "k", 1, 2, "working") == (
        *(worker.name, worker.key_id, worker.parked, worker.at_work, worker.state),
    )
    assert NOW - 0.5 == worker.seen.timestamp()


def test_an_extended_task_is_held_once_and_the_newest() -> None:
    """A task that the worker does not hold may be dropped."""
    one = report()
    for held in (HeldTask("q", "a", NOW), HeldTask("q", "b", NOW), HeldTask("q", "a", NOW + 9)):
        one.hold(held)
    assert [("q", "b", NOW), ("q", "a", NOW + 9)] == list(one.tasks.values())
    one.drop("q", "b")
    one.drop("q", "b")
    assert [("q", "a")] == list(one.tasks)


def test_only_tasks_that_are_leased_count() -> None:
    """Others were settled through an instance that the report does not know of, or have lapsed."""
    tasks = [HeldTask("resize", "a", NOW), HeldTask("resize", "c", NOW + 9), HeldTask("other", "a", NOW + 9)]
    [worker] = merge_reports([(NOW, report(tasks=by_key(*tasks)))], LEASED, NOW)
    assert (0, "away", ("resize",)) == (worker.at_work, worker.state, worker.queues)


def test_requests_of_an_instance_that_died_do_not_wait_for_ever() -> None:
    """No request waits for more than 55 s."""
    waiting, lost = ((at, report(parked=1)) for at in (NOW - 74, NOW - 75))
    assert ["waiting"] == [one.state for one in merge_reports([waiting], {}, NOW)]
    assert ["away"] == [one.state for one in merge_reports([lost], {}, NOW)]


def test_the_id_is_that_of_key_name_process_and_host() -> None:
    """And of nothing else, in all instances."""
    ids = {
        make_worker_id(*one)
        for one in (("k", "n", 7, "h"), ("l", "n", 7, "h"), ("k", "m", 7, "h"), ("k", "n", None, "h"),
                    ("k", "n", 7, "i"), ("k", "n7", None, "h"))
    }  # fmt: skip
    assert (6, {16}) == (len(ids), set(map(len, ids)))
    assert make_worker_id("k", "n", 7, "h") in ids
