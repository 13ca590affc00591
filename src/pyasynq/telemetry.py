"""Value classes of statistics: histograms of durations, counts of ended attempts, time series, marks."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

ATTEMPT_SECONDS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0, 2_700.0, 3_600.0),
)
"""Upper bounds in seconds of the histogram buckets for runs and waits; one more bucket has no bound."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Histogram of attempt durations, or of the times for which tasks were pending before their attempts.

    Attributes:
        counts: one count for each bucket of `ATTEMPT_SECONDS`, and one for longer durations.
            A duration is in the first bucket whose bound it does not exceed.
        seconds: sum of the durations.
    """

    counts: tuple[int, ...]
    seconds: float = 0.0

    @property
    def total(self) -> int:
        """Total number of durations."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """Return a quantile in seconds: `share` of the durations are at most this long. None if empty.

        It is estimated as in Prometheus, as if durations were spread evenly in a bucket. Durations above
        the last bound count as that bound.
        """
        rank = share * self.total
        if not self.total:
            return None
        for index, below in enumerate(accumulate(self.counts)):
            count = self.counts[index]
            if below >= rank and count:
                if index >= len(ATTEMPT_SECONDS):
                    return ATTEMPT_SECONDS[-1]
                start = ATTEMPT_SECONDS[index - 1] if index else 0.0
                width = ATTEMPT_SECONDS[index] - start
                return start + width * (rank - (below - count)) / count
        return ATTEMPT_SECONDS[-1]

    def cumulative(self) -> list[tuple[float, int]]:
        """Return each bound with the number of durations up to it (cumulative); the last is infinity."""
        return list(zip((*ATTEMPT_SECONDS, math.inf), accumulate(self.counts), strict=True))

    def __add__(self, other: Histogram) -> Histogram:
        counts = tuple(one + two for one, two in zip(self.counts, other.counts, strict=True))
        return Histogram(counts, self.seconds + other.seconds)


NO_DURATIONS: Final = Histogram((0,) * (len(ATTEMPT_SECONDS) + 1))


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """Counts of attempts by outcome, and histograms of their durations and waits.

    Attributes:
        succeeded: attempts that succeeded.
        retried: attempts that failed, and whose tasks are tried again.
        archived: attempts that failed for good, those of poison tasks included.
        snoozed: attempts that postponed their task (`Snooze`), which costs no retry.
        revoked: attempts that had their task deleted (`Cancel`, `RevokeTask`), without retry or archive.
        timed_out: attempts that reached their timeout or deadline; each also counts under its outcome.
        recovered: tasks that were put back because their worker crashed.
        poisoned: tasks that were archived because their workers crashed.
        run: durations of the attempts. At a step of one minute only their sum is kept, and all buckets are 0.
        wait: times for which their tasks were pending before the attempts, if known; kept like `run`.
    """

    succeeded: int = 0
    retried: int = 0
    archived: int = 0
    snoozed: int = 0
    revoked: int = 0
    timed_out: int = 0
    recovered: int = 0
    poisoned: int = 0
    run: Histogram = NO_DURATIONS
    wait: Histogram = NO_DURATIONS

    @property
    def failed(self) -> int:
        """Number of failed attempts, whether or not they are retried."""
        return self.retried + self.archived

    @property
    def ended(self) -> int:
        """Number of attempts that ended in any way."""
        return self.succeeded + self.failed + self.snoozed + self.revoked

    @property
    def failure_ratio(self) -> float | None:
        """Share of failures among the attempts that succeeded or failed; None without such attempts."""
        decided = self.succeeded + self.failed
        return self.failed / decided if decided else None

    @property
    def mean_run(self) -> float | None:
        """Mean seconds that an attempt ran; None if none ended."""
        return self.run.seconds / self.ended if self.ended else None

    @property
    def mean_wait(self) -> float | None:
        """Mean seconds that a task was pending before its attempt; None if none ended."""
        return self.wait.seconds / self.ended if self.ended else None

    def __add__(self, other: AttemptCounts) -> AttemptCounts:
        return AttemptCounts(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


NO_ATTEMPTS: Final = AttemptCounts()


def sum_counts(counts: Iterable[AttemptCounts]) -> AttemptCounts:
    """Return the sum of counts; `NO_ATTEMPTS` for an empty sequence."""
    total = NO_ATTEMPTS
    for one in counts:
        total += one
    return total


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """Point of a time series: the attempts that ended within one step.

    Attributes:
        at: start of the step, whose length is the `step` of the series.
        counts: counts of the attempts that ended in the step; the newest step may not be over yet.
    """

    at: datetime
    counts: AttemptCounts


@dataclass(frozen=True, slots=True)
class AttemptSeries:
    """Time series of the attempts of one task type in one queue.

    Attributes:
        queue: name of the queue.
        type: the task type; `_other` stands for all types beyond the first 50 of the queue.
        step: seconds from one point to the next: 60, 600 or 86,400. At 60 there are no histograms.
        points: oldest first; steps in which no attempt ended are left out.
    """

    queue: str
    type: str
    step: int
    points: Sequence[SeriesPoint]

    @property
    def total(self) -> AttemptCounts:
        """Sum of the counts of all points."""
        return sum_counts(point.counts for point in self.points)


@dataclass(frozen=True, slots=True)
class Mark:
    """Mark of an event such as a deployment, drawn as a vertical line in each chart (annotation).

    Attributes:
        id: id of the mark.
        at: time of the event, aware.
        text: label of the mark, such as `deploy abc123`.
        by: user who set the mark; empty if unknown.
    """

    id: str
    at: datetime
    text: str
    by: str = ""
