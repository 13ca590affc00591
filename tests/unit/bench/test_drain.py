from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from bench.figures import COMMANDS, RATE, REDIS_CPU, WORKER_CPU
from bench.measurements.drain import costs, watch
from bench.stage import MeasurementError, Moment, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator


class Counters:
    """Counters that stand at the next value each time they are looked at."""

    def __init__(self, *values: tuple[int, int]) -> None:
        self._values: Iterator[tuple[int, int]] = iter(values)
        self.ended = 0
        self.processes = 0

    def turn(self) -> None:
        """Go on to the next values; after the last they stay."""
        self.ended, self.processes = next(self._values, (self.ended, self.processes))


class Child:
    """A process that runs for ever."""

    alive = True
    said = ""

    def cpu_seconds(self) -> float:
        """Return any number."""
        return 0.0


class Server:
    """A server that does nothing."""

    def cpu_seconds(self) -> float:
        """Return any number."""
        return 0.0

    def commands(self) -> int:
        """Return any number."""
        return 0


class ObservedWorker(Worker):
    """A worker that does a little between two looks, and remembers its moments."""

    def moment(self, *, commands: bool = True) -> Moment:
        found = super().moment(commands=commands)
        self.moments = [*getattr(self, "moments", []), found.ended]
        return found

    def wait(self, condition: Any, what: str, **_: Any) -> None:
        for _turn in range(100):
            if condition():
                return
            cast("Counters", self.counters).turn()
        raise AssertionError(what)


def observed(*values: tuple[int, int]) -> ObservedWorker:
    """Return a worker whose counters take these values, handlers and processes."""
    return ObservedWorker(cast("Any", Child()), cast("Any", Counters(*values)), cast("Any", Server()))


def test_costs_are_those_between_the_two_moments() -> None:
    """What came before, such as the start of the worker, does not count."""
    begin = Moment(10.0, 500, 2.0, 30.0, 1_000)
    end = Moment(12.0, 10_500, 2.08, 30.15, 51_000)

    assert {
        RATE.name: 5_000,
        WORKER_CPU.name: 15.0,
        REDIS_CPU.name: 8.0,
        COMMANDS.name: 5.0,
    } == pytest.approx(costs(begin, end))


def test_without_a_task_between_them_there_is_no_cost() -> None:
    """Two equal moments raise `MeasurementError` instead of a division by zero."""
    moment = Moment(10.0, 500, 2.0, 30.0, 1_000)

    with pytest.raises(MeasurementError, match="take more of them"):
        costs(moment, moment)


def test_a_drain_is_watched_from_the_first_task_to_the_last() -> None:
    """The start of the worker is not a part of it."""
    worker = observed((0, 0), (30, 1), (70, 1), (100, 1))

    watch(worker, 100)

    assert [30, 100] == worker.moments


def test_two_processes_are_watched_from_when_both_run() -> None:
    """Else the later start of one would count as slowness."""
    worker = observed((30, 1), (60, 2), (100, 2))

    watch(worker, 100, processes=2)

    assert [60, 100] == worker.moments


def test_runs_before_the_second_process_began_are_not_measured() -> None:
    """It gives no figures, rather than those of one process."""
    assert {} == watch(observed((30, 1), (100, 1)), 100, processes=2)
