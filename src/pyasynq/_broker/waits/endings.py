"""Checks whether tasks have ended, and reads their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.inspecting.tasks import get_task
from pyasynq._broker.task_records import decode_task_info
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.constants import RESULT_DROPPED
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import (
    ResultNotKeptError,
    TaskDeletedError,
    TaskFailedError,
    TaskNotFoundError,
)
from pyasynq.task import FinishedTask, TaskEnd, TaskState

if TYPE_CHECKING:
    from pyasynq._clock import Clock
    from pyasynq.errors import ResultError
    from pyasynq.task import TaskInfo

ENDS: Final = {TaskState.COMPLETED: TaskEnd.COMPLETED, TaskState.ARCHIVED: TaskEnd.ARCHIVED}
"""Ends of tasks that still exist, by state: completed (until the retention ends) and archived."""

_FINAL: Final = {state.value.encode() for state in ENDS}
_COMPLETION_MARGIN: Final = 1.0
"""Seconds by which a retention may end early, since it is counted from a whole second."""


class TaskCheck(NamedTuple):
    """The result of checking a task: whether it exists, and its description if that was read."""

    exists: bool
    info: TaskInfo | None = None


def check_task(queue: str, task_id: str, *, briefly: bool, clock: Clock) -> Plan[TaskCheck]:
    """Check whether a task exists, and describe it; with `briefly`, describe it only if it has ended.

    Raises:
        UnknownTaskStateError: for an unknown state.
        UndecodableMessageError: for a message that cannot be decoded.
    """
    if briefly:
        key = queue_keys(queue).task(task_id)
        state = yield CommandCall(("HGET", key, "state"), key, Replay.SAFE)
        if state not in _FINAL:
            return TaskCheck(state is not None)
    try:
        record = yield from get_task(queue, task_id)
    except TaskNotFoundError:
        return TaskCheck(False)
    return TaskCheck(True, decode_task_info(record, clock.now()))


def classify_missing(retention: float | None, unseen: float) -> TaskEnd:
    """Return the outcome of a task that does not exist any more.

    Args:
        retention: seconds for which it is kept after success; None if unknown.
        unseen: seconds since a check last found the task, which had not ended.
    """
    if retention and unseen < retention - _COMPLETION_MARGIN:
        return TaskEnd.DELETED
    return TaskEnd.GONE


def decode_result(task: FinishedTask, retention: float | None) -> bytes | None:
    """Return the result of a task that has ended; None if its handler wrote none.

    `retention` is None if the task did not exist at the first check.

    Raises:
        ResultNotKeptError: it is gone, and may have succeeded; or its result could not be stored.
        TaskFailedError: it is archived.
        TaskDeletedError: it was deleted.
        TaskNotFoundError: it never existed.
    """
    if task.info is not None and task.end is TaskEnd.COMPLETED:
        if task.info.last_error.startswith(RESULT_DROPPED):
            raise ResultNotKeptError(task.queue, task.id, f"has succeeded, but {task.info.last_error}")
        return task.info.result
    if task.info is not None:
        raise TaskFailedError(task.queue, task.id, task.info.last_error)
    if task.end is TaskEnd.DELETED:
        raise _build_deleted_error(task.queue, task.id)
    if retention is None:
        raise TaskNotFoundError(task.queue, task.id)
    raise build_not_kept_error(task.queue, task.id, retention)


def build_missing_error(queue: str, task_id: str, retention: float, unseen: float) -> ResultError:
    """Return the error for the result of a task that does not exist any more; see `classify_missing`."""
    if classify_missing(retention, unseen) is TaskEnd.DELETED:
        return _build_deleted_error(queue, task_id)
    return build_not_kept_error(queue, task_id, retention)


def _build_deleted_error(queue: str, task_id: str) -> TaskDeletedError:
    return TaskDeletedError(queue, task_id, "was deleted before its result could be read")


def build_not_kept_error(queue: str, task_id: str, retention: float) -> ResultNotKeptError:
    """Return the error for a result that does not exist and cannot come any more."""
    if retention:
        reason = f"is gone: it succeeded more than {retention:g} s ago, or it was deleted"
    else:
        reason = (
            "keeps no result: set how long it is kept, as in @app.task(..., result_ttl=60) "
            "or with the option retention=60"
        )
    return ResultNotKeptError(queue, task_id, reason)
