"""Table of the workers of one instance: which of them wait for tasks, and which have leased tasks."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyasynq.operations import HeldTask, LeaseWorkerReport, make_worker_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pyasynq.consumer import Attempt
    from pyasynq.gateway.leases.bodies import WorkerDescription

_MOST: Final = 2_000
"""Maximum number of workers; above it, the one with the oldest last request is removed (LRU)."""
_FORGET_SECONDS: Final = 600.0
"""Seconds after the last request from which a worker without tasks is removed from the table."""


class WorkerTable:
    """The workers that have sent a request to this instance. Used by one event loop.

    Args:
        clock: returns Unix time.
        most: maximum number of workers in the table.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._workers: dict[str, LeaseWorkerReport] = {}
        """Reports by worker id, the worker with the oldest last request first."""
        self._changed: set[str] = set()
        """Ids of the workers that have changed since `take_changed`."""

    @property
    def held(self) -> int:
        """Number of tasks that workers have leased and not yet settled, both through this instance."""
        now = self._clock()
        return sum(task.until > now for one in self._workers.values() for task in one.tasks.values())

    def holds(self, queue: str) -> bool:
        """Return whether a worker may still run tasks of a queue that it leased through this instance."""
        now = self._clock()
        return any(
            task.queue == queue and task.until > now
            for one in self._workers.values()
            for task in one.tasks.values()
        )

    @contextmanager
    def waiting(
        self, key_id: str, worker: WorkerDescription, address: str, queues: Collection[str]
    ) -> Iterator[str]:
        """Count a request as waiting during a block; the block gets the worker's id."""
        host = worker.host or address
        report = self._find(make_worker_id(key_id, worker.name, worker.pid, host))
        report.name, report.language, report.version = worker.name, worker.language, worker.version
        report.pid, report.host, report.key_id = worker.pid, host, key_id
        report.queues = tuple(queues)
        report.parked += 1
        try:
            yield report.id
        finally:
            report.parked -= 1
            self._changed.add(report.id)

    def note_leased(self, worker: str, attempts: Sequence[Attempt]) -> None:
        """Record that a worker has leased tasks, or extended their leases."""
        report = self._find(worker)
        for attempt in attempts:
            until = math.ceil(attempt.lease_expires_at.timestamp())
            report.hold(HeldTask(attempt.queue, attempt.id, until))

    def note_settled(self, worker: str, queue: str, task_id: str) -> None:
        """Record that a worker has settled a task, or no longer has its lease."""
        self._find(worker).drop(queue, task_id)

    def take_changed(self) -> list[LeaseWorkerReport]:
        """Return the reports that have changed since the last call, and remove workers that are gone."""
        now = self._clock()
        for worker, report in list(self._workers.items()):
            if expired := [task for task in report.tasks.values() if task.until <= now]:
                for task in expired:
                    report.drop(task.queue, task.task_id)
                self._changed.add(worker)
            if not report.parked and not report.tasks and report.seen < now - _FORGET_SECONDS:
                del self._workers[worker]
        changed = [self._workers[one] for one in self._changed if one in self._workers]
        self._changed.clear()
        return changed

    def put_back(self, reports: Sequence[LeaseWorkerReport]) -> None:
        """Add reports that could not be stored to the next result of `take_changed`."""
        self._changed.update(report.id for report in reports)

    def _find(self, worker: str) -> LeaseWorkerReport:
        """Return the report of the worker that has sent a request, and note the time of the request."""
        report = self._workers.pop(worker, None) or LeaseWorkerReport(worker)
        self._workers[worker] = report
        self._changed.add(worker)
        report.seen = self._clock()
        if len(self._workers) > self._most:
            del self._workers[next(iter(self._workers))]
        return report
