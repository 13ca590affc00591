"""Looking at tasks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.plan import Plan, Replay, Reply, ScriptCall
from pyasynq._broker.scores import whole_second
from pyasynq._broker.scripts import INSPECT_GET_TASK, INSPECT_LIST_TASKS
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.errors import TaskNotFoundError
from pyasynq.task import TaskInfo, TaskState

if TYPE_CHECKING:
    from pyasynq._clock import Instant


_LAST_SECOND: Final = 253_402_300_799  # of the year 9999


class TaskRecord(NamedTuple):
    """What Redis holds of one task.

    Attributes:
        id: the task's id.
        message: the bytes of its message, not decoded.
        state: where it is.
        score: of a scheduled, retry, archived or completed task, Unix time: when it is due, when it was
            archived, when it will be deleted; of an active one, when its lease ends. None for others.
        result: what its handler wrote.
        crashes: how many workers have died with it.
        trace: the traceback of its last failure.
        token: of the attempt that runs it, `<server id>/<call>`; None for one of a server in Go.
    """

    id: str
    message: bytes
    state: TaskState
    score: int | None
    result: bytes | None
    crashes: int
    trace: bytes | None
    token: str | None = None


def list_tasks(queue: str, state: TaskState, start: int, stop: int) -> Plan[list[TaskRecord]]:
    """Return the tasks of one state, from position `start` to before `stop`.

    Pending and active ones come in the order in which they are or were taken, the others by their score.
    Ids without a task are left out. Aggregating tasks are not listed here, but by their group.
    """
    keys = queue_keys(queue)
    collection = {
        TaskState.PENDING: keys.pending,
        TaskState.ACTIVE: keys.active,
        TaskState.SCHEDULED: keys.scheduled,
        TaskState.RETRY: keys.retry,
        TaskState.ARCHIVED: keys.archived,
        TaskState.COMPLETED: keys.completed,
    }[state]
    if stop <= start:
        return []
    reply = yield ScriptCall(
        INSPECT_LIST_TASKS,
        (collection, keys.lease),
        (keys.task_prefix, start, stop - 1),
        Replay.SAFE,
    )
    fields = iter(reply)
    return [_record(values) for values in zip(*[fields] * len(TaskRecord._fields), strict=True)]


def get_task(queue: str, task_id: str) -> Plan[TaskRecord]:
    """Return one task.

    Raises:
        TaskNotFoundError: when there is none with this id in the queue.
    """
    keys = queue_keys(queue)
    reply = yield ScriptCall(
        INSPECT_GET_TASK,
        (keys.task(task_id), keys.lease, keys.scheduled, keys.retry, keys.archived, keys.completed),
        (task_id,),
        Replay.SAFE,
    )
    if not reply:
        raise TaskNotFoundError(queue, task_id)
    return _record(reply)


def _record(values: Reply) -> TaskRecord:
    task_id, message, state, score, result, crashes, trace, token = values
    return TaskRecord(
        task_id.decode(),
        message,
        TaskState(state.decode()),
        None if score is None else whole_second(score),
        result,
        int(crashes or 0),
        trace,
        None if token is None else token.decode(),
    )


def task_info(record: TaskRecord, now: Instant) -> TaskInfo:
    """Describe a task as users see it; a pending one is due `now`.

    Raises:
        UndecodableMessageError: for a message that is none.
    """
    message = decode_task_message(record.message)
    due = None
    if record.state is TaskState.PENDING:
        due = now.to_datetime()
    elif record.state in {TaskState.SCHEDULED, TaskState.RETRY}:
        due = _time(record.score)
    is_active = record.state is TaskState.ACTIVE
    return TaskInfo(
        id=record.id,
        queue=message.queue,
        type=message.type,
        payload=message.payload,
        state=record.state,
        max_retry=message.retry,
        retried=message.retried,
        timeout=timedelta(seconds=message.timeout) if message.timeout else None,
        deadline=_time(message.deadline),
        next_process_at=due,
        retention=timedelta(seconds=message.retention),
        headers=dict(message.headers),
        group=message.group_key,
        last_error=message.error_msg,
        last_failed_at=_time(message.last_failed_at),
        completed_at=_time(message.completed_at),
        result=record.result,
        is_orphaned=is_active and (record.score is None or record.score <= now.seconds),
        lease_expires_at=_time(record.score) if is_active else None,
        server_id=(record.token or "").partition("/")[0] if is_active else "",
    )


def _time(seconds: int | None) -> datetime | None:
    # Go takes times that no datetime can hold; the last one that can is as good as never.
    return datetime.fromtimestamp(min(seconds, _LAST_SECOND), UTC) if seconds else None
