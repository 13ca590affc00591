"""Log lines of outcomes: one for each attempt, and the totals at the end of a worker."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyasynq._engine.failure_text import log_line, log_trace, own_traceback, says_no_more_than_its_line
from pyasynq._human_text import duration
from pyasynq._visible_text import visible
from pyasynq.context import trace_fields
from pyasynq.events import Outcome, TaskFinished

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.events import Events

OUTCOME_LOGGER: Final = "pyasynq.outcomes"
"""Name of the outcome logger. Set its level to WARNING to see only failures."""

_log = logging.getLogger(OUTCOME_LOGGER)

_FAILURES: Final = {Outcome.RETRIED: logging.WARNING, Outcome.ARCHIVED: logging.ERROR}
_WORDS: Final = {
    Outcome.SUCCEEDED: "succeeded",
    Outcome.REVOKED: "revoked",
    Outcome.RETRIED: "retried",
    Outcome.SNOOZED: "snoozed",
    Outcome.ARCHIVED: "archived",
    Outcome.REQUEUED: "put back",
    Outcome.LET_GO: "lost",
}


def attach_outcome_log(events: Events) -> None:
    """Log a line for each outcome: retries at WARNING and archives at ERROR, with tracebacks; others at INFO.

    While the logger is off at INFO, no event is built for a task that succeeds.
    """
    events.subscribe(TaskFinished, _on_finished, routine=partial(_log.isEnabledFor, logging.INFO))


def totals_text(outcomes: Mapping[Outcome, int]) -> str:
    """Return the counts as text, such as `1,203 succeeded, 4 retried`; empty if no attempt has ended."""
    return ", ".join(f"{count:,} {_WORDS[outcome]}" for outcome, count in outcomes.items() if count)


def _on_finished(event: TaskFinished) -> None:
    failed = event.error is not None and event.outcome in _FAILURES
    level = _FAILURES[event.outcome] if failed else logging.INFO
    if event.outcome is Outcome.LET_GO:
        level = logging.DEBUG  # the loss of the lease has been logged
    if not _log.isEnabledFor(level):
        return
    fields: dict[str, object] = {
        "task_id": event.task_id,
        "task_type": event.task_type,
        "queue": event.queue,
        "attempt": event.retried + 1,
        "outcome": event.outcome.value,
        "seconds": round(event.seconds, 6),
    }
    fields.update(trace_fields.get()())
    if event.waited is not None:
        fields["waited"] = round(event.waited, 6)
    if event.delay is not None:
        fields["next_in_seconds"] = round(event.delay, 3)
    what = _failure(event) if failed else _end(event)
    text = f"{visible(event.task_type)} {what} (task {visible(event.task_id)}, queue {visible(event.queue)})"
    if failed and event.error is not None and not says_no_more_than_its_line(event.error):
        _log_with_trace(level, text, event.error, fields)
    else:
        _log.log(level, "%s", text, extra=fields)


def _log_with_trace(level: int, text: str, error: BaseException, fields: Mapping[str, object]) -> None:
    """Log a line with a traceback of bounded length, which formatters find in the record."""
    file, line, function, _ = _log.findCaller()
    exc_info: Any = type(error), error, own_traceback(error)
    record = _log.makeRecord(_log.name, level, file, line, "%s", (text,), exc_info, function, fields)
    record.exc_text = log_trace(error)
    _log.handle(record)


def _failure(event: TaskFinished) -> str:
    assert event.error is not None  # noqa: S101 - the caller has looked
    return (
        f"failed after {duration(event.seconds)}: {visible(log_line(event.error))}; "
        f"attempt {event.retried + 1} of {event.max_retry + 1}, {_WORDS[event.outcome]}{_next(event)}"
    )


def _end(event: TaskFinished) -> str:
    took = duration(event.seconds)
    if event.outcome is Outcome.SUCCEEDED:
        return f"succeeded in {took}"
    return f"{_WORDS[event.outcome]}{_next(event)} after {took}"


def _next(event: TaskFinished) -> str:
    if event.delay is None:
        return ""
    # Redis stores whole seconds, rounded up.
    delay = math.floor(event.delay) if event.delay >= 1 else event.delay
    if event.outcome is Outcome.SNOOZED:
        return f" for {duration(delay)}"
    return f" in {duration(delay)}" if delay > 0 else " at once"
