# Generated from src/pyasynq/operations/operator/lease_workers.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about workers that lease from the task service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.operating.instance_reports import LEASE_WORKER_REPORTS, read_reports
from pyasynq._broker.operating.lease_workers import find_leased

from .search import SearchOperator

if TYPE_CHECKING:
    from pyasynq.operations.lease_workers import LeaseWorker


class LeaseWorkerOperator(SearchOperator):
    """Lists the workers that lease from the task service, as its instances report them."""

    def lease_workers(self) -> list[LeaseWorker]:
        """Return the workers that leased from the task service within 10 minutes, by name.

        Queues that the user does not see are left out, as are workers with only such queues.
        """
        from pyasynq.operations.lease_workers import decode_report, merge_reports  # noqa: PLC0415 - most calls need none

        now = self._inspector.now()
        found = self._inspector.run(read_reports(LEASE_WORKER_REPORTS, now))
        read = [
            (at, decode_report(name.partition(".")[0], data)) for name, (at, data) in sorted(found.items())
        ]
        reports = [(at, report) for at, report in read if report is not None]
        held: dict[str, set[str]] = {}
        for _, report in reports:
            report.queues = tuple(queue for queue in report.queues if self._access.sees(queue))
            report.tasks = {key: task for key, task in report.tasks.items() if self._access.sees(task.queue)}
            for queue, task_id in report.tasks:
                held.setdefault(queue, set()).add(task_id)
        leased = {
            queue: self._inspector.run(find_leased(queue, sorted(ids), now))
            for queue, ids in held.items()
        }
        workers = merge_reports(reports, leased, now.seconds)
        return [worker for worker in workers if worker.queues]
