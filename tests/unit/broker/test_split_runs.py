from __future__ import annotations

from typing import Any

from pyasynq._broker.arguments import chunks
from pyasynq._broker.enqueueing.compose import Composed, compose
from pyasynq._broker.enqueueing.enqueue import split_runs
from pyasynq._clock import Instant
from pyasynq.task import Task

NOW = Instant(2_000_000_000)


def composed(payload: bytes = b"", **options: Any) -> Composed:
    """Compose a task of the queue `default` unless said otherwise."""
    return compose(Task("t", payload, **options), {}, now=NOW)


def positions(*items: Composed) -> list[list[int]]:
    """Return the positions that each run holds."""
    return [run.positions for run in split_runs(items)]


def test_tasks_of_one_queue_and_kind_are_one_run() -> None:
    """In their order, with their places in the input."""
    items = [composed(), composed(), composed()]
    [run] = split_runs(items)
    assert ("default", items, [0, 1, 2]) == (run.queue, run.tasks, run.positions)


def test_without_tasks_there_are_no_runs() -> None:
    """Nothing is sent."""
    assert [] == split_runs([])


def test_tasks_of_other_queues_do_not_cut_a_run() -> None:
    """One call each is enough."""
    low = composed(queue="low")
    assert [[0, 2, 4], [1, 3]] == positions(composed(), low, composed(), low, composed())


def test_another_kind_begins_a_new_run() -> None:
    """Plain, unique, scheduled, and scheduled unique ones; what comes later is not moved before them."""
    plain, unique = composed(), composed(unique=60)
    scheduled, both = composed(process_in=60), composed(process_in=60, unique=60)
    assert [[0, 1], [2], [3], [4], [5]] == positions(plain, plain, unique, scheduled, both, plain)


def test_tasks_of_groups_are_runs_of_their_own() -> None:
    """Whatever their groups, unique or not; those that are scheduled apart from those that are not."""
    now = [composed(group="g"), composed(group="h", unique=60)]
    later = [composed(group="g", process_in=60), composed(group="h", process_in=60, unique=60)]
    assert [[0], [1, 2], [3, 4], [5]] == positions(composed(), *now, *later, composed())


def test_a_run_has_a_thousand_tasks_at_most() -> None:
    """Lua's limits are far then."""
    item = composed()
    assert [1000, 1000, 1] == [len(run) for run in positions(*[item] * 2001)]


def test_a_run_has_four_megabytes_at_most() -> None:
    """One larger task is a run of its own."""
    small, large = composed(b"x" * 1_900_000), composed(b"x" * 5_000_000)
    assert [[0, 1], [2], [3], [4]] == positions(small, small, small, large, small)


def test_chunks_are_cut_by_number_and_by_size() -> None:
    """Nothing is lost, one large item is not cut, and nothing gives nothing."""
    assert [] == list(chunks([]))
    assert [[1, 2], [3, 4], [5]] == list(chunks([1, 2, 3, 4, 5], most=2))
    sizes = [3_000_000, 1_000_000, 1, 9_000_000, 1]
    assert [sizes[:2], [1], [9_000_000], [1]] == list(chunks(sizes, size_of=int))
