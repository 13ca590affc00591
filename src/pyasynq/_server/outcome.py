"""What came of an attempt, and what to do about it. Pure: no clock, no Redis, no waiting."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

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
    """The handler raised, ran out of time or was cancelled."""

    error: BaseException


class Unhandled(NamedTuple):
    """This server has no handler for the type and leaves the task to others."""

    error: BaseException


class PutBack(NamedTuple):
    """The attempt was broken off by the server; the task is as if it had not been taken."""


class Gone(NamedTuple):
    """The task belongs to somebody else by now."""


Ending: TypeAlias = Succeeded | Failed | Unhandled | PutBack | Gone


# What to do about it. Times are whole Unix seconds.


class Done(NamedTuple):
    """Delete the task."""


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


class Archive(NamedTuple):
    """Failed for good."""

    archived_at: int


class Requeue(NamedTuple):
    """Back to the front of the queue."""


class LetGo(NamedTuple):
    """Write nothing."""


Decision: TypeAlias = Done | Complete | Retry | Archive | Requeue | LetGo


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


class Rules(Protocol):
    """The user's part of a decision. Neither function raises."""

    def is_failure(self, error: BaseException) -> bool:
        """Return whether the error spends a retry."""

    def delay(self, retried: int, error: BaseException) -> float:
        """Return the seconds until the next attempt."""


def decide(
    task: TaskFacts,
    ending: Ending,
    rules: Rules,
    *,
    now: Instant,
    unknown_pause: float = 5.0,
) -> Decision:
    """Return what to do about an attempt that has ended."""
    if isinstance(ending, Succeeded):
        return _keep_or_delete(task, ending.result, now)
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


_OUTCOMES: dict[type, Outcome] = {
    Done: Outcome.SUCCEEDED,
    Complete: Outcome.SUCCEEDED,
    Archive: Outcome.ARCHIVED,
    Requeue: Outcome.REQUEUED,
    LetGo: Outcome.LET_GO,
}


def _keep_or_delete(task: TaskFacts, result: bytes | None, now: Instant) -> Decision:
    if task.retention <= 0:
        return Done()
    return Complete(now.seconds, now.seconds + task.retention, result)


def _after_failure(task: TaskFacts, error: BaseException, rules: Rules, now: Instant) -> Decision:
    # Not one that is wrapped: the caller's choice is the cause itself, never something that a handler raised.
    choice = error.outcome if isinstance(error, TaskCanceledError) else ""
    if choice == "delete" or is_or_wraps(error, RevokeTask):
        return Done()
    # Asynq's order: an error that is no failure archives all the same when no retry is left.
    if choice == "archive" or task.retried >= task.retry or is_or_wraps(error, SkipRetry):
        return Archive(now.seconds)
    delay = rules.delay(task.retried, error)
    if not math.isfinite(delay) or delay < 0:
        delay = 0.0
    return Retry(now.seconds, now.plus(delay).ceiling, rules.is_failure(error))


def is_or_wraps(error: BaseException, wanted: type[BaseException]) -> bool:
    """Return whether an error is of a class, was raised `from` one, or is a group with one in it."""
    return any(isinstance(one, wanted) for one in _chain(error))


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
