"""Verdicts and causes of cancellation, and the errors that report them to a holder."""

from __future__ import annotations

from typing import Final

from pyasynq._broker.verdicts import Verdict
from pyasynq.errors import (
    AttemptSettledError,
    LeaseExpiredError,
    PyasynqError,
    TaskCanceledError,
    TaskTimeoutError,
    UnknownAttemptError,
)


class ServerStopping(Exception):  # noqa: N818 - a cause, not an error
    """Cause of the cancellation of an attempt by shutdown."""


_CANCELED: Final = "canceled-"
"""Prefix of the verdicts of cancelled attempts; the outcome follows."""


def build_verdict_error(verdict: Verdict | None, queue: str, task_id: str) -> PyasynqError:
    """Return the error that reports to a holder how its attempt ended; None means an unknown attempt."""
    if verdict is None:
        return UnknownAttemptError()
    if verdict is Verdict.TIMED_OUT:
        return TaskTimeoutError()
    if verdict is Verdict.LOST:
        return LeaseExpiredError()
    if verdict.by_holder:
        return AttemptSettledError(queue, task_id, verdict.value)
    return TaskCanceledError(verdict.removeprefix(_CANCELED))


def get_verdict(cause: BaseException | None) -> Verdict | None:
    """Return the verdict for the cause of a cancellation; None if Redis stores none."""
    if isinstance(cause, TaskTimeoutError):
        return Verdict.TIMED_OUT
    return Verdict(_CANCELED + cause.outcome) if isinstance(cause, TaskCanceledError) else None


def copy_cause(cause: BaseException) -> PyasynqError:
    """Return a copy of a cancellation's cause, to raise in the holder whose settle was ignored."""
    if isinstance(cause, TaskCanceledError):
        return TaskCanceledError(cause.outcome)
    return TaskTimeoutError() if isinstance(cause, TaskTimeoutError) else LeaseExpiredError()
