"""Endings of attempts and decisions about their tasks. `decide` is pure: no clock, no Redis, no waiting."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from pyasynq import control
from pyasynq._clock import Instant
from pyasynq._engine.handlers.routes import result_bytes
from pyasynq._engine.lease.lease_errors import ServerStopping
from pyasynq.errors import (
    LeaseExpiredError,
    ReportedError,
    ResultTooLargeError,
    RevokeTask,
    SkipRetry,
    TaskCanceledError,
)
from pyasynq.events import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq._engine.handlers.routes import AttemptRules
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._wire.messages import TaskMessage


# The endings of an attempt.


class Succeeded(NamedTuple):
    """The handler returned."""

    result: bytes | None


class Failed(NamedTuple):
    """The handler raised, timed out, was cancelled, or returned a control value.

    Attributes:
        is_unhandled: this server has no handler for the type and leaves the task to others.
    """

    error: BaseException
    is_unhandled: bool = False


class Unfinished(NamedTuple):
    """The attempt was interrupted, and the task is put back as if it had not been taken.

    Attributes:
        crash: why the worker crashed, as the attempt's holder reported. A crash counts towards the crash
            limit. None if there was none.
        is_lost: another worker has the task now.
    """

    crash: str | None = None
    is_lost: bool = False


NO_RESULT: Final = Succeeded(None)


Ending: TypeAlias = Succeeded | Failed | Unfinished


Action: TypeAlias = Literal["done", "complete", "retry", "snooze", "archive", "requeue", "let go"]
"""Change to a task whose attempt has ended.

done: delete it. complete: keep it until it expires. retry: run it again. snooze: run it again, without a
failure. archive: it failed permanently. requeue: back to the front of the queue. let go: write nothing.
"""


class Decision(NamedTuple):
    """Decision about the task of an attempt that has ended.

    One class for all actions: outcomes are grouped and sent by action, and unused fields keep their defaults.

    Attributes:
        outcome: the outcome that events report.
        at: the end of the attempt, when this was decided.
        due_at: Unix time at which a retried or snoozed task runs again, or a completed one expires.
        is_failure: whether a retry counts as a failure and uses up one retry.
        result: stored with a completed task.
    """

    action: Action
    outcome: Outcome
    at: Instant = Instant(0)
    due_at: int = 0
    is_failure: bool = False
    result: bytes | None = None

    @property
    def delay(self) -> float | None:
        """Seconds until the next attempt; None if none is planned."""
        if self.action not in {"retry", "snooze"}:
            return None
        return max(0.0, self.due_at - self.at.timestamp)


DONE: Final = Decision("done", Outcome.SUCCEEDED)
REQUEUE: Final = Decision("requeue", Outcome.REQUEUED)
LET_GO: Final = Decision("let go", Outcome.LET_GO)


def build_result_ending(result: object, message: TaskMessage, max_result: int) -> Ending:
    """Return the ending for a handler's return value: a result or a control value."""
    if result is None:
        return NO_RESULT
    wish = control.find_control(result)
    if wish is not None:
        return Failed(wish)
    data = result_bytes(result, message.type)
    # Without retention the result is not sent.
    if data is not None and len(data) > max_result and message.retention > 0:
        return Failed(ResultTooLargeError(len(data), max_result))
    return Succeeded(data)


def build_cause_ending(attempt: Attempt) -> Ending:
    """Return the ending for the cause of a cancellation, regardless of what the handler did."""
    cause = attempt.cause
    if isinstance(cause, LeaseExpiredError):
        # A lapsed lease can be renewed until another worker takes the task; then the task is put back.
        return Unfinished(is_lost=attempt.lost)
    if cause is None or isinstance(cause, ServerStopping):
        return Unfinished()
    return Failed(cause)


def leaves_nothing(message: TaskMessage, ending: Ending) -> bool:
    """Return whether an attempt succeeded and nothing of its task is kept (the usual case)."""
    return type(ending) is Succeeded and message.retention <= 0


def decide(
    message: TaskMessage,
    ending: Ending,
    rules: AttemptRules,
    *,
    now: Instant,
    unknown_pause: float = 5.0,
    is_poison: bool = False,
) -> Decision:
    """Decide about the task of an attempt that has ended.

    Args:
        message: message of its task; `retry`, `retried` and `retention` are read.
        ending: ending of the attempt.
        rules: the user's functions.
        now: the end of the attempt.
        unknown_pause: seconds after which a task without a handler is taken again.
        is_poison: whether one more crash reaches the crash limit.
    """
    if leaves_nothing(message, ending):
        return DONE
    if isinstance(ending, Succeeded):
        expires_at = now.seconds + message.retention
        return Decision("complete", Outcome.SUCCEEDED, now, expires_at, result=ending.result)
    if isinstance(ending, Failed):
        if ending.is_unhandled:
            # At the front of the queue, the task would be taken again at once by this same server.
            return Decision("retry", Outcome.REQUEUED, now, now.plus(unknown_pause).ceiling)
        return _decide_after_failure(message, ending.error, rules, now)
    if ending.crash is not None and is_poison:
        return Decision("archive", Outcome.ARCHIVED, now)
    return LET_GO if ending.is_lost else REQUEUE._replace(at=now)


def _decide_after_failure(
    message: TaskMessage, error: BaseException, rules: AttemptRules, now: Instant
) -> Decision:
    # A wrapped TaskCanceledError does not count: the handler raised it, so it is not an operator's choice.
    choice = error.outcome if isinstance(error, TaskCanceledError) else ""
    wish = find_control_flow(error)
    if choice == "delete" or isinstance(wish, RevokeTask | control.Cancel):
        return Decision("done", Outcome.REVOKED, now)
    if choice == "archive" or isinstance(wish, SkipRetry | control.Archive):
        return Decision("archive", Outcome.ARCHIVED, now)
    if isinstance(wish, control.Snooze):
        return Decision("snooze", Outcome.SNOOZED, now, now.plus(wish.delay).ceiling)
    retry = wish if isinstance(wish, control.Retry) else control.Retry()
    # Asynq's order: when no retry is left, even an error that is not a failure archives the task.
    if retry.spend and message.retried >= message.retry:
        return Decision("archive", Outcome.ARCHIVED, now)
    delay = rules.delay(message.retried, find_cause(error)) if retry.after is None else retry.after
    if not math.isfinite(delay) or delay < 0:
        delay = 0.0
    is_failure = rules.is_failure(error) if wish is None else retry.spend
    # Without a delay the task is due in the current second; rounding up would delay it to the next.
    due_at = now.plus(delay).ceiling if delay else now.seconds
    return Decision("retry", Outcome.RETRIED, now, due_at, is_failure=is_failure)


_ControlFlow: TypeAlias = control.ControlFlow | RevokeTask | SkipRetry

_STRONGEST_FIRST = (RevokeTask | control.Cancel, SkipRetry | control.Archive, control.Retry, control.Snooze)


def find_control_flow(error: BaseException) -> _ControlFlow | None:
    """Return the control-flow exception that an error is, was raised from, or contains (exception group).

    None if there is none. The order of precedence is: revoke or cancel, archive, retry, snooze.
    A group of a Snooze and any other error is an ordinary failure.
    """
    chain = list(_chain(error))
    for kind in _STRONGEST_FIRST:
        for one in chain:
            if isinstance(one, kind):
                if kind is control.Snooze and not _is_all_snooze(error):
                    return None
                return one
    return None


def _is_all_snooze(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_all_snooze, error.exceptions))
    return any(isinstance(one, control.Snooze) for one in _chain(error))


def find_cause(error: BaseException) -> BaseException:
    """Return the error to report: for a `Retry`, its cause (`raise ... from`) or its context, if any."""
    if not isinstance(error, control.Retry):
        return error
    hidden = None if error.__suppress_context__ else error.__context__
    return error.__cause__ or hidden or error


def reported_error(error: BaseException) -> BaseException:
    """Return the error to show for a failure.

    It is an `Archive`, or a `Retry` that has a reason; otherwise the result of `find_cause`.
    """
    wish = find_control_flow(error)
    has_reason = isinstance(wish, control.Archive) or (isinstance(wish, control.Retry) and wish.reason)
    return wish if wish is not None and has_reason else find_cause(error)


def find_error(ending: Ending) -> BaseException | None:
    """Return the error to show for an ended attempt; None if it has no error."""
    if isinstance(ending, Failed):
        return reported_error(ending.error)
    crash = ending.crash if isinstance(ending, Unfinished) else None
    return None if crash is None else ReportedError(crash)


def _chain(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if one.__cause__ is not None:
            waiting.append(one.__cause__)
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(one.exceptions)
