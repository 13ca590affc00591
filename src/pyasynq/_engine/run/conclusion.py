"""The end of an attempt: decide what its ending means, hand that over to be written, and tell of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._engine.handlers.routes import received_task
from pyasynq._engine.run.attempt import SETTLING
from pyasynq._engine.run.outcome import (
    DONE,
    SUCCEEDED,
    Archive,
    Failed,
    Gone,
    PutBack,
    Requeue,
    Unhandled,
    decide,
    delay_of,
    error_to_tell,
    leaves_nothing,
    outcome_of,
)
from pyasynq._engine.run.rules import DEFAULT_RULES, AttemptRules
from pyasynq._engine.settle.settle_record import NOTHING, unchanged, write_crash, write_down
from pyasynq._visible_text import visible
from pyasynq.errors import LeaseExpiredError, ReportedError, SettleError
from pyasynq.events import Outcome, TaskFinished, TaskPoisoned, TaskRecovered

if TYPE_CHECKING:
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.handlers.routes import Route
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.run.outcome import Decision, DecisionRules, Ending
    from pyasynq._engine.settle.settle_record import Written
    from pyasynq.task import Task

_log = logging.getLogger("pyasynq")


class ServerStopping(Exception):  # noqa: N818 - a cause, not an error
    """Why shutdown cancels an attempt."""


class _Conclusion(NamedTuple):
    """Callbacks of `conclude`: one takes over outcomes, the others report events."""

    decision: Decision
    written: Written
    outcome: Outcome
    error: BaseException | None = None
    """The error to tell people."""
    delay: float | None = None
    """Seconds until the next attempt; None if none is planned."""


_PLAIN_SUCCESS: Final = _Conclusion(DONE, NOTHING, SUCCEEDED)


def conclude(parts: Parts, attempt: Attempt, task: Task, route: Route | None, ending: Ending) -> None:
    """Decide, and hand the decision to the settle queue; from now on the attempt is being settled.

    Nothing is raised: an ending that cannot be dealt with makes an ordinary failure of the attempt.
    """
    if leaves_nothing(attempt.message, ending):
        attempt.phase = SETTLING
        parts.settles.put(attempt, DONE)
        parts.tally.succeeded += 1
        if parts.events.wants_routine(TaskFinished):
            _tell(parts, attempt, _PLAIN_SUCCESS)
        return
    try:
        concluded = _work_out(parts, attempt, ending, AttemptRules(parts.config, route, task))
    except BaseException as error:  # noqa: BLE001 - reported; without a settle the task would be active for ever
        concluded = _work_out_plainly(parts, attempt, _unspeakable(attempt, ending, error))
    attempt.phase = SETTLING
    parts.settles.put(attempt, concluded.decision, concluded.written)
    parts.tally.others[concluded.outcome] += 1
    _tell(parts, attempt, concluded)
    if type(ending) is PutBack and ending.crash is not None:
        _tell_crash(parts, attempt, concluded)


def conclude_refused(parts: Parts, attempt: Attempt, error: SettleError) -> tuple[Decision, Written]:
    """Return what is written of an attempt whose success Redis refuses for good, and tell that it failed."""
    try:
        task = received_task(attempt.message)
        rules = AttemptRules(parts.config, parts.router.route(task.type), task)
        concluded = _work_out(parts, attempt, Failed(error), rules)
    except BaseException:  # noqa: BLE001 - as in `conclude`
        concluded = _work_out_plainly(parts, attempt, error)
    parts.tally.others[SUCCEEDED] -= 1
    parts.tally.others[concluded.outcome] += 1
    _tell(parts, attempt, concluded)
    return concluded.decision, concluded.written


def _work_out(parts: Parts, attempt: Attempt, ending: Ending, rules: DecisionRules) -> _Conclusion:
    if type(ending) is PutBack and ending.crash is not None:
        return _work_out_crash(parts, attempt, ending.crash)
    now = parts.redis_time.now()
    decision = decide(attempt.message, ending, rules, now=now, unknown_pause=parts.settings.unknown_pause)
    error = ending.error if isinstance(ending, Failed | Unhandled) else None
    outcome = outcome_of(ending, decision)
    written = write_down(attempt, decision, outcome, error, parts.settings, now=now)
    return _Conclusion(decision, written, outcome, error and error_to_tell(error), delay_of(decision, now))


def _work_out_crash(parts: Parts, attempt: Attempt, reason: str) -> _Conclusion:
    """Work out a crash of the worker: back to the front, or archived as poison at the crash limit."""
    now, error = parts.redis_time.now(), ReportedError(reason)
    is_poison = attempt.crashes + 1 >= max(1, parts.crash_limit(attempt.message.type))
    written = write_crash(attempt, error, parts.settings, is_poison=is_poison, now=now)
    if is_poison:
        return _Conclusion(Archive(now.seconds), written, Outcome.ARCHIVED, error)
    return _Conclusion(Requeue(), written, Outcome.REQUEUED, error)


def _tell_crash(parts: Parts, attempt: Attempt, concluded: _Conclusion) -> None:
    is_poison = concluded.outcome is Outcome.ARCHIVED
    event = TaskPoisoned if is_poison else TaskRecovered
    parts.events.emit(event(attempt.queue, attempt.id, attempt.crashes + 1, attempt.token.partition("/")[0]))


def _work_out_plainly(parts: Parts, attempt: Attempt, error: SettleError) -> _Conclusion:
    """Work out a failure with neither the user's rules nor the user's error."""
    try:
        return _work_out(parts, attempt, Failed(error), DEFAULT_RULES)
    except Exception:  # noqa: BLE001 - the message itself cannot be rewritten
        now = parts.redis_time.now()
        return _Conclusion(Archive(now.seconds), unchanged(str(error)), Outcome.ARCHIVED, error)


def _unspeakable(attempt: Attempt, ending: Ending, broken: BaseException) -> SettleError:
    raised = f"{type(ending.error).__name__}, " if type(ending) is Failed else ""
    _log.error(
        "the end of task %s (%s, queue %s) could not be worked out",
        visible(attempt.id),
        visible(attempt.message.type),
        visible(attempt.queue),
        exc_info=broken,
    )
    return SettleError(f"the end of the attempt could not be worked out: {raised}{type(broken).__name__}")


def _tell(parts: Parts, attempt: Attempt, concluded: _Conclusion) -> None:
    if not parts.events.wants(TaskFinished):
        return
    message = attempt.message
    seconds = parts.clock.monotonic() - attempt.started
    try:
        parts.events.emit(
            TaskFinished(
                attempt.queue,
                attempt.id,
                message.type,
                message.retried,
                message.retry,
                concluded.outcome,
                seconds,
                concluded.error,
                concluded.delay,
            ),
        )
    except BaseException:  # noqa: BLE001 - reported; the outcome has been handed over and does not change
        _log.exception("telling of the end of a task of type %r raised", message.type)


def broken_off(attempt: Attempt) -> Ending:
    """Return the ending that the cause of a cancellation means, whatever the handler did about it."""
    cause = attempt.cause
    if isinstance(cause, LeaseExpiredError):
        # A lease that only lapsed can be renewed as long as nobody took the task; then it is put back.
        return Gone() if attempt.lost else PutBack()
    if cause is None or isinstance(cause, ServerStopping):
        return PutBack()
    return Failed(cause)
