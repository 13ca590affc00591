"""Errors of waiting for tasks, and of their results."""

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.errors._base import PyasynqError


class WaitTimeoutError(PyasynqError, TimeoutError):
    """A task did not end within the time of the wait. The task itself continues.

    The cause is a `RedisError` if Redis could not be reached at the end.

    Attributes:
        queue: the queue's name.
        task_id: the id.
        seconds: duration of the wait.
    """

    def __init__(self, queue: str, task_id: str, seconds: float) -> None:
        super().__init__(f"task {task_id!r} in queue {queue!r} has not ended within {seconds:g} s")
        self.queue = queue
        self.task_id = task_id
        self.seconds = seconds


class ResultError(PyasynqError):
    """A task has no result; the subclass says why.

    Attributes:
        queue: the queue's name.
        task_id: the id.
    """

    def __init__(self, queue: str, task_id: str, reason: str) -> None:
        super().__init__(f"task {task_id!r} in queue {queue!r} {reason}")
        self.queue = queue
        self.task_id = task_id


class ResultNotKeptError(ResultError, LookupError):
    """The result is not there: the task has no retention, its retention is over, or it stored no result.

    The message says so if the handler returned something that could not be stored.
    """


class TaskFailedError(ResultError):
    """The task failed for good and is archived. It may still be run again by hand.

    Attributes:
        error: message of the task's last error; empty if the task was archived by hand before it failed.
    """

    def __init__(self, queue: str, task_id: str, error: str) -> None:
        super().__init__(queue, task_id, f"failed for good: {visible(error) or 'it was archived by hand'}")
        self.error = error


class TaskDeletedError(ResultError, LookupError):
    """The task was deleted before it could succeed: by hand, by `RevokeTask`, or by a cancellation.

    Aggregating a task with the rest of its group also deletes it.
    """


class UndecodableMessageError(PyasynqError, ValueError):
    """Bytes from Redis that cannot be decoded as the expected message.

    The text of the error does not show the bytes, since they may contain a payload.

    Attributes:
        kind: name of the message.
        data: the bytes as they are in Redis.
        reason: what is wrong with the bytes.
    """

    def __init__(self, kind: str, data: bytes, reason: str) -> None:
        super().__init__(f"cannot decode {counted(len(data), 'byte')} as {kind}: {reason}")
        self.kind = kind
        self.data = data
        self.reason = reason


class InvalidTextError(PyasynqError, ValueError):
    """A text cannot be written as UTF-8, because it contains half of a surrogate pair.

    Attributes:
        kind: name of the message.
        field: name of the field that has the text.
        text: the whole text.
    """

    def __init__(self, kind: str, field: str, text: str, position: int) -> None:
        super().__init__(
            f"{field} of {kind} is not valid Unicode: character {position} is {text[position]!a}, "
            "half of a surrogate pair; decode the text with errors='replace', or send bytes in the payload"
        )
        self.kind = kind
        self.field = field
        self.text = text
