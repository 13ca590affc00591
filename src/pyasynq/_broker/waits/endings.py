"""Looking whether tasks have ended, and what may be said of the result of one that has."""

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
"""The states in which nothing more becomes of a task by itself."""

_FINAL: Final = {state.value.encode() for state in ENDS}
_COMPLETION_MARGIN: Final = 1.0
"""Seconds by which a retention may end early, since it is counted from a whole second."""


class Look(NamedTuple):
    """What a task was found to be: whether it is there, and with `info` more than that."""

    exists: bool
    info: TaskInfo | None = None


def look(queue: str, task_id: str, *, briefly: bool, clock: Clock) -> Plan[Look]:
    """Look at a task; `briefly` tells nothing of one that has not ended, but that it is there.

    Raises:
        UnknownTaskStateError: when its state is a word that we do not know.
        UndecodableMessageError: when its message is none.
    """
    if briefly:
        key = queue_keys(queue).task(task_id)
        state = yield CommandCall(("HGET", key, "state"), key, Replay.SAFE)
        if state not in _FINAL:
            return Look(state is not None)
    try:
        record = yield from get_task(queue, task_id)
    except TaskNotFoundError:
        return Look(False)
    return Look(True, decode_task_info(record, clock.now()))


def end_of_missing(retention: float | None, unseen: float) -> TaskEnd:
    """Return how a task ended that is no longer there.

    Args:
        retention: seconds that it is kept after success; None if that is not known.
        unseen: seconds since it was last there and had not ended.
    """
    if retention and unseen < retention - _COMPLETION_MARGIN:
        return TaskEnd.DELETED
    return TaskEnd.GONE


def decode_result(task: FinishedTask, retention: float | None) -> bytes | None:
    """Return the result of a task that has ended; None if its handler wrote none.

    `retention` is None when the task was not there at the first look.

    Raises:
        ResultNotKeptError: it is gone, and may have succeeded; or its result could not be stored.
        TaskFailedError: it is archived.
        TaskDeletedError: it was deleted.
        TaskNotFoundError: it was never there.
    """
    if task.info is not None and task.end is TaskEnd.COMPLETED:
        if task.info.last_error.startswith(RESULT_DROPPED):
            raise ResultNotKeptError(task.queue, task.id, f"has succeeded, but {task.info.last_error}")
        return task.info.result
    if task.info is not None:
        raise TaskFailedError(task.queue, task.id, task.info.last_error)
    if task.end is TaskEnd.DELETED:
        raise _deleted(task.queue, task.id)
    if retention is None:
        raise TaskNotFoundError(task.queue, task.id)
    raise not_kept(task.queue, task.id, retention)


def error_of_missing(queue: str, task_id: str, retention: float, unseen: float) -> ResultError:
    """Return the error for the result of a task that is no longer there; see `end_of_missing`."""
    if end_of_missing(retention, unseen) is TaskEnd.DELETED:
        return _deleted(queue, task_id)
    return not_kept(queue, task_id, retention)


def _deleted(queue: str, task_id: str) -> TaskDeletedError:
    return TaskDeletedError(queue, task_id, "was deleted before its result could be read")


def not_kept(queue: str, task_id: str, retention: float) -> ResultNotKeptError:
    """Return the error for a result that is not there and cannot come any more."""
    if retention:
        reason = f"is gone: it succeeded more than {retention:g} s ago, or it was deleted"
    else:
        reason = (
            "keeps no result: set how long it is kept, as in @app.task(..., result_ttl=60) "
            "or with the option retention=60"
        )
    return ResultNotKeptError(queue, task_id, reason)
