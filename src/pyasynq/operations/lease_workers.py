"""Workers that lease from the task service: the reports of each service instance, and the merged view."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._broker.operating.instance_reports import LEASE_WORKER_REPORTS, write_reports

from .report_values import check_kind, to_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyasynq.operations.operator import Operator

_PARKED_SECONDS: Final = 75
"""Age in seconds above which waiting requests in a report are ignored: a request waits at most 55 s."""
_MOST_TASKS: Final = 100
_MOST_TEXT: Final = 200
_LONGEST_TASKS: Final = 8_000
"""Maximum number of characters, as JSON, of the tasks in a report; the newest tasks are kept."""
_LONGEST_QUEUES: Final = 4_000
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class LeaseWorker:
    """A worker that leased tasks from the task service within the last 10 minutes.

    Attributes:
        id: id of the worker, derived from key, name, process id and host.
        name: name that the worker gives; empty if it gives none.
        language: programming language that the worker reports, such as `php 8.3`.
        version: version that the worker gives of its program or library.
        pid: process id that the worker gives; None if it gives none.
        host: host name that the worker gives, or else the address from which its requests come.
        key_id: id of its API key.
        queues: queues of the worker's last poll, and queues of its leased tasks.
        parked: number of its long polls that wait for tasks.
        at_work: number of tasks that it has leased, at most 100.
        seen: time of its last request.
    """

    id: str
    name: str
    language: str
    version: str
    pid: int | None
    host: str
    key_id: str
    queues: tuple[str, ...]
    parked: int
    at_work: int
    seen: datetime

    @property
    def state(self) -> str:
        """State: `working` on tasks, `waiting` for tasks, or `away` if it does neither of these."""
        return "working" if self.at_work else "waiting" if self.parked else "away"


class HeldTask(NamedTuple):
    """A task that a worker has leased.

    Attributes:
        queue: queue of the task.
        task_id: the task's id.
        until: Unix second at which the lease ends.
    """

    queue: str
    task_id: str
    until: int


@dataclass(slots=True)
class LeaseWorkerReport:
    """Report of one instance of the task service about a worker. The instance updates it.

    For a worker that leased through another instance, only the id is known; the other strings are empty then.
    """

    id: str
    name: str = ""
    language: str = ""
    version: str = ""
    pid: int | None = None
    host: str = ""
    key_id: str = ""
    queues: tuple[str, ...] = ()
    parked: int = 0
    seen: float = 0.0
    """Unix time of the worker's last request."""
    tasks: dict[tuple[str, str], HeldTask] = field(default_factory=dict)
    """Tasks that it has leased or extended through this instance, by queue and id, the newest last."""

    def hold(self, task: HeldTask) -> None:
        """Record that the worker has leased a task, or extended its lease."""
        self.drop(task.queue, task.task_id)
        self.tasks[task.queue, task.task_id] = task

    def drop(self, queue: str, task_id: str) -> None:
        """Record that the worker does not hold a task any more. Idempotent."""
        self.tasks.pop((queue, task_id), None)


@lru_cache(maxsize=2_000)
def make_worker_id(key_id: str, name: str, pid: int | None, host: str) -> str:
    """Return the id of a worker, the same in all instances."""
    text = json.dumps([key_id, name, pid, host])
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def encode_report(report: LeaseWorkerReport) -> bytes:
    """Return the report on a worker as JSON of at most 16,000 bytes; the oldest tasks are left out."""
    newest = islice(reversed(report.tasks.values()), _MOST_TASKS)
    content = {
        "name": report.name[:_MOST_TEXT],
        "language": report.language[:_MOST_TEXT],
        "version": report.version[:_MOST_TEXT],
        "pid": report.pid,
        "host": report.host[:_MOST_TEXT],
        "key": report.key_id,
        "queues": _cut(report.queues, _LONGEST_QUEUES, lambda name: len(json.dumps(name))),
        "parked": report.parked,
        "seen": round(report.seen, 3),
        "tasks": _cut(newest, _LONGEST_TASKS, lambda one: len(json.dumps(one))),
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_report(worker_id: str, data: bytes) -> LeaseWorkerReport | None:
    """Decode a report from its JSON; return None for anything else."""
    try:
        content = json.loads(data)
        tasks = map(_decode_task, check_kind(content["tasks"], list))
        return LeaseWorkerReport(
            worker_id,
            **{name: check_kind(content[name], str) for name in ("name", "language", "version", "host")},
            pid=None if content["pid"] is None else check_kind(content["pid"], int),
            key_id=check_kind(content["key"], str),
            queues=tuple(check_kind(name, str) for name in check_kind(content["queues"], list)),
            parked=check_kind(content["parked"], int),
            seen=to_seconds(content["seen"]),
            tasks={(task.queue, task.task_id): task for task in tasks},
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def merge_reports(
    reports: Iterable[tuple[int, LeaseWorkerReport]], leased: Mapping[str, set[str]], now: float
) -> list[LeaseWorker]:
    """Return the workers of reports from several instances, by name, host and process.

    Args:
        reports: reports, each with the Unix second at which it was written.
        leased: ids of the tasks that are leased at present, by queue; all other reported tasks are left out.
        now: the present, in Unix seconds.
    """
    by_worker: dict[str, list[tuple[int, LeaseWorkerReport]]] = {}
    for at, report in reports:
        by_worker.setdefault(report.id, []).append((at, report))
    workers = [_merge(some, leased, now) for some in by_worker.values()]
    return sorted(workers, key=lambda one: (one.name, one.host, one.pid or 0, one.id))


def _merge(
    reports: list[tuple[int, LeaseWorkerReport]], leased: Mapping[str, set[str]], now: float
) -> LeaseWorker:
    """Merge the reports on one worker; the description is from the newest report that has one."""
    reports = sorted(reports, key=lambda one: (bool(one[1].key_id), one[1].seen), reverse=True)
    told = reports[0][1]
    tasks = {
        (task.queue, task.task_id)
        for _, report in reports
        for task in report.tasks.values()
        if task.until > now and task.task_id in leased.get(task.queue, ())
    }
    queues = dict.fromkeys((*told.queues, *sorted(queue for queue, _ in tasks)))
    return LeaseWorker(
        told.id,
        name=told.name,
        language=told.language,
        version=told.version,
        pid=told.pid,
        host=told.host,
        key_id=told.key_id,
        queues=tuple(queues),
        parked=sum(max(0, report.parked) for at, report in reports if at > now - _PARKED_SECONDS),
        at_work=min(len(tasks), _MOST_TASKS),
        seen=datetime.fromtimestamp(max(report.seen for _, report in reports), UTC),
    )


def _cut(items: Iterable[Any], most: int, measure: Any) -> list[Any]:
    """Return the first items, as long as their total length is at most `most` characters."""
    kept, left = [], most
    for one in items:
        left -= measure(one)
        if left < 0:
            break
        kept.append(one)
    return kept


def _decode_task(value: Any) -> HeldTask:
    queue, task_id, until = check_kind(value, list)
    return HeldTask(check_kind(queue, str), check_kind(task_id, str), check_kind(until, int))


async def report_lease_workers(
    operator: Operator, instance: str, reports: Sequence[LeaseWorkerReport]
) -> int:
    """Store an instance's reports on its workers for 10 minutes.

    This is not a verb of an operator: the service calls it every few seconds, without an audit entry.

    Args:
        operator: operator with which the instance reaches Redis.
        instance: id of the instance; its next report on a worker replaces this one.
        reports: reports on the workers that have changed.

    Returns:
        The number of reports that were not stored, because the table of reports in Redis is full.
    """
    named = [(f"{report.id}.{instance}", encode_report(report)) for report in reports]
    inspector = operator._inspector  # noqa: SLF001 - of this package
    return await inspector.run(write_reports(LEASE_WORKER_REPORTS, named, inspector.redis_now()))
