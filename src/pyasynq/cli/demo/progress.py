"""Progress of the demo: one immutable snapshot for each time that Redis is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.info import QueueInfo


@dataclass(frozen=True, slots=True)
class WorkerView:
    """State of one worker process of the demo."""

    name: str
    pid: int
    running: int
    """Number of tasks that are active on this worker."""
    killed_for: float | None = None
    """Seconds since the worker was killed; None while it lives."""


@dataclass(frozen=True, slots=True)
class LeaseView:
    """A task that the killed worker held, and the seconds until its lease expires (negative: expired)."""

    name: str
    seconds_left: float


@dataclass(frozen=True, slots=True)
class DemoState:
    """Snapshot of the demo's queue and workers, for the display."""

    elapsed: float
    """Seconds since the first task was enqueued."""
    total: int
    queue: QueueInfo
    rate: float
    """Tasks finished per second, as a moving average over the last three seconds."""
    workers: Sequence[WorkerView]
    leases: Sequence[LeaseView]

    @property
    def finished(self) -> int:
        """Number of tasks that are completed or archived."""
        return self.queue.completed + self.queue.archived

    @property
    def share(self) -> float:
        """Finished tasks as a share of all, from 0 to 1."""
        return self.finished / self.total if self.total else 1.0


class RateMeter:
    """Moving average of tasks per second over the last few seconds, from counts at irregular times."""

    def __init__(self, window_seconds: float = 3.0) -> None:
        self._window = window_seconds
        self._counts: list[tuple[float, int]] = []

    def rate(self, at: float, count: int) -> float:
        """Record the number of finished tasks at a time in seconds; return tasks per second in the window."""
        self._counts.append((at, count))
        while len(self._counts) > 1 and self._counts[0][0] < at - self._window:
            del self._counts[0]
        first_at, first_count = self._counts[0]
        return (count - first_count) / (at - first_at) if at > first_at else 0.0
