"""Retry back-off: delays between the attempts of a failed task."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from pyasynq._call_shape import takes
from pyasynq._checks import parse_seconds
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from pyasynq.options import Duration
    from pyasynq.task import Task

_FIRST_DELAY_SECONDS = 15
_JITTER_SECONDS = 30


class RetryDelay(Protocol):
    """A user's function that computes the delay before the next attempt."""

    def __call__(self, retried: int, error: BaseException, task: Task) -> Duration:
        """Return the delay before the next attempt; `retried` is the number of earlier retries of `task`."""


def default_retry_delay(retried: int, error: BaseException, task: Task) -> float:  # noqa: ARG001 - RetryDelay
    """Return Asynq's back-off in seconds: the fourth power of `retried`, plus 15 s and random jitter."""
    jitter = random.randrange(_JITTER_SECONDS)  # noqa: S311 - spreads load, guards nothing
    return float(retried**4 + _FIRST_DELAY_SECONDS + jitter * (retried + 1))


def make_retry_delay(rule: object) -> RetryDelay:
    """Return the retry delay function for the option `retry_delay`, a function or a constant duration.

    Raises:
        InvalidOptionError: for a value that is neither a function nor a duration.
    """
    if isinstance(rule, timedelta | int | float):
        seconds = parse_seconds("retry_delay", rule)
        return lambda retried, error, task: seconds  # noqa: ARG005 - RetryDelay
    if not callable(rule):
        remedy = "must be a function of retried, error and task, or a constant delay: a timedelta or seconds"
        raise InvalidOptionError("retry_delay", rule, remedy)
    return rule


def check_retry_delay(rule: object) -> None:
    """Check the option `retry_delay` where it is set, before a task needs it.

    Raises:
        InvalidOptionError: for a value that is neither a duration nor a function that takes three arguments.
    """
    if not takes(make_retry_delay(rule), 3):
        remedy = "must take three arguments, as in `lambda retried, error, task: 60`"
        raise InvalidOptionError("retry_delay", rule, remedy)
