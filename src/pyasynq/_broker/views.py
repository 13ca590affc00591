"""Plans whose results are what users see: queues, tasks and servers in the types of the ground floor."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pyasynq._broker import inspect_queues, inspect_tasks
from pyasynq._broker.plan import CommandCall, Plan, Replay
from pyasynq._broker.servers import ServerRecord, list_servers
from pyasynq._wire.keys import ALL_QUEUES
from pyasynq.errors import InvalidOptionError, QueueNotFoundError, UndecodableMessageError
from pyasynq.info import QueueInfo, ServerInfo, WorkerInfo
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant
    from pyasynq._wire.messages import WorkerInfo as WorkerRecord
    from pyasynq.task import TaskInfo

_LISTED_STATES: Final = tuple(state.value for state in TaskState if state is not TaskState.AGGREGATING)


def require_queue(queue: str) -> Plan[None]:
    """Raise `QueueNotFoundError` for a queue that no task was ever enqueued to."""
    if not (yield CommandCall(("SISMEMBER", ALL_QUEUES, queue), ALL_QUEUES, Replay.SAFE)):
        raise QueueNotFoundError(queue)


def queue_info(queue: str, *, now: Instant) -> Plan[QueueInfo]:
    """Describe a queue. Raises `QueueNotFoundError`."""
    yield from require_queue(queue)
    counts = (yield from inspect_queues.queue_info(queue, now))._asdict()
    latency = timedelta(seconds=counts.pop("latency"))
    return QueueInfo(**counts, latency=latency, timestamp=now.to_datetime())


def list_tasks(queue: str, state: str, *, page: int, page_size: int, now: Instant) -> Plan[list[TaskInfo]]:
    """Describe one page of the tasks of one state; messages that cannot be decoded are left out.

    Raises:
        InvalidOptionError: for a state that is none or is listed by group, and numbers below 1.
        QueueNotFoundError: when there is no such queue.
    """
    if state not in _LISTED_STATES:
        raise InvalidOptionError("state", state, f"must be one of {', '.join(_LISTED_STATES)}")
    for name, value in (("page", page), ("page_size", page_size)):
        if value < 1:
            raise InvalidOptionError(name, value, "must be at least 1")
    yield from require_queue(queue)
    start = page_size * (page - 1)
    records = yield from inspect_tasks.list_tasks(queue, TaskState(state), start, start + page_size)
    tasks = []
    for record in records:
        try:
            tasks.append(inspect_tasks.task_info(record, now))
        except UndecodableMessageError:
            continue
    return tasks


def task_info(queue: str, task_id: str, *, now: Instant) -> Plan[TaskInfo]:
    """Describe one task. Raises `QueueNotFoundError`, `TaskNotFoundError` and `UndecodableMessageError`."""
    yield from require_queue(queue)
    record = yield from inspect_tasks.get_task(queue, task_id)
    return inspect_tasks.task_info(record, now)


def servers() -> Plan[list[ServerInfo]]:
    """Describe the servers whose last record is still valid by Redis' clock."""
    records = yield from list_servers()
    return [_server_info(record) for record in records]


def _server_info(record: ServerRecord) -> ServerInfo:
    info = record.info
    return ServerInfo(
        id=info.server_id,
        host=info.host,
        pid=info.pid,
        status=info.status,
        concurrency=info.concurrency,
        queues=info.queues,
        strict_priority=info.strict_priority,
        started=info.start_time,
        active_workers=_workers(record.workers),
    )


def _workers(records: Sequence[WorkerRecord]) -> tuple[WorkerInfo, ...]:
    return tuple(
        WorkerInfo(
            task_id=record.task_id,
            task_type=record.task_type,
            queue=record.queue,
            payload=record.task_payload,
            started=record.start_time,
            deadline=record.deadline,
        )
        for record in records
    )
