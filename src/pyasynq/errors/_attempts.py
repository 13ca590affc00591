"""Errors that handlers raise, or that end an attempt."""

from typing import TYPE_CHECKING

from pyasynq.errors._base import PyasynqError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable


class SkipRetry(PyasynqError):  # noqa: N818 - Asynq's word
    """Raised by a handler (or wrapped as a cause): archive the task now, even if retries are left."""


class RevokeTask(PyasynqError):  # noqa: N818 - Asynq's word
    """Raised by a handler (or wrapped as a cause): drop the task; no retry, no archive, no trace."""


class HandlerNotFoundError(PyasynqError, LookupError):
    """No handler is registered for the task's type; the message suggests the nearest one.

    Attributes:
        task_type: the type.
        words: message of this error in Asynq (Go), which is written to Redis.
    """

    def __init__(self, task_type: str, known: "Iterable[str]" = ()) -> None:
        self.words = f'handler not found for task "{task_type}"'
        super().__init__(self.words + nearest(task_type, known))
        self.task_type = task_type


class TaskTimeoutError(PyasynqError, TimeoutError):
    """The attempt reached its timeout or deadline. A note shows the stack of the handler, if it is known.

    Attributes:
        limit: time that the attempt had, in seconds; None if unknown.
        place: file, line and function of the innermost frame of the handler; empty if unknown.
        words: message of this error in Asynq (Go), which is written to Redis.
        is_deadline: True if the task's `deadline` was reached, False if its `timeout` was.
    """

    def __init__(self, limit: float | None = None, place: str = "", *, is_deadline: bool = False) -> None:
        self.words = "context deadline exceeded"
        self.is_deadline = is_deadline
        after = "" if limit is None else f" after {max(0.0, limit):g} s"
        super().__init__(self.words + after + (f" at {place}" if place else ""))
        self.limit = limit
        self.place = place


class TaskCanceledError(PyasynqError):
    """The attempt was cancelled through the inspector, the dashboard or the command line.

    Attributes:
        outcome: what happens to the task: `"retry"`, `"archive"` or `"delete"`.
    """

    def __init__(self, outcome: str = "retry") -> None:
        super().__init__("context canceled")
        self.outcome = outcome


class LeaseExpiredError(PyasynqError):
    """The attempt's lease lapsed or went to another worker; this attempt may no longer settle the task."""

    def __init__(self) -> None:
        super().__init__("asynq: task lease expired")


class UnknownAttemptError(LeaseExpiredError):
    """Redis has no record of the attempt: it was settled or lost too long ago, or never existed."""

    def __init__(self) -> None:
        PyasynqError.__init__(self, "unknown: settled or lost more than 60 s ago")


class AttemptSettledError(PyasynqError):
    """The attempt was settled before, and its outcome cannot be changed.

    Attributes:
        queue: the queue's name.
        task_id: the id.
        verdict: how a leased attempt was settled: `"done"`, `"retry"`, `"snooze"`, `"archive"`, `"cancel"`,
            `"requeue"` or `"crashed"`; empty for other attempts.
    """

    def __init__(self, queue: str, task_id: str, verdict: str = "") -> None:
        before = f"settled before, as {verdict!r}" if verdict else "settled before"
        super().__init__(f"this attempt at task {task_id!r} of queue {queue!r} was {before}")
        self.queue = queue
        self.task_id = task_id
        self.verdict = verdict


class ReportedError(PyasynqError):
    """A failure of a task that another process ran and reported, perhaps in another language."""


class SettleError(PyasynqError):
    """The outcome of an attempt cannot be written. This counts as an ordinary failure of its task.

    Either the outcome could not be computed, or Redis refuses it for good; `__cause__` is the original error.
    """


class RemoteError(PyasynqError):
    """Replacement for an error from a child process whose class the worker cannot import or construct.

    Attributes:
        type_name: name of the class with its module, such as `shop.errors.CardDeclined`.
        text: message of the error.
    """

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(text)
        self.type_name = type_name
        self.text = text


class ChildProcessDiedError(PyasynqError):
    """The child process of a task ended before its handler did. This is an ordinary failure of the task.

    Attributes:
        exit_code: exit code of the process; None when a signal ended it.
        signal: name of the signal, such as `SIGSEGV`; None if there was none.
    """

    def __init__(self, exit_code: int | None, signal: str | None, reason: str = "") -> None:
        if reason:
            text = f"was killed: {reason}"
        elif signal is None:
            text = f"ended with exit code {exit_code}"
        else:
            hint = ", as the kernel does when memory runs out" if signal == "SIGKILL" else ""
            text = f"was killed by {signal}{hint}"
        super().__init__(f"the child process that ran the handler {text}")
        self.exit_code = exit_code
        self.signal = signal


class WorkerDiedError(PyasynqError):
    """The worker that ran a task has died: killed, out of memory, or its host is gone. Hooks receive it.

    Attributes:
        server_id: id of the worker; `unknown` if the worker has left no trace.
        crashes: number of workers that have died while they ran the task.
    """

    def __init__(self, server_id: str, crashes: int) -> None:
        super().__init__(f"the worker that ran the task has died (server {server_id}, crash {crashes})")
        self.server_id = server_id
        self.crashes = crashes


class SemaphoreFullError(PyasynqError):
    """All tokens of a semaphore are taken; try again later.

    Attributes:
        scope: the semaphore's name.
        max_tokens: number of tokens of the semaphore.
    """

    def __init__(self, scope: str, max_tokens: int) -> None:
        super().__init__(f"semaphore {scope!r}: all {max_tokens} tokens are taken")
        self.scope = scope
        self.max_tokens = max_tokens


class SemaphoreNotHeldError(PyasynqError):
    """A task released a semaphore token that it does not hold, or whose deadline has passed.

    Attributes:
        scope: the semaphore's name.
        task_id: id of the task.
    """

    def __init__(self, scope: str, task_id: str) -> None:
        super().__init__(f"semaphore {scope!r}: task {task_id!r} holds no token")
        self.scope = scope
        self.task_id = task_id
