"""Looking at tasks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import MAX_BYTES, MAX_TASKS
from pyasynq._broker.plan import Plan, Replay, Reply, ScriptCall
from pyasynq._broker.scores import whole_second
from pyasynq._broker.scripts import INSPECT_GET_TASK, INSPECT_LIST_TASKS
from pyasynq._broker.stored import number_of, shown
from pyasynq._clock import LAST_SECOND
from pyasynq._wire.history import decode_attempts, decode_progress
from pyasynq._wire.keys import QueueKeys, queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.errors import TaskNotFoundError, UndecodableMessageError, UnknownTaskStateError
from pyasynq.task import TaskInfo, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyasynq._clock import Instant
    from pyasynq._wire.messages import TaskMessage

_FIRST_SECOND: Final = -62_135_596_800  # the year 1
_STATES: Final = {state.value.encode(): state for state in TaskState}


class TaskRecord(NamedTuple):
    """What Redis holds of one task.

    Attributes:
        id: the task's id.
        message: the bytes of its message, not decoded.
        state: where it is.
        score: of a scheduled, retry, archived or completed task, Unix time: when it is due, when it was
            archived, when it will be deleted; of an active one, when its lease ends; of one listed by its
            group, when it joined. None for others.
        result: what its handler wrote.
        crashes: how many workers have died with it.
        trace: the traceback of its last failure.
        token: of the attempt that runs it, `<server id>/<call>`; None for one of a server in Go.
        pending_since: Unix time in nanoseconds, as text.
        progress: what its handler said last, as JSON.
        attempts: those that did not succeed, as JSON; None in lists.
    """

    id: str
    message: bytes
    state: TaskState
    score: int | None
    result: bytes | None
    crashes: int
    trace: bytes | None
    token: str | None = None
    pending_since: bytes | None = None
    progress: bytes | None = None
    attempts: bytes | None = None


class Scanned(NamedTuple):
    """Part of a collection: the tasks found in it, and how many of its positions were looked at."""

    records: list[TaskRecord]
    positions: int


def collection_key(keys: QueueKeys, state: TaskState, group: str = "") -> str:
    """Return the key of the collection in which tasks of this state are, or those of a group."""
    return keys.group(group) if state is TaskState.AGGREGATING else str(getattr(keys, state.value))


def scan_tasks(
    queue: str, state: TaskState, start: int, stop: int, *, group: str = "", texts: Sequence[bytes] = ()
) -> Plan[Scanned]:
    """Return the tasks of a state from position `start` to before `stop` whose messages contain all `texts`.

    Pending and active ones come in the order in which they are or were taken, the others by their score.
    Ids without a task, and tasks in a state that we do not know, are left out. A call looks at up to 1,000
    positions, and replies with about 4 MB at most.
    """
    keys = queue_keys(queue)
    collection = collection_key(keys, state, group)
    records: list[TaskRecord] = []
    position = start
    while position < stop:
        end = min(stop, position + MAX_TASKS)
        looked_at, more, *found = yield ScriptCall(
            INSPECT_LIST_TASKS,
            (collection, keys.lease),
            (keys.task_prefix, position, end - 1, MAX_BYTES, *texts),
            Replay.SAFE,
        )
        records += [read_record(values) for values in found if values[2] in _STATES]
        position += looked_at
        if not more:
            break
    return Scanned(records, position - start)


def list_tasks(
    queue: str, state: TaskState, start: int, stop: int, *, group: str = ""
) -> Plan[list[TaskRecord]]:
    """Return the tasks of one state, or of one group, from position `start` to before `stop`."""
    return (yield from scan_tasks(queue, state, start, stop, group=group)).records


def get_task(queue: str, task_id: str) -> Plan[TaskRecord]:
    """Return one task.

    Raises:
        TaskNotFoundError: when there is none with this id in the queue.
        UnknownTaskStateError: when its state is a word that we do not know.
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
    if reply[2] not in _STATES:
        raise UnknownTaskStateError(queue, task_id, reply[2].decode("utf-8", "replace"))
    return read_record(reply)


def read_record(values: Reply) -> TaskRecord:
    """Return what a script found of one task.

    Raises:
        KeyError: for a state that is a word that we do not know.
    """
    task_id, message, state, score, result, crashes, trace, token, *more = values
    return TaskRecord(
        shown(task_id),
        message,
        _STATES[state],
        None if score is None else whole_second(score),
        result,
        number_of(crashes),
        trace,
        None if token is None else shown(token),
        *more,
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
        timeout=_duration(message.timeout) if message.timeout else None,
        deadline=_time(message.deadline),
        next_process_at=due,
        retention=_duration(message.retention),
        headers=dict(message.headers),
        group=message.group_key,
        last_error=message.error_msg,
        last_failed_at=_time(message.last_failed_at),
        completed_at=_time(message.completed_at),
        result=record.result,
        is_orphaned=is_active and (record.score is None or record.score <= now.seconds),
        lease_expires_at=_time(record.score) if is_active else None,
        server_id=(record.token or "").partition("/")[0] if is_active else "",
        crashes=record.crashes,
        traceback=(record.trace or b"").decode("utf-8", "replace"),
        attempts=decode_attempts(record.attempts),
        progress=decode_progress(record.progress),
        in_state_since=_in_state_since(record, message),
    )


def task_infos(records: Iterable[TaskRecord], now: Instant) -> Iterator[TaskInfo]:
    """Describe tasks; those whose message cannot be decoded are left out."""
    for record in records:
        try:
            yield task_info(record, now)
        except UndecodableMessageError:
            continue


def _in_state_since(record: TaskRecord, message: TaskMessage) -> datetime | None:
    if record.state is TaskState.PENDING:
        nanoseconds = number_of(record.pending_since)
        return _time(nanoseconds / 10**9)
    if record.state is TaskState.RETRY:
        return _time(message.last_failed_at)
    if record.state is TaskState.COMPLETED:
        return _time(message.completed_at)
    is_dated = record.state in {TaskState.ARCHIVED, TaskState.AGGREGATING}
    return _time(record.score) if is_dated else None


def _time(seconds: float | None) -> datetime | None:
    # Go takes times that no datetime can hold; the first and last one that can are as good.
    return datetime.fromtimestamp(_within(seconds), UTC) if seconds else None


def _duration(seconds: int) -> timedelta:
    return timedelta(seconds=_within(seconds))


def _within(seconds: float) -> float:
    return max(_FIRST_SECOND, min(seconds, LAST_SECOND))
