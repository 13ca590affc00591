"""Counts of ended attempts in memory, by queue and task type."""

from __future__ import annotations

from bisect import bisect_left
from itertools import cycle
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from pyasynq._wire.attempt_counts import (
    COUNTERS,
    LONGEST_TYPE,
    MAX_COUNTED_TYPES,
    OTHER_TYPES,
    RUN_BUCKETS,
    RUN_MILLISECONDS,
    VECTOR_SIZE,
    WAIT_BUCKETS,
    WAIT_MILLISECONDS,
    add_vectors,
)
from pyasynq.errors import TaskTimeoutError
from pyasynq.events import LeaseLapsed, Outcome, TaskPoisoned, TaskRecovered
from pyasynq.telemetry import ATTEMPT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyasynq.events import Events, WorkerDied

TypeCounts: TypeAlias = "dict[str, list[int]]"
"""Counts and duration histograms of ended attempts by task type, each as a vector of whole numbers."""

_SUCCEEDED: Final = COUNTERS.index("succeeded")
_TIMED_OUT: Final = COUNTERS.index("timed_out")
_RECOVERED: Final = COUNTERS.index("recovered")
_POISONED: Final = COUNTERS.index("poisoned")
_PLACES: Final = {
    Outcome.SUCCEEDED: _SUCCEEDED,
    Outcome.RETRIED: COUNTERS.index("retried"),
    Outcome.ARCHIVED: COUNTERS.index("archived"),
    Outcome.SNOOZED: COUNTERS.index("snoozed"),
    Outcome.REVOKED: COUNTERS.index("revoked"),
}
"""Position of each outcome in a vector. Attempts that were put back or lost are not counted."""

_ALL_MEASURED: Final = 100
"""Number of successes of a type between two calls of `take` after which only samples are measured."""
_GAPS: Final = (23, 37, 29, 39)
"""Numbers of successes from one sample to the next, in turn; the mean is 32.

They vary, so that a regular pattern of short and long tasks does not distort the samples.
"""


class Measured(Protocol):
    """The attributes of an attempt that the tally reads: start, wait, and reason of cancellation."""

    @property
    def started(self) -> float: ...

    @property
    def waited(self) -> float | None: ...

    @property
    def cause(self) -> BaseException | None: ...


class Cell:
    """Counts and duration histograms of the attempts of one queue and task type.

    The duration of a measured success is also counted for the unmeasured successes after it. So the
    histograms have as many durations as attempts ended.

    Attributes:
        succeeded: number of attempts that succeeded and keep nothing (fast path); counted by the runner.
        measure_at: value of `succeeded` at which the next success is measured.
    """

    __slots__ = ("_counted", "_gaps", "_run", "_vector", "_waited", "measure_at", "succeeded")

    def __init__(self) -> None:
        self.succeeded = 0
        self.measure_at = 1
        self._vector: list[float] = [0] * VECTOR_SIZE
        self._gaps: Iterator[int] = cycle(_GAPS)
        self._counted = 0
        """Number of successes whose durations are in the vector."""
        self._run = 0.0
        self._waited: float | None = None

    def measure(self, attempt: Measured, now: float) -> None:
        """Measure the newest success as a sample; it also counts for the unmeasured successes after it."""
        self._fill(self.succeeded - 1)
        self._run = now - attempt.started
        self._waited = attempt.waited
        self.measure_at = self.succeeded + (1 if self.succeeded < _ALL_MEASURED else next(self._gaps))

    def end(self, attempt: Measured, now: float, place: int, *, timed_out: bool) -> None:
        """Count and measure an attempt that failed, or whose task is kept.

        `place` is the position of its outcome in the vector.
        """
        self._vector[place] += 1
        self._vector[_TIMED_OUT] += timed_out
        self._add(now - attempt.started, attempt.waited, 1)

    def note(self, place: int) -> None:
        """Count a recovered or poison task, whose attempt ran in another process; `place` as in `end`."""
        self._vector[place] += 1

    def finish(self) -> list[int]:
        """Return the counts and sums as a vector of whole numbers; times are in milliseconds. Called once."""
        self._fill(self.succeeded)
        vector = self._vector
        vector[_SUCCEEDED] += self.succeeded
        for at in (RUN_MILLISECONDS, WAIT_MILLISECONDS):
            vector[at] *= 1_000
        return [round(number) for number in vector]

    def _fill(self, until: int) -> None:
        """Add the last measured durations to the histograms, once for each success up to number `until`."""
        successes = until - self._counted
        if successes:
            self._counted = until
            self._add(self._run, self._waited, successes)

    def _add(self, run: float, waited: float | None, attempts: int) -> None:
        vector = self._vector
        vector[RUN_MILLISECONDS] += run * attempts
        vector[RUN_BUCKETS + bisect_left(ATTEMPT_SECONDS, run)] += attempts
        if waited is not None:
            vector[WAIT_MILLISECONDS] += waited * attempts
            vector[WAIT_BUCKETS + bisect_left(ATTEMPT_SECONDS, waited)] += attempts


class TypeCells(dict[str, Cell]):
    """Counters (`Cell`) of one queue by task type; a missing one is made when it is read."""

    def __missing__(self, task_type: str) -> Cell:
        cell = self[task_type] = Cell()
        return cell

    def end(self, attempt: Measured, task_type: str, now: float, outcome: Outcome) -> None:
        """Count an attempt that ends now with this outcome."""
        place = _PLACES.get(outcome)
        if place is not None:
            timed_out = type(attempt.cause) is TaskTimeoutError
            self[task_type].end(attempt, now, place, timed_out=timed_out)


class Tally:
    """Counts of attempts since they were last taken. Used by the event loop only."""

    def __init__(self) -> None:
        self._queues: dict[str, TypeCells] = {}
        self._receivers: list[Callable[[Mapping[str, TypeCounts]], object]] = []

    def cells(self, queue: str) -> TypeCells:
        """Return the cells of a queue; the object stays the same, and `take` empties it."""
        cells = self._queues.get(queue)
        if cells is None:
            cells = self._queues[queue] = TypeCells()
        return cells

    def take(self) -> None:
        """Pass the counts since the last call to all receivers, and start again at zero."""
        counts = {}
        for queue, cells in self._queues.items():
            if cells:
                counts[queue] = fold_types(cells)
                cells.clear()
        if counts:
            for receive in self._receivers:
                receive(counts)

    def hand_to(self, receive: Callable[[Mapping[str, TypeCounts]], object]) -> None:
        """Register a function that receives the vectors by queue and task type, and must not change them."""
        self._receivers.append(receive)

    def listen(self, events: Events) -> None:
        """Also count recovered and poison tasks, from events."""
        events.subscribe(TaskRecovered, lambda event: self._note(event, _RECOVERED))
        events.subscribe(LeaseLapsed, lambda event: self._note(event, _RECOVERED))
        events.subscribe(TaskPoisoned, lambda event: self._note(event, _POISONED))

    def note_death(self, event: WorkerDied) -> None:
        """Count a task of a dead worker that its supervisor has taken back."""
        self._note(event, _POISONED if event.archived else _RECOVERED)

    def _note(self, event: TaskRecovered | LeaseLapsed | TaskPoisoned | WorkerDied, place: int) -> None:
        self.cells(event.queue)[event.task_type].note(place)


def fold_types(cells: Mapping[str, Cell]) -> TypeCounts:
    """Return the vectors of a queue by task type: the 50 types with the most outcomes, and `_other`.

    All other types are summed in `_other`, also types with a long or an empty name.
    """
    counts: TypeCounts = {}
    vectors = [(task_type, cell.finish()) for task_type, cell in cells.items()]
    for task_type, vector in sorted(vectors, key=lambda item: -sum(item[1][: len(COUNTERS)])):
        is_long = len(task_type.encode("utf-8", "replace")) > LONGEST_TYPE
        is_other = is_long or not task_type or len(counts) >= MAX_COUNTED_TYPES
        name = OTHER_TYPES if is_other else task_type
        if name in counts:
            add_vectors(counts[name], vector)
        else:
            counts[name] = vector
    return counts
