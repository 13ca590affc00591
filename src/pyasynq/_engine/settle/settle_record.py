"""What is written about an attempt that has ended: message, traceback, history entry and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyasynq._engine.failure_text import error_line, shorten, trace_of
from pyasynq._engine.run.outcome import Archive, Complete, Retry, Snooze, cause_of, error_to_tell
from pyasynq._wire.constants import RESULT_DROPPED
from pyasynq._wire.history import encode_attempt
from pyasynq._wire.messages import copy_task_message, encode_task_message
from pyasynq.events import Outcome

if TYPE_CHECKING:
    from pyasynq._clock import Instant
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.run.outcome import Decision
    from pyasynq._engine.settings import EngineSettings

_RECORDED = {Outcome.RETRIED, Outcome.SNOOZED, Outcome.ARCHIVED}
_RECORDED_ERROR_BYTES = 200


class Written(NamedTuple):
    """Bytes for the settle; what is empty is not written."""

    message: bytes
    trace: bytes
    history_entry: bytes
    """JSON of this attempt, for the task's history."""
    progress: bytes
    """JSON of what the handler said last of its progress."""


NOTHING = Written(message=b"", trace=b"", history_entry=b"", progress=b"")


def unchanged(reason: str) -> Written:
    """Return what is written about an attempt whose message stays as it is: why, as its traceback."""
    return NOTHING._replace(trace=reason.encode("utf-8", "replace"))


def write_crash(
    attempt: Attempt, error: BaseException, settings: EngineSettings, *, is_poison: bool, now: Instant
) -> Written:
    """Return what is to be written about an attempt whose worker crashed, as its holder says."""
    history_entry = encode_attempt(
        "crashed",
        error_line(error, _RECORDED_ERROR_BYTES),
        server=attempt.token.partition("/")[0],
        started_at=attempt.started_at,
        ended_at=now.timestamp,
    )
    if not is_poison:
        return NOTHING._replace(history_entry=history_entry)
    message = copy_task_message(attempt.message)
    crashes = attempt.crashes + 1
    times = "once" if crashes == 1 else f"{crashes} times"
    line = f"poison: its worker crashed {times} while running it: {error_line(error)}"
    message.error_msg = shorten(line, settings.error_message_bytes)
    message.last_failed_at = now.seconds
    return Written(
        message=encode_task_message(message),
        trace=b"",
        history_entry=history_entry,
        progress=attempt.progress_json(),
    )


def write_down(
    attempt: Attempt,
    decision: Decision,
    outcome: Outcome,
    error: BaseException | None,
    settings: EngineSettings,
    *,
    now: Instant,
) -> Written:
    """Return what is to be written about an attempt that ends now; its error is not kept."""
    if not isinstance(decision, Complete | Retry | Snooze | Archive):
        return NOTHING
    progress = attempt.progress_json()
    message = copy_task_message(attempt.message)
    if isinstance(decision, Complete):
        message.completed_at = decision.completed_at
        if attempt.dropped_result:
            # Callers that wait for the result find it there; no field of ours keeps it in Redis.
            message.error_msg = shorten(RESULT_DROPPED + attempt.dropped_result, settings.error_message_bytes)
        return NOTHING._replace(message=encode_task_message(message), progress=progress)
    line = "" if error is None else error_line(error_to_tell(error), settings.error_message_bytes)
    history_entry = b""
    if outcome in _RECORDED:
        history_entry = encode_attempt(
            outcome,
            shorten(line, _RECORDED_ERROR_BYTES),
            server=attempt.token.partition("/")[0],
            started_at=attempt.started_at,
            ended_at=now.timestamp,
        )
    if isinstance(decision, Snooze) or error is None:
        return NOTHING._replace(history_entry=history_entry, progress=progress)
    message.error_msg = line
    if isinstance(decision, Retry):
        message.last_failed_at = decision.failed_at
        message.retried += decision.is_failure
    else:
        message.last_failed_at = decision.archived_at
    trace = trace_of(cause_of(error), settings.trace_bytes)
    return Written(
        message=encode_task_message(message), trace=trace, history_entry=history_entry, progress=progress
    )
