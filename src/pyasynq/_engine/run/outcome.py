"""How an attempt ended, and what to do about its task. `decide` is pure: no clock, no Redis, no waiting."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from pyasynq import control
from pyasynq._clock import Instant
from pyasynq._engine.handlers.routes import result_bytes
from pyasynq._engine.run.attempt import ServerStopping
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


# How an attempt can end.


class Succeeded(NamedTuple):
    """The handler returned."""

    result: bytes | None


class Failed(NamedTuple):
    """The handler raised, ran out of time, was cancelled, or said what becomes of the task.

    Attributes:
        is_unhandled: this server has no handler for the type and leaves the task to others.
    """

    error: BaseException
    is_unhandled: bool = False


class Unfinished(NamedTuple):
    """The attempt was broken off, and the task is as if it had not been taken.

    Attributes:
        crash: why the worker crashed, as the holder of the attempt says; the crash counts. None for no crash.
        is_lost: the task belongs to another worker by now.
    """

    crash: str | None = None
    is_lost: bool = False


NO_RESULT: Final = Succeeded(None)


Ending: TypeAlias = Succeeded | Failed | Unfinished


Action: TypeAlias = Literal["done", "complete", "retry", "snooze", "archive", "requeue", "let go"]
"""What is done about the task of an attempt that has ended.

done: delete it. complete: keep it until it expires. retry: try it again. snooze: run it again; nothing has
failed. archive: it failed for good. requeue: back to the front of the queue. let go: write nothing.
"""


class Decision(NamedTuple):
    """What is done about the task of an attempt that has ended.

    One class for all actions: outcomes are grouped and sent by the action, and a field that an action does
    not need keeps its default.

    Attributes:
        outcome: the word of the events for it.
        at: the end of the attempt, when this was decided.
        due_at: Unix time at which a retried or snoozed task runs again, or a completed one expires.
        is_failure: whether a retry counts as a failure, which spends one.
        result: what a completed task keeps.
    """

    action: Action
    outcome: Outcome
    at: Instant = Instant(0)
    due_at: int = 0
    is_failure: bool = False
    result: bytes | None = None

    @property
    def delay(self) -> float | None:
        """Seconds until the next attempt; None when there is none, or none is planned."""
        if self.action not in {"retry", "snooze"}:
            return None
        return max(0.0, self.due_at - self.at.timestamp)


DONE: Final = Decision("done", Outcome.SUCCEEDED)
REQUEUE: Final = Decision("requeue", Outcome.REQUEUED)
LET_GO: Final = Decision("let go", Outcome.LET_GO)

# `take/` makes these two by a call.
Requeue: Final = partial(Decision, "requeue", Outcome.REQUEUED)
LetGo: Final = partial(Decision, "let go", Outcome.LET_GO)


def ending_of_result(result: object, message: TaskMessage, max_result: int) -> Ending:
    """Return the ending of an attempt whose handler returned: its result, or what the handler asks for."""
    if result is None:
        return NO_RESULT
    wish = control.control_of(result)
    if wish is not None:
        return Failed(wish)
    data = result_bytes(result, message.type)
    # Without retention nothing is sent of it.
    if data is not None and len(data) > max_result and message.retention > 0:
        return Failed(ResultTooLargeError(len(data), max_result))
    return Succeeded(data)


def ending_of_cause(attempt: Attempt) -> Ending:
    """Return the ending that the cause of a cancellation means, whatever the handler did about it."""
    cause = attempt.cause
    if isinstance(cause, LeaseExpiredError):
        # A lease that only lapsed can be renewed until another worker takes the task; then it is put back.
        return Unfinished(is_lost=attempt.lost)
    if cause is None or isinstance(cause, ServerStopping):
        return Unfinished()
    return Failed(cause)


def leaves_nothing(message: TaskMessage, ending: Ending) -> bool:
    """Return whether an attempt has succeeded and nothing of its task is kept: the usual end."""
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
    """Return what to do about an attempt that has ended.

    Args:
        message: of its task; `retry`, `retried` and `retention` are read.
        ending: how it ended.
        rules: the user's functions.
        now: the end of the attempt.
        unknown_pause: seconds after which a task without a handler is taken again.
        is_poison: whether a crash now reaches the crash limit.
    """
    if leaves_nothing(message, ending):
        return DONE
    if isinstance(ending, Succeeded):
        expires_at = now.seconds + message.retention
        return Decision("complete", Outcome.SUCCEEDED, now, expires_at, result=ending.result)
    if isinstance(ending, Failed):
        if ending.is_unhandled:
            # Back at the front it would be taken again at once, by this same server.
            return Decision("retry", Outcome.REQUEUED, now, now.plus(unknown_pause).ceiling)
        return _after_failure(message, ending.error, rules, now)
    if ending.crash is not None and is_poison:
        return Decision("archive", Outcome.ARCHIVED, now)
    return LET_GO if ending.is_lost else REQUEUE._replace(at=now)


def _after_failure(message: TaskMessage, error: BaseException, rules: AttemptRules, now: Instant) -> Decision:
    # Not one that is wrapped: the caller's choice is the cause itself, never something that a handler raised.
    choice = error.outcome if isinstance(error, TaskCanceledError) else ""
    wish = wish_of(error)
    if choice == "delete" or isinstance(wish, RevokeTask | control.Cancel):
        return Decision("done", Outcome.REVOKED, now)
    if choice == "archive" or isinstance(wish, SkipRetry | control.Archive):
        return Decision("archive", Outcome.ARCHIVED, now)
    if isinstance(wish, control.Snooze):
        return Decision("snooze", Outcome.SNOOZED, now, now.plus(wish.delay).ceiling)
    retry = wish if isinstance(wish, control.Retry) else control.Retry()
    # Asynq's order: an error that is no failure archives all the same when no retry is left.
    if retry.spend and message.retried >= message.retry:
        return Decision("archive", Outcome.ARCHIVED, now)
    delay = rules.delay(message.retried, cause_of(error)) if retry.after is None else retry.after
    if not math.isfinite(delay) or delay < 0:
        delay = 0.0
    is_failure = rules.is_failure(error) if wish is None else retry.spend
    # Without a delay the task is due in this very second; rounding up would make it wait for the next one.
    due_at = now.plus(delay).ceiling if delay else now.seconds
    return Decision("retry", Outcome.RETRIED, now, due_at, is_failure=is_failure)


_Wish: TypeAlias = control.ControlFlow | RevokeTask | SkipRetry

_STRONGEST_FIRST = (RevokeTask | control.Cancel, SkipRetry | control.Archive, control.Retry, control.Snooze)


def wish_of(error: BaseException) -> _Wish | None:
    """Return what a handler asked for by an error: itself, what it was raised `from`, or a part of a group.

    Of several, the one that ends most. A group in which anything but Snooze was raised besides is a failure.
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


def cause_of(error: BaseException) -> BaseException:
    """Return the error to tell people: of a `Retry`, the one that it was raised from or in handling."""
    if not isinstance(error, control.Retry):
        return error
    hidden = None if error.__suppress_context__ else error.__context__
    return error.__cause__ or hidden or error


def error_to_tell(error: BaseException) -> BaseException:
    """Return the error that people are to read: a reason given for a wish comes before all else."""
    wish = wish_of(error)
    has_reason = isinstance(wish, control.Archive) or (isinstance(wish, control.Retry) and wish.reason)
    return wish if wish is not None and has_reason else cause_of(error)


def error_of(ending: Ending) -> BaseException | None:
    """Return the error of an ending that people are to read; None for none."""
    if isinstance(ending, Failed):
        return error_to_tell(ending.error)
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
