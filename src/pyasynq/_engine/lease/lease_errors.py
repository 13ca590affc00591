"""Verdicts and causes of cancellation, and the errors that tell a holder of them."""

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

_CANCELED: Final = "canceled-"
"""The beginning of the verdicts of cancelled attempts; the outcome follows."""


def error_of(verdict: Verdict | None, queue: str, task_id: str) -> PyasynqError:
    """Return the error that tells a holder how its attempt ended; None for an unknown one."""
    if verdict is None:
        return UnknownAttemptError()
    if verdict is Verdict.TIMED_OUT:
        return TaskTimeoutError()
    if verdict is Verdict.LOST:
        return LeaseExpiredError()
    if verdict.by_holder:
        return AttemptSettledError(queue, task_id, verdict.value)
    return TaskCanceledError(verdict.removeprefix(_CANCELED))


def verdict_of(cause: BaseException | None) -> Verdict | None:
    """Return the verdict that the cause of a cancellation means; None for one that Redis is not told."""
    if isinstance(cause, TaskTimeoutError):
        return Verdict.TIMED_OUT
    return Verdict(_CANCELED + cause.outcome) if isinstance(cause, TaskCanceledError) else None


def told(cause: BaseException) -> PyasynqError:
    """Return the error that tells a holder why his word does not count."""
    if isinstance(cause, TaskCanceledError):
        return TaskCanceledError(cause.outcome)
    return TaskTimeoutError() if isinstance(cause, TaskTimeoutError) else LeaseExpiredError()
