"""Control values, by which a handler decides about its task: `Snooze`, `Retry`, `Archive`, `Cancel`.

    if not report.ready:
        return Snooze(timedelta(minutes=5))
    try:
        ...
    except RateLimited as error:
        raise Retry(after=error.seconds, spend=False) from error

Returning a control value is the same as raising it: middleware sees an exception in both cases. A control
value may be the cause of another error (`raise LimitReached from Retry(30)`), or be in an exception group. In
a group, the most final one wins, in this order: Cancel, Archive, Retry, any other error, Snooze.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyasynq._checks import check_switch, parse_seconds
from pyasynq.errors import InvalidOptionError, PyasynqError, RevokeTask, SkipRetry

if TYPE_CHECKING:
    from pyasynq.options import Duration

_LONGEST_DAYS = 36_500


class ControlFlow(PyasynqError):  # noqa: N818 - not an error
    """Base of the objects that handlers return or raise to control their task."""


class Snooze(ControlFlow):
    """Not yet: run the task again after the delay, any number of times.

    It is not a failure: no retry is spent, nothing is counted, error and traceback of an earlier failure
    stay, and the number of snoozes is not limited, even with `max_retry=0`.

    Args:
        delay: time until the next attempt, a `timedelta` or seconds, at most 36,500 days.

    Attributes:
        delay: delay in seconds.

    Raises:
        InvalidOptionError: for a delay that is negative, too long, or not a duration.
    """

    def __init__(self, delay: Duration) -> None:
        self.delay = _parse_delay("delay", delay)
        super().__init__(f"snoozed for {self.delay:g} s")


class Retry(ControlFlow):
    """This attempt failed: try again.

    The reason becomes the task's error. Without a reason, the cause becomes it: `raise Retry() from error`.

    Args:
        after: time until the next attempt, a `timedelta` or seconds, at most 36,500 days. None uses
            `retry_delay`.
        reason: becomes the task's error.
        spend: whether it spends a retry and counts as failed. With True the task is archived when no retry is
            left; with False never.

    Attributes:
        after: delay in seconds, or None.
        reason: as given.
        spend: as given.

    Raises:
        InvalidOptionError: for a delay that is negative, too long, or not a duration; for a `spend` that is
            not a bool, and for a `reason` that is not text.
    """

    def __init__(self, after: Duration | None = None, *, reason: str = "", spend: bool = True) -> None:
        self.after = None if after is None else _parse_delay("after", after)
        check_switch("spend", spend)
        self.spend = spend
        self.reason = _check_reason(reason)
        # The text names no time, because it remains the task's last error when no retry is left.
        super().__init__(reason or "the handler asked for a retry")


class Archive(ControlFlow):
    """Failed for good: move the task to the archive (dead letter queue) now, even if retries are left.

    Args:
        reason: becomes the task's error.

    Attributes:
        reason: as given.

    Raises:
        InvalidOptionError: for a reason that is not text.
    """

    def __init__(self, reason: str) -> None:
        self.reason = _check_reason(reason)
        super().__init__(reason or "archived by its handler")


class Cancel(ControlFlow):
    """Not wanted any more: the task is deleted, regardless of its retention, and counts as processed.

    Args:
        reason: text for logs and events; it is not stored in Redis.

    Attributes:
        reason: as given.

    Raises:
        InvalidOptionError: for a reason that is not text.
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = _check_reason(reason)
        super().__init__(reason)


Control: TypeAlias = Snooze | Retry | Archive | Cancel | ControlFlow
"""Type of the control values that a handler may return. Type checkers need the name of each class."""


def is_control(error: BaseException) -> bool:
    """Return whether an error decides about its task instead of reporting a failure.

    These are `Snooze`, `Retry`, `Archive` and `Cancel`, and Asynq's `SkipRetry` and `RevokeTask`. For
    middleware and hooks.
    """
    return isinstance(error, ControlFlow | SkipRetry | RevokeTask)


def find_control(value: object) -> ControlFlow | None:
    """Return the control value that a handler returned; None for an ordinary result.

    A handler may also return the class (`return Cancel`), as `raise Cancel` may name the class.

    Raises:
        TypeError: for a class that needs an argument.
    """
    if isinstance(value, ControlFlow):
        return value
    if isinstance(value, type) and issubclass(value, ControlFlow):
        return value()
    return None


def _check_reason(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidOptionError("reason", value, "must be text")
    return value


def _parse_delay(name: str, value: object) -> float:
    seconds = parse_seconds(name, value)
    if seconds > _LONGEST_DAYS * 86_400:
        raise InvalidOptionError(name, value, f"must be at most {_LONGEST_DAYS:,} days")
    return seconds
