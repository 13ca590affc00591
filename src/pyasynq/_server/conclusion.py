"""The end of an attempt: decide what its ending means, hand that over to be written, and tell of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._server.attempt import SETTLING
from pyasynq._server.outcome import (
    DONE,
    SUCCEEDED,
    Failed,
    Gone,
    PutBack,
    Unhandled,
    cause_of,
    decide,
    leaves_nothing,
    outcome_of,
)
from pyasynq._server.rules import AttemptRules
from pyasynq._server.written import write_down
from pyasynq.errors import LeaseExpiredError
from pyasynq.events import TaskFinished

if TYPE_CHECKING:
    from pyasynq._server.attempt import Attempt
    from pyasynq._server.outcome import Ending
    from pyasynq._server.parts import Parts
    from pyasynq._server.routes import Route
    from pyasynq.task import Task


class ServerStopping(Exception):  # noqa: N818 - a cause, not an error
    """Why shutdown cancels an attempt."""


def conclude(parts: Parts, attempt: Attempt, task: Task, route: Route | None, ending: Ending) -> None:
    """Decide, and hand the decision to the settle queue; from now on the attempt is being settled."""
    message = attempt.message
    error: BaseException | None = None
    if leaves_nothing(message, ending):
        outcome = SUCCEEDED
        attempt.phase = SETTLING
        parts.settles.put(attempt, DONE)
        wanted = parts.events.wants_routine(TaskFinished)
    else:
        wanted = parts.events.wants(TaskFinished)
        now = parts.redis_time.now()
        rules = AttemptRules(parts.config, route, task)
        decision = decide(message, ending, rules, now=now, unknown_pause=parts.settings.unknown_pause)
        attempt.phase = SETTLING
        error = ending.error if isinstance(ending, Failed | Unhandled) else None
        outcome = outcome_of(ending, decision)
        written = write_down(attempt, decision, outcome, error, parts.settings, now=now)
        parts.settles.put(attempt, decision, written)
    if wanted:
        parts.events.emit(
            TaskFinished(
                attempt.queue,
                attempt.id,
                task.type,
                message.retried,
                message.retry,
                outcome,
                parts.clock.monotonic() - attempt.started,
                error and cause_of(error),
            ),
        )


def broken_off(attempt: Attempt) -> Ending:
    """Return the ending that the cause of a cancellation means, whatever the handler did about it."""
    cause = attempt.cause
    if isinstance(cause, LeaseExpiredError):
        # A lease that only lapsed can be renewed as long as nobody took the task; then it is put back.
        return Gone() if attempt.lost else PutBack()
    if cause is None or isinstance(cause, ServerStopping):
        return PutBack()
    return Failed(cause)
