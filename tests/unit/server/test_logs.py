"""What a server writes to the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pyasynq._server.logs import LogSubscriber
from pyasynq.config import ServerConfig
from pyasynq.events import Events, Outcome, RoundFailed, TaskFinished

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def finished(caplog: pytest.LogCaptureFixture) -> Callable[..., logging.LogRecord]:
    """Returns the record of an attempt that ended so."""
    events = Events()
    LogSubscriber(ServerConfig(), "localhost:6379").attach(events)
    caplog.set_level(logging.DEBUG, "pyasynq")

    def emit(outcome: Outcome, error: BaseException | None = None) -> logging.LogRecord:
        events.emit(TaskFinished("default", "id", "email:deliver", 1, 5, outcome, 1.5, error))
        return caplog.records[-1]

    return emit


def test_a_failure_is_one_warning_that_says_why_and_what_comes_next(
    finished: Callable[..., logging.LogRecord],
) -> None:
    """The error stands in the line itself, where a search finds it; the traceback follows."""
    record = finished(Outcome.RETRIED, ValueError("no such user"))
    assert "WARNING" == record.levelname
    assert record.exc_info
    assert (
        "task id (email:deliver, queue default) failed after 1.500 s: ValueError: no such user; "
        "attempt 2 of 6, it will be retried"
    ) == record.getMessage()


def test_an_archived_task_is_an_error(finished: Callable[..., logging.LogRecord]) -> None:
    """Somebody has to look at it."""
    record = finished(Outcome.ARCHIVED, ValueError("no"))
    assert "ERROR" == record.levelname
    assert record.getMessage().endswith("attempt 2 of 6, it is archived")


@pytest.mark.parametrize(
    ("outcome", "error"),
    [(Outcome.SUCCEEDED, None), (Outcome.REQUEUED, None), (Outcome.REVOKED, ValueError("no"))],
)
def test_what_is_no_failure_is_for_debugging(
    finished: Callable[..., logging.LogRecord], outcome: Outcome, error: BaseException | None
) -> None:
    """One line without a traceback."""
    record = finished(outcome, error)
    assert "DEBUG" == record.levelname
    assert not record.exc_info
    assert f"task id (email:deliver, queue default) {outcome} after 1.500 s" == record.getMessage()


def test_h20_a_service_that_fails_again_and_again_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Until the error is another; each service speaks for itself."""
    events = Events()
    LogSubscriber(ServerConfig(), "localhost:6379").attach(events)
    caplog.set_level(logging.WARNING, "pyasynq")
    for text in ("away", "away", "away", "loading"):
        events.emit(RoundFailed("janitor", ValueError(text), 0.1))
    events.emit(RoundFailed("forwarder", ValueError("loading"), 0.1))
    assert [
        "janitor: ValueError('away'); it is tried again until it succeeds",
        "janitor: ValueError('loading'); it is tried again until it succeeds",
        "forwarder: ValueError('loading'); it is tried again until it succeeds",
    ] == caplog.messages
