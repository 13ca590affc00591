"""What a handler returns or raises to say what becomes of its task: `Snooze`, `Retry`, `Archive`, `Cancel`.

    if not report.ready:
        return Snooze(timedelta(minutes=5))
    try:
        ...
    except RateLimited as error:
        raise Retry(after=error.seconds, spend=False) from error

Returned and raised are the same: middleware sees both raised. They may be the cause of another error (`raise
LimitReached from Retry(30)`), and may stand in an exception group, where the one that ends most wins: Cancel,
Archive, Retry, any other error, Snooze.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyasynq._checks import check_switch, seconds_of
from pyasynq.errors import InvalidOptionError, PyasynqError

if TYPE_CHECKING:
    from pyasynq.options import Duration

_LONGEST_DAYS = 36_500


class ControlFlow(PyasynqError):  # noqa: N818 - no error
    """Base of what handlers return or raise to say what becomes of their task."""


class Snooze(ControlFlow):
    """Not yet: run the task again after the delay, however often.

    It is no failure: no retry is spent, nothing is counted, error and traceback of an earlier failure stay,
    and it does not run out, even with `max_retry=0`.

    Args:
        delay: until the next attempt, a `timedelta` or seconds, at most 36,500 days.

    Attributes:
        delay: in seconds.

    Raises:
        InvalidOptionError: for a delay that is negative, too long, or no duration.
    """

    def __init__(self, delay: Duration) -> None:
        self.delay = _delay_of("delay", delay)
        super().__init__(f"snoozed for {self.delay:g} s")


class Retry(ControlFlow):
    """This attempt failed: try again.

    The task's error becomes the reason; without one the error that this was raised from.

    Args:
        after: until the next attempt, a `timedelta` or seconds, at most 36,500 days; None for what
            `retry_delay` says.
        reason: becomes the task's error.
        spend: whether it spends a retry and counts as failed. With True the task is archived when no retry is
            left; with False never.

    Attributes:
        after: in seconds, or None.
        reason: as given.
        spend: as given.

    Raises:
        InvalidOptionError: for a delay that is negative, too long, or not a duration; for a switch that is
            not a bool, and a reason that is not text.
    """

    def __init__(self, after: Duration | None = None, *, reason: str = "", spend: bool = True) -> None:
        self.after = None if after is None else _delay_of("after", after)
        check_switch("spend", spend)
        self.spend = spend
        self.reason = _reason_of(reason)
        # Without a time: it stays the task's last error when no retry is left.
        super().__init__(reason or "the handler asked for a retry")


class Archive(ControlFlow):
    """Failed for good: archive the task now, whatever retries are left.

    Args:
        reason: becomes the task's error.

    Attributes:
        reason: as given.

    Raises:
        InvalidOptionError: for a reason that is no text.
    """

    def __init__(self, reason: str) -> None:
        self.reason = _reason_of(reason)
        super().__init__(reason or "archived by its handler")


class Cancel(ControlFlow):
    """Not wanted any more: the task is deleted, whatever its retention, and counts as processed.

    Args:
        reason: for logs and events; nothing is left of it in Redis.

    Attributes:
        reason: as given.

    Raises:
        InvalidOptionError: for a reason that is no text.
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = _reason_of(reason)
        super().__init__(reason)


Control: TypeAlias = Snooze | Retry | Archive | Cancel | ControlFlow
"""What a handler may return besides its result. Each is named: checkers take exact matches out of unions."""


def control_of(value: object) -> ControlFlow | None:
    """Return what a handler asks for by the value that it returned; None for an ordinary result.

    A class stands for its instance, as after `raise`: `return Cancel`.

    Raises:
        TypeError: for a class that needs an argument.
    """
    if isinstance(value, ControlFlow):
        return value
    if isinstance(value, type) and issubclass(value, ControlFlow):
        return value()
    return None


def _reason_of(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidOptionError("reason", value, "must be text")
    return value


def _delay_of(name: str, value: object) -> float:
    seconds = seconds_of(name, value)
    if seconds > _LONGEST_DAYS * 86_400:
        raise InvalidOptionError(name, value, f"must be at most {_LONGEST_DAYS:,} days")
    return seconds
