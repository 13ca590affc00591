"""Counters, gauges and histograms of several processes in one store."""

from __future__ import annotations

import json

from pyasynq.metrics.families import FAMILIES, RUN_SECONDS
from pyasynq.metrics.store import MetricStore
from pyasynq.metrics.text import Exemplar

LOSSES = "pyasynq_lease_losses_total"
RUNS = "pyasynq_task_run_seconds"
RUNNING = "pyasynq_tasks_running"
SIZES = "pyasynq_batch_size"
TICKS = "pyasynq_scheduler_ticks_total"


def values(store: MetricStore, name: str) -> dict[tuple[str, ...], object]:
    """Return the values of one metric by labels."""
    return {
        labels: value
        for one in store.samples()
        if one.family.name == name
        for labels, value in one.values.items()
    }


def test_what_one_store_counted_is_added_up_in_another() -> None:
    """Through JSON, each change once."""
    child, fleet = MetricStore(), MetricStore()
    for _ in range(2):
        child.add(LOSSES, ("a",), 3)
        child.observe(SIZES, 7)
        fleet.add_rows("1", json.loads(json.dumps(child.take_rows())))
    fleet.add_rows("1", child.take_rows())
    assert {("a",): 6} == values(fleet, LOSSES)
    [(_, numbers)] = values(fleet, SIZES).items()
    assert numbers == values(child, SIZES)[()]
    assert (2, 14) == (sum(numbers[:-1]), numbers[-1])  # type: ignore[index] # a histogram


def test_gauges_are_added_up_over_processes_and_go_with_theirs() -> None:
    """What was counted stays."""
    fleet = MetricStore()
    for source in ("1", "2"):
        child = MetricStore()
        child.set_gauges(RUNNING, {("a",): 2})
        child.add(LOSSES, ("a",))
        fleet.add_rows(source, child.take_rows())
    assert {("a",): 4} == values(fleet, RUNNING)
    fleet.drop_source("1")
    assert ({("a",): 2}, {("a",): 2}) == (values(fleet, RUNNING), values(fleet, LOSSES))


def test_the_largest_of_a_shared_gauge_counts() -> None:
    """Each process has counted the same."""
    fleet = MetricStore()
    for source, workers in (("1", 3), ("2", 2)):
        fleet.set_gauges("pyasynq_service_list_workers", {("a",): workers}, source)
    assert {("a",): 3} == values(fleet, "pyasynq_service_list_workers")


def test_exemplars_of_processes_are_kept_by_bucket() -> None:
    """Each bucket shows the newest; a process reports its newest of each histogram, once."""
    fleet = MetricStore()
    for number, seconds in enumerate((0.2, 0.3, 40.0, 0.31)):
        child = MetricStore()
        child.add_histogram(RUNS, ("a", ""), [0] * (len(RUN_SECONDS) + 2))
        child.set_exemplar(RUNS, ("a", ""), Exemplar(seconds, 1.7e9 + number, f"trace {number}", "s"))
        fleet.add_rows(str(number), json.loads(json.dumps(child.take_rows())))
        assert not [row for row in child.take_rows() if isinstance(row[2], dict)]
    [found] = [samples.exemplars for samples in fleet.samples() if samples.family.name == RUNS]
    kept = {exemplar.value: exemplar.trace_id for exemplar in found["a", ""].values()}
    assert {0.2: "trace 0", 40.0: "trace 2", 0.31: "trace 3"} == kept


def test_a_gauge_that_is_not_set_again_becomes_0() -> None:
    """Its last value would be shown for ever otherwise."""
    store = MetricStore()
    store.set_gauges(RUNNING, {("a",): 2, ("b",): 1})
    store.set_gauges(RUNNING, {("b",): 3})
    assert {("a",): 0, ("b",): 3} == values(store, RUNNING)


def test_label_values_beyond_the_limit_are_counted_under_other() -> None:
    """However many there are; a metric says that it happened."""
    store = MetricStore(max_types=2)
    for number in range(10_000):
        store.add(TICKS, (f"t{number}", "fired"))
    store.add(TICKS, ("t1", "fired"))
    store.add(TICKS, ("x" * 201, "fired"))
    assert {("t0", "fired"): 1, ("t1", "fired"): 2, ("_other", "fired"): 9_999} == values(store, TICKS)
    assert {("type",): 9_999} == values(store, "pyasynq_labels_capped_total")


def test_gauges_beyond_the_limit_are_added_up() -> None:
    """The sum of all values stays right."""
    store = MetricStore(max_queues=1)
    store.set_gauges(RUNNING, {("a",): 1, ("b",): 2, ("c",): 3})
    assert {("a",): 1, ("_other",): 5} == values(store, RUNNING)


def test_rows_of_another_version_are_ignored() -> None:
    """A metric that is not known, other labels, another number of buckets, another kind."""
    store = MetricStore()
    store.add_rows(
        "1",
        [
            ("pyasynq_new_total", [], 1.0),
            (LOSSES, [], 1.0),
            (LOSSES, ["a"], [1.0]),
            (SIZES, [], [1.0, 2.0]),
            (SIZES, [], 5.0),
        ],
    )
    assert [] == store.samples()


def test_samples_come_in_the_order_of_the_table() -> None:
    """The order does not depend on which metric was counted first."""
    store = MetricStore()
    store.observe(SIZES, 1)
    store.set_gauges(RUNNING, {("a",): 1})
    store.add(LOSSES, ("a",))
    names = [one.family.name for one in store.samples()]
    assert [name for name in FAMILIES if name in names] == names
