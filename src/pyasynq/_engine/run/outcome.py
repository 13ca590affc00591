"""What came of an attempt, and what to do about it. Pure: no clock, no Redis, no waiting."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from pyasynq import control
from pyasynq.errors import RevokeTask, SkipRetry, TaskCanceledError
from pyasynq.events import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq._clock import Instant


# How an attempt can end.


class Succeeded(NamedTuple):
    """The handler returned."""

    result: bytes | None


class Failed(NamedTuple):
    """The handler raised, ran out of time, was cancelled, or said what becomes of the task."""

    error: BaseException


class Unhandled(NamedTuple):
    """This server has no handler for the type and leaves the task to others."""

    error: BaseException


class PutBack(NamedTuple):
    """The attempt was broken off by the server, and the task is as if it had not been taken.

    Or its worker crashed, as the holder of the attempt says; `crash` is the reason then. The crash counts.
    """

    crash: str | None = None


class Gone(NamedTuple):
    """The task belongs to somebody else by now."""


NO_RESULT: Final = Succeeded(None)


Ending: TypeAlias = Succeeded | Failed | Unhandled | PutBack | Gone


# What to do about it. Times are whole Unix seconds.


class Done(NamedTuple):
    """Delete the task."""


DONE: Final = Done()
SUCCEEDED: Final = Outcome.SUCCEEDED
"""A name for what nearly all attempts come to; Python 3.11 takes longer to find a member of an enum."""


class Complete(NamedTuple):
    """Keep the task until `expires_at`."""

    completed_at: int
    expires_at: int
    result: bytes | None


class Retry(NamedTuple):
    """Try again at `retry_at`; only a failure spends a retry."""

    failed_at: int
    retry_at: int
    is_failure: bool


class Snooze(NamedTuple):
    """Run again at `due_at`; nothing has failed and nothing is spent."""

    due_at: int


class Archive(NamedTuple):
    """Failed for good."""

    archived_at: int


class Requeue(NamedTuple):
    """Back to the front of the queue."""


class LetGo(NamedTuple):
    """Write nothing."""


Decision: TypeAlias = Done | Complete | Retry | Snooze | Archive | Requeue | LetGo


class TaskFacts(Protocol):
    """What `decide` reads of a task's message."""

    @property
    def retry(self) -> int:
        """How many retries are allowed."""

    @property
    def retried(self) -> int:
        """How many retries have been spent."""

    @property
    def retention(self) -> int:
        """Seconds that a finished task is kept; 0 for not at all."""


class DecisionRules(Protocol):
    """The user's part of a decision. Neither function raises."""

    def is_failure(self, error: BaseException) -> bool:
        """Return whether the error spends a retry."""

    def delay(self, retried: int, error: BaseException) -> float:
        """Return the seconds until the next attempt."""


def leaves_nothing(task: TaskFacts, ending: Ending) -> bool:
    """Return whether an attempt has succeeded and nothing of its task is kept: the usual end."""
    return type(ending) is Succeeded and task.retention <= 0


def decide(
    task: TaskFacts,
    ending: Ending,
    rules: DecisionRules,
    *,
    now: Instant,
    unknown_pause: float = 5.0,
) -> Decision:
    """Return what to do about an attempt that has ended."""
    if leaves_nothing(task, ending):
        return DONE
    if isinstance(ending, Succeeded):
        return Complete(now.seconds, now.seconds + task.retention, ending.result)
    if isinstance(ending, PutBack):
        return Requeue()
    if isinstance(ending, Gone):
        return LetGo()
    if isinstance(ending, Unhandled):
        # Back at the front it would be taken again at once, by this same server.
        return Retry(now.seconds, now.plus(unknown_pause).ceiling, is_failure=False)
    return _after_failure(task, ending.error, rules, now)


def outcome_of(ending: Ending, decision: Decision) -> Outcome:
    """Return the word for both that the events use."""
    if isinstance(decision, Retry):
        return Outcome.REQUEUED if isinstance(ending, Unhandled) else Outcome.RETRIED
    if isinstance(decision, Done) and isinstance(ending, Failed):
        return Outcome.REVOKED
    return _OUTCOMES[type(decision)]


def delay_of(decision: Decision, now: Instant) -> float | None:
    """Return how many seconds it is until the next attempt; None when there is none, or none is planned."""
    if isinstance(decision, Retry):
        return max(0.0, decision.retry_at - now.timestamp)
    if isinstance(decision, Snooze):
        return max(0.0, decision.due_at - now.timestamp)
    return None


_OUTCOMES: dict[type, Outcome] = {
    Done: Outcome.SUCCEEDED,
    Complete: Outcome.SUCCEEDED,
    Snooze: Outcome.SNOOZED,
    Archive: Outcome.ARCHIVED,
    Requeue: Outcome.REQUEUED,
    LetGo: Outcome.LET_GO,
}


def _after_failure(task: TaskFacts, error: BaseException, rules: DecisionRules, now: Instant) -> Decision:
    # Not one that is wrapped: the caller's choice is the cause itself, never something that a handler raised.
    choice = error.outcome if isinstance(error, TaskCanceledError) else ""
    wish = wish_of(error)
    if choice == "delete" or isinstance(wish, RevokeTask | control.Cancel):
        return DONE
    if choice == "archive" or isinstance(wish, SkipRetry | control.Archive):
        return Archive(now.seconds)
    if isinstance(wish, control.Snooze):
        return Snooze(now.plus(wish.delay).ceiling)
    retry = wish if isinstance(wish, control.Retry) else control.Retry()
    # Asynq's order: an error that is no failure archives all the same when no retry is left.
    if retry.spend and task.retried >= task.retry:
        return Archive(now.seconds)
    delay = rules.delay(task.retried, cause_of(error)) if retry.after is None else retry.after
    if not math.isfinite(delay) or delay < 0:
        delay = 0.0
    is_failure = rules.is_failure(error) if wish is None else retry.spend
    # Without a delay the task is due in this very second; rounding up would make it wait for the next one.
    retry_at = now.plus(delay).ceiling if delay else now.seconds
    return Retry(now.seconds, retry_at, is_failure)


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
