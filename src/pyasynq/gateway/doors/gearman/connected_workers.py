"""Gearman workers of all instances: this instance writes reports to Redis, and reads those of others."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq.operations import HeldTask, LeaseWorkerReport, make_worker_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyasynq.operations import LeaseWorker, Operator

    from .session import GearmanSession

_LANGUAGE: Final = "Gearman"
_AGAIN_SECONDS: Final = 15.0
"""Age in seconds at which an unchanged report is written again, with the new ends of its 30 s leases."""
_KEPT_SECONDS: Final = 1.0
"""Seconds for which the workers of other instances are cached."""


class OtherWorker(NamedTuple):
    """Gearman workers of another instance with the same address, name and functions, or one worker over HTTP.

    Attributes:
        address: address from which they are connected.
        name: name that the workers give themselves.
        functions: functions that they can run.
        connections: number of their connections.
    """

    address: str
    name: str
    functions: tuple[str, ...]
    connections: int


class ConnectedWorkers:
    """Workers connected to this instance, and workers connected to other instances.

    Connections with the same address, name and functions share one report, so a fleet of equal workers needs
    a single field in Redis.

    Args:
        instance: id of the instance.
        sessions: open connections of the instance.
        operator: reads the reports of the other instances.
        clock: returns Unix time.
    """

    def __init__(
        self,
        instance: str,
        sessions: Collection[GearmanSession],
        operator: Operator,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._instance = instance
        self._sessions = sessions
        self._operator = operator
        self._clock = clock
        self._written: dict[str, LeaseWorkerReport] = {}
        """Reports that `take_changed` returned last, by worker."""
        self._others: tuple[float, list[OtherWorker]] = (-math.inf, [])
        """Unix second at which the workers of other instances were read, and these workers."""

    def take_changed(self) -> list[LeaseWorkerReport]:
        """Return reports that have changed since the last call, and unchanged reports that are due again."""
        now = self._clock()
        reports = self._build_reports(now)
        changed = [report for report in reports.values() if self._is_due(report, now)]
        gone = [
            replace(last, parked=0, tasks={}) for key, last in self._written.items() if key not in reports
        ]
        for report in changed:
            self._written[report.id] = report
        for report in gone:
            del self._written[report.id]
        return [*changed, *(replace(report, seen=now) for report in gone)]

    def put_back(self, reports: Sequence[LeaseWorkerReport]) -> None:
        """Add reports that could not be stored to the next result of `take_changed`."""
        for report in reports:
            # A value that equals no real report, so that the next report counts as changed.
            self._written[report.id] = replace(report, parked=-1)

    async def read_others(self) -> list[OtherWorker]:
        """Return Gearman workers of other instances, and workers leasing over HTTP; cached for a second."""
        now = self._clock()
        at, others = self._others
        if not at <= now < at + _KEPT_SECONDS:
            found = await self._operator.lease_workers()
            others = [_describe_other(one) for one in found if one.id not in self._written]
            others = [one for one in others if one.connections]
            self._others = now, others
        return others

    def _build_reports(self, now: float) -> dict[str, LeaseWorkerReport]:
        reports: dict[str, LeaseWorkerReport] = {}
        for session in self._sessions:
            functions = tuple(sorted(session.worker.functions))
            if not functions:
                continue
            worker = make_worker_id(f"{self._instance} {functions}", session.name, None, session.address)
            report = reports.get(worker)
            if report is None:
                report = reports[worker] = LeaseWorkerReport(
                    worker, session.name, _LANGUAGE, host=session.address, queues=functions, seen=now
                )
            report.parked += 1
            for one in session.worker.attempts:
                report.hold(HeldTask(one.queue, one.id, math.ceil(one.lease_expires_at.timestamp())))
        return reports

    def _is_due(self, report: LeaseWorkerReport, now: float) -> bool:
        last = self._written.get(report.id)
        return last is None or last.seen < now - _AGAIN_SECONDS or _content(last) != _content(report)


def _content(report: LeaseWorkerReport) -> tuple[object, ...]:
    """Return the part of a report that decides whether it has changed: all but its time and lease ends."""
    return report.parked, set(report.tasks)


def _describe_other(worker: LeaseWorker) -> OtherWorker:
    connections = worker.parked or (1 if worker.at_work else 0)
    return OtherWorker(worker.host, worker.name or "-", worker.queues, connections)
