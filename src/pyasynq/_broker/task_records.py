"""Tasks as stored in Redis, and their description for users."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.stored import display_name, parse_number, whole_second
from pyasynq._clock import LAST_SECOND
from pyasynq._wire.history import decode_attempts, decode_progress
from pyasynq._wire.messages import decode_task_message
from pyasynq.errors import UndecodableMessageError
from pyasynq.task import TaskInfo, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Reply
    from pyasynq._wire.messages import TaskMessage

STATES: Final = {state.value.encode(): state for state in TaskState}
"""The known states, by their names in Redis."""

_FIRST_SECOND: Final = -62_135_596_800  # the year 1


class TaskRecord(NamedTuple):
    """The stored fields of one task.

    Attributes:
        id: the task's id.
        message: the bytes of its message, not decoded.
        state: its state.
        score: score of a scheduled, retry, archived or completed task, Unix time: when it is due, when it was
            archived, when it will be deleted; of an active one, when its lease ends; of one listed by its
            group, when it joined. None for others.
        result: written by its handler.
        crashes: number of workers that have died with it.
        trace: the traceback of its last failure.
        token: token of the attempt that runs it, `<server id>/<call>`; None for a Go server's.
        pending_since: Unix time in nanoseconds, as text.
        progress: last reported by its handler, as JSON.
        attempts: the unsuccessful ones, as JSON; None in lists.
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


def read_record(values: Reply) -> TaskRecord:
    """Decode a script's reply about one task.

    Raises:
        KeyError: for an unknown state.
    """
    task_id, message, state, score, result, crashes, trace, token, *more = values
    return TaskRecord(
        display_name(task_id),
        message,
        STATES[state],
        None if score is None else whole_second(score),
        result,
        parse_number(crashes),
        trace,
        None if token is None else display_name(token),
        *more,
    )


class DecodedTask(NamedTuple):
    """A stored task with its message decoded.

    Reports use it instead of `TaskInfo`, which takes ten times as long to make.
    """

    record: TaskRecord
    message: TaskMessage

    @property
    def in_state_since(self) -> datetime | None:
        """When the task came into its state; None if Redis does not store that."""
        record, message = self
        if record.state is TaskState.PENDING:
            nanoseconds = parse_number(record.pending_since)
            return _time(nanoseconds / 10**9)
        if record.state is TaskState.RETRY:
            return _time(message.last_failed_at)
        if record.state is TaskState.COMPLETED:
            return _time(message.completed_at)
        is_dated = record.state in {TaskState.ARCHIVED, TaskState.AGGREGATING}
        return _time(record.score) if is_dated else None

    @property
    def last_failed_at(self) -> datetime | None:
        """When its last attempt failed; None if none has failed."""
        return _time(self.message.last_failed_at)

    def describe(self, now: Instant) -> TaskInfo:
        """Describe the task for users; a pending one is due `now`."""
        record, message = self
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
            last_failed_at=self.last_failed_at,
            completed_at=_time(message.completed_at),
            result=record.result,
            is_orphaned=is_active and (record.score is None or record.score <= now.seconds),
            lease_expires_at=_time(record.score) if is_active else None,
            server_id=(record.token or "").partition("/")[0] if is_active else "",
            crashes=record.crashes,
            traceback=(record.trace or b"").decode("utf-8", "replace"),
            attempts=decode_attempts(record.attempts),
            progress=decode_progress(record.progress),
            in_state_since=self.in_state_since,
            expires_at=_time(record.score) if record.state is TaskState.COMPLETED else None,
            unique_key=message.unique_key,
        )


def decode_task(record: TaskRecord) -> DecodedTask:
    """Decode the message of a task.

    Raises:
        UndecodableMessageError: for a message that cannot be decoded.
    """
    return DecodedTask(record, decode_task_message(record.message))


def decode_task_info(record: TaskRecord, now: Instant) -> TaskInfo:
    """Describe a task for users; a pending one is due `now`.

    Raises:
        UndecodableMessageError: for a message that cannot be decoded.
    """
    return decode_task(record).describe(now)


def decode_records(records: Iterable[TaskRecord]) -> Iterator[DecodedTask]:
    """Decode the messages of tasks; skip those that cannot be decoded."""
    for record in records:
        try:
            yield decode_task(record)
        except UndecodableMessageError:
            continue


def decode_task_infos(records: Iterable[TaskRecord], now: Instant) -> Iterator[TaskInfo]:
    """Describe tasks; skip those whose message cannot be decoded."""
    return (task.describe(now) for task in decode_records(records))


def _time(seconds: float | None) -> datetime | None:
    # Go accepts times that no datetime can hold; use the first or last possible one instead.
    return datetime.fromtimestamp(_within(seconds), UTC) if seconds else None


def _duration(seconds: int) -> timedelta:
    return timedelta(seconds=_within(seconds))


def _within(seconds: float) -> float:
    return max(_FIRST_SECOND, min(seconds, LAST_SECOND))
