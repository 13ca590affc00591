"""Counts of successes, of which only some are measured."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pyasynq._engine.tally import Cell, TypeCells, fold_types
from pyasynq._wire.attempt_counts import (
    COUNTERS,
    MAX_COUNTED_TYPES,
    OTHER_TYPES,
    RUN_BUCKETS,
    RUN_MILLISECONDS,
    WAIT_BUCKETS,
    WAIT_MILLISECONDS,
)
from pyasynq.events import Outcome


@dataclass
class Ended:
    """An attempt, as far as it is measured."""

    started: float = 10.0
    waited: float | None = 2.0
    cause: BaseException | None = None


def succeed(cell: Cell, times: int, attempt: Ended, now: float) -> int:
    """Count successes as the runner does; return how many of them were measured."""
    measured = 0
    for _ in range(times):
        cell.succeeded += 1
        if cell.succeeded >= cell.measure_at:
            cell.measure(attempt, now)
            measured += 1
    return measured


@pytest.mark.parametrize("times", [1, 2, 99, 100, 101, 1_000, 12_345])
def test_histograms_have_as_many_durations_as_attempts_succeeded(times: int) -> None:
    """Each measured success stands for itself and for those that follow it unmeasured."""
    cell = Cell()
    succeed(cell, times, Ended(), 10.5)
    vector = cell.finish()
    assert times == vector[COUNTERS.index("succeeded")]
    assert times == sum(vector[RUN_BUCKETS:WAIT_BUCKETS]) == sum(vector[WAIT_BUCKETS:])
    assert (500 * times, 2_000 * times) == (vector[RUN_MILLISECONDS], vector[WAIT_MILLISECONDS])


def test_a_hundred_are_measured_and_of_later_ones_one_in_32() -> None:
    """So counting costs a busy worker little, and what runs rarely is exact."""
    cell = Cell()
    assert succeed(cell, 100, Ended(), 10.5) == 100
    assert succeed(cell, 32_000, Ended(), 10.5) == pytest.approx(1_000, abs=2)


def test_a_success_of_unknown_wait_is_in_the_histogram_of_runs_alone() -> None:
    """Another engine may have taken the task out of pending."""
    cell = Cell()
    succeed(cell, 2, Ended(waited=None), 10.5)
    succeed(cell, 3, Ended(), 10.5)
    vector = cell.finish()
    assert (5, 3) == (sum(vector[RUN_BUCKETS:WAIT_BUCKETS]), sum(vector[WAIT_BUCKETS:]))


def test_other_ends_are_all_measured() -> None:
    """They are rarer, and their durations matter more."""
    cell = Cell()
    succeed(cell, 200, Ended(), 10.001)
    place = COUNTERS.index("retried")
    for _ in range(3):
        cell.end(Ended(), 70.0, place, timed_out=False)
    vector = cell.finish()
    assert (200, 3) == (vector[0], vector[place])
    assert sum(vector[RUN_BUCKETS:WAIT_BUCKETS]) == 203
    assert vector[RUN_MILLISECONDS] == pytest.approx(200 + 180_000, abs=1)


def test_a_type_that_only_fails_is_counted_by_its_name() -> None:
    """The 50 named types are those with the most outcomes of any kind, not with the most successes."""
    cells = TypeCells()
    for number in range(MAX_COUNTED_TYPES):
        succeed(cells[f"healthy:{number}"], 2, Ended(), 10.5)
    for _ in range(3):
        cells.end(Ended(), "broken", 10.5, Outcome.RETRIED)
    counts = fold_types(cells)
    assert 3 == counts["broken"][COUNTERS.index("retried")]
    assert 2 == counts[OTHER_TYPES][COUNTERS.index("succeeded")]
    assert MAX_COUNTED_TYPES + 1 == len(counts)
