"""Record of an attempt that is settled: message, traceback, history entry and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._engine.failure_text import error_line, format_trace, shorten_bytes
from pyasynq._engine.run.outcome import Failed, Succeeded, find_cause, reported_error
from pyasynq._error_signature import poison_error
from pyasynq._wire.constants import RESULT_DROPPED
from pyasynq._wire.history import NO_HISTORY, NO_PROGRESS, HistoryEntry, ProgressJson, encode_attempt
from pyasynq._wire.messages import copy_task_message, encode_task_message
from pyasynq.errors import ReportedError
from pyasynq.events import Outcome

if TYPE_CHECKING:
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.run.outcome import Decision, Ending
    from pyasynq._engine.settings import EngineSettings

_IN_HISTORY: Final = {Outcome.RETRIED, Outcome.SNOOZED, Outcome.ARCHIVED}
_HISTORY_ERROR_BYTES: Final = 200


class SettleRecord(NamedTuple):
    """Bytes that a settle writes; empty fields are not written."""

    message: bytes = b""
    trace: bytes = b""
    history_entry: HistoryEntry = NO_HISTORY
    """JSON of this attempt, for the task's history."""
    progress: ProgressJson = NO_PROGRESS
    """JSON of the handler's last progress report."""


NOTHING: Final = SettleRecord()


def make_unchanged_record(reason: str) -> SettleRecord:
    """Return the record for a message that stays unchanged, with the reason as its traceback."""
    return SettleRecord(trace=reason.encode("utf-8", "replace"))


def make_record(
    attempt: Attempt, decision: Decision, ending: Ending, settings: EngineSettings
) -> SettleRecord:
    """Return the record of an attempt that has ended; it does not keep the error."""
    if isinstance(ending, Succeeded):
        return _success_record(attempt, decision, settings)
    if isinstance(ending, Failed):
        return _failure_record(attempt, decision, ending.error, settings)
    return NOTHING if ending.crash is None else _crash_record(attempt, decision, ending.crash, settings)


def _success_record(attempt: Attempt, decision: Decision, settings: EngineSettings) -> SettleRecord:
    if decision.action != "complete":
        return NOTHING
    message = copy_task_message(attempt.message)
    message.completed_at = decision.at.seconds
    if attempt.dropped_result:
        # Callers that wait for the result read it there; Redis has no other field for it.
        message.error_msg = shorten_bytes(
            RESULT_DROPPED + attempt.dropped_result, settings.error_message_bytes
        )
    return SettleRecord(message=encode_task_message(message), progress=attempt.progress_json())


def _failure_record(
    attempt: Attempt, decision: Decision, error: BaseException, settings: EngineSettings
) -> SettleRecord:
    if decision.action == "done":
        return NOTHING
    progress = attempt.progress_json()
    line = error_line(reported_error(error), settings.error_message_bytes)
    history_entry = NO_HISTORY
    if decision.outcome in _IN_HISTORY:
        history_entry = _history_entry(attempt, decision, decision.outcome, line)
    if decision.action == "snooze":
        return SettleRecord(history_entry=history_entry, progress=progress)
    message = copy_task_message(attempt.message)
    message.error_msg = line
    message.last_failed_at = decision.at.seconds
    message.retried += decision.is_failure
    return SettleRecord(
        message=encode_task_message(message),
        trace=format_trace(find_cause(error), settings.trace_bytes),
        history_entry=history_entry,
        progress=progress,
    )


def _crash_record(
    attempt: Attempt, decision: Decision, reason: str, settings: EngineSettings
) -> SettleRecord:
    error = ReportedError(reason)
    history_entry = _history_entry(attempt, decision, "crashed", error_line(error, _HISTORY_ERROR_BYTES))
    if decision.action != "archive":
        return SettleRecord(history_entry=history_entry)
    message = copy_task_message(attempt.message)
    line = f"{poison_error(attempt.crashes + 1)}: {error_line(error)}"
    message.error_msg = shorten_bytes(line, settings.error_message_bytes)
    message.last_failed_at = decision.at.seconds
    return SettleRecord(
        message=encode_task_message(message), history_entry=history_entry, progress=attempt.progress_json()
    )


def _history_entry(attempt: Attempt, decision: Decision, outcome: str, line: str) -> HistoryEntry:
    return encode_attempt(
        outcome,
        shorten_bytes(line, _HISTORY_ERROR_BYTES),
        server=attempt.token.partition("/")[0],
        started_at=attempt.started_at,
        ended_at=decision.at.timestamp,
    )


def drop_frames(error: BaseException) -> None:
    """Remove the frames of an error and of all errors that it refers to.

    A frame that refers to the error raised in it forms a reference cycle, for example in each
    `asyncio.TaskGroup`. Only the garbage collector would free it, with the handler's variables.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        # The user's class may have attributes with these names.
        BaseException.with_traceback(one, None)
        waiting += (_CAUSE(one), _CONTEXT(one))
        if issubclass(type(one), BaseExceptionGroup):
            waiting += _PARTS(one)


_CAUSE: Final = vars(BaseException)["__cause__"].__get__
_CONTEXT: Final = vars(BaseException)["__context__"].__get__
_PARTS: Final = vars(BaseExceptionGroup)["exceptions"].__get__
