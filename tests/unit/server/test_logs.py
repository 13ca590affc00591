"""What a server writes to the log."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._background import code_places
from pyasynq._engine.logs import LogSubscriber
from pyasynq._visible_text import visible
from pyasynq.cli.logs import TextFormatter
from pyasynq.config import ServerConfig
from pyasynq.control import Archive, Retry
from pyasynq.errors import (
    HandlerNotFoundError,
    PayloadDecodingError,
    RedisAuthenticationError,
    RedisPermissionError,
    RedisUnavailableError,
)
from pyasynq.events import (
    AggregationFailed,
    Events,
    HeartbeatWritten,
    LeaseLost,
    Outcome,
    RoundFailed,
    RoundFinished,
    ServerEnded,
    ServerStateChanged,
    SettleDelayed,
    SettleRefused,
    ShutdownHung,
    ShutdownWaiting,
    TaskFinished,
    TaskSettled,
    TasksPutBack,
)
from tests.foreign_texts import HOSTILE_TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable

AWAY = RedisUnavailableError("localhost:6379", "nothing listens there")


class FakeClock:
    """Stands for the module `time`."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Reported:
    """A server with these tasks."""

    def __init__(self, *types: str) -> None:
        self.types = types
        self.ending = False
        self.outcomes = 0

    def unwritten(self) -> int:
        return self.outcomes

    def running_types(self) -> tuple[str, ...]:
        return self.types


@pytest.fixture
def server() -> Reported:
    """The facts about a server that the log may read."""
    return Reported("report:fetch", "email:deliver", "email:deliver")


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture, server: Reported) -> Events:
    """Events whose lines `caplog` has."""
    events = Events()
    LogSubscriber(ServerConfig(), "localhost:6379", server).attach(events)
    caplog.set_level(logging.DEBUG, "pyasynq")
    caplog.set_level(logging.DEBUG, "pyasynq.outcomes")
    return events


@pytest.fixture
def finished(events: Events, caplog: pytest.LogCaptureFixture) -> Callable[..., logging.LogRecord]:
    """Returns the record of an attempt that ended so."""

    def emit(
        outcome: Outcome, error: BaseException | None = None, delay: float | None = None
    ) -> logging.LogRecord:
        events.emit(TaskFinished("default", "id", "email:deliver", 1, 5, outcome, 1.5, error, delay))
        return caplog.records[-1]

    return emit


def info_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines of a log at the usual level."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


# Outcomes.


def test_a_failure_is_one_warning_that_says_why_and_what_comes_next(
    finished: Callable[..., logging.LogRecord],
) -> None:
    """The error is in the line itself, where a search finds it; the traceback follows."""
    record = finished(Outcome.RETRIED, ValueError("no such user"), 15.4)
    assert "WARNING" == record.levelname
    assert record.exc_info
    assert (
        "email:deliver failed after 1.5 s: ValueError: no such user; "
        "attempt 2 of 6, retried in 15 s (task id, queue default)"
    ) == record.getMessage()


def test_an_archived_task_is_an_error(finished: Callable[..., logging.LogRecord]) -> None:
    """Somebody has to look at it."""
    record = finished(Outcome.ARCHIVED, ValueError("no"))
    assert "ERROR" == record.levelname
    assert "attempt 2 of 6, archived (task id, queue default)" in record.getMessage()


@pytest.mark.parametrize(
    ("outcome", "error", "delay", "line"),
    [
        (Outcome.SUCCEEDED, None, None, "succeeded in 1.5 s"),
        (Outcome.REQUEUED, None, None, "put back after 1.5 s"),
        (Outcome.REVOKED, ValueError("no"), None, "revoked after 1.5 s"),
        (Outcome.SNOOZED, ValueError("no"), 30.9, "snoozed for 30 s after 1.5 s"),
    ],
)
def test_an_error_that_is_not_a_failure_is_an_info_without_a_traceback(
    finished: Callable[..., logging.LogRecord],
    outcome: Outcome,
    error: BaseException | None,
    delay: float | None,
    line: str,
) -> None:
    """On a logger of its own, which names the task and carries its fields. (D36)"""
    record = finished(outcome, error, delay)
    assert ("INFO", "pyasynq.outcomes") == (record.levelname, record.name)
    assert not record.exc_info
    assert f"email:deliver {line} (task id, queue default)" == record.getMessage()
    fields = {"task_id": "id", "task_type": "email:deliver", "queue": "default", "attempt": 2}
    assert fields.items() <= record.__dict__.items()
    assert (outcome.value, 1.5) == (record.__dict__["outcome"], record.__dict__["seconds"])


@pytest.mark.parametrize(("level", "wanted"), [(logging.INFO, True), (logging.WARNING, False)])
def test_no_event_is_built_for_a_success_whose_line_is_off(
    events: Events, caplog: pytest.LogCaptureFixture, level: int, wanted: bool
) -> None:
    """The lines then cost nothing where they are not read. (D36)"""
    caplog.set_level(level, "pyasynq.outcomes")
    assert wanted is events.wants_routine(TaskFinished)
    assert not events.wants(TaskSettled)
    assert not events.wants(RoundFinished)
    assert not events.wants(HeartbeatWritten)


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_foreign_text_cannot_forge_a_line(
    events: Events, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """Types, ids, queues, errors and what else others have written. (D22)"""
    events.emit(TaskFinished(text, text, text, 0, 5, Outcome.RETRIED, 1.5, ValueError(text), 1))
    events.emit(LeaseLost(text, text))
    events.emit(RoundFailed("janitor", ValueError(text), 1))
    events.emit(SettleDelayed(1, ValueError(text)))
    assert 4 == len(caplog.messages)
    assert [visible(message) for message in caplog.messages] == caplog.messages


# The life of a worker.


def test_the_end_says_what_is_waited_for_and_what_was_done(
    events: Events, server: Reported, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the tasks, and says worker, not server. (D34)"""
    events.emit(ServerStateChanged("id", "active"))
    caplog.clear()
    server.ending = True
    server.types = ("report:fetch",)
    events.emit(ServerStateChanged("id", "stopped"))
    events.emit(ServerStateChanged("id", "closed"))
    events.emit(ShutdownWaiting(1, 8.0))
    events.emit(TasksPutBack(1))
    outcomes = {Outcome.SUCCEEDED: 1_203, Outcome.REVOKED: 0, Outcome.RETRIED: 4, Outcome.ARCHIVED: 1}
    events.emit(ServerEnded("id", outcomes, 7_200, 1))
    assert [
        "worker stopping: waiting up to 8 s for 1 task (report:fetch)",
        "1 task that did not finish is back at the front of the queue",
        "worker ended: 1,203 succeeded, 4 retried, 1 archived in 2 h; 1 outcome was not written",
    ] == caplog.messages


def test_a_worker_without_tasks_says_that_it_stops(
    events: Events, server: Reported, caplog: pytest.LogCaptureFixture
) -> None:
    """The line also says that no task was run. (D34)"""
    server.types = ()
    events.emit(ServerStateChanged("id", "active"))
    caplog.clear()
    events.emit(ServerStateChanged("id", "closed"))
    events.emit(ServerEnded("id", dict.fromkeys(Outcome, 0), 41, 0))
    assert ["worker stopping", "worker ended after 41 s: no task was run"] == caplog.messages


def test_a_worker_that_takes_no_more_names_what_runs_on(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """Each type once, with its number. (D34)"""
    events.emit(ServerStateChanged("id", "stopped"))
    assert ["worker takes no more tasks; running on: email:deliver (2), report:fetch"] == caplog.messages


# Outages.


def fail(events: Events, *services: str, error: Exception = AWAY) -> None:
    """Let rounds of services fail."""
    for service in services:
        events.emit(RoundFailed(service, error, 0.1))


def finish(events: Events, *services: str) -> None:
    """Let services finish rounds."""
    for service in services:
        asks = service in {"heartbeater", "queue_look"}
        events.emit(RoundFinished(service, 1.0, asked_at=time.monotonic() if asks else None))


def test_one_outage_is_one_warning_and_one_info(events: Events, caplog: pytest.LogCaptureFixture) -> None:
    """However many services fail, and however often. (D35)"""
    fail(events, "processor", "heartbeater", "queue_look", "heartbeater")
    events.emit(SettleDelayed(2, AWAY))
    finish(events, "processor", "heartbeater")
    fail(events, "syncer")
    finish(events, "queue_look")
    for task_id in ("1", "2"):
        events.emit(TaskSettled("default", task_id, written=True))
    finish(events, "syncer")
    away, back = info_lines(caplog)
    assert "Redis at localhost:6379 is away: nothing listens there; 3 tasks run on, outcomes are kept" == away
    assert back.startswith("Redis is back after ")
    assert back.endswith("; 2 outcomes written")
    assert not events.wants(RoundFinished)
    assert not events.wants(TaskSettled)


def test_the_outage_of_a_node_is_told_apart(events: Events, caplog: pytest.LogCaptureFixture) -> None:
    """Rounds for other nodes do not end it, nor do outcomes. (D01)"""
    silent = RedisUnavailableError("a:1,b:2", "a:1: no reply within 5 s")
    events.emit(RoundFailed("queue_look", silent, 0.1, "a:1"))
    events.emit(RoundFinished("queue_look", 1.0, "b:2", time.monotonic()))
    events.emit(TaskSettled("default", "1", written=True))
    away = "Redis at a:1 is away: no reply within 5 s; 3 tasks run on, outcomes are kept"
    assert [away] == info_lines(caplog)
    events.emit(RoundFinished("queue_look", 1.0, "a:1", time.monotonic()))
    assert info_lines(caplog)[-1].startswith("Redis at a:1 is back after ")


def test_a_round_that_asked_nothing_does_not_end_an_outage(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor do rounds whose calls were on their way before, however many are processed late. (D35)"""
    before = time.monotonic()
    fail(events, "processor", "queue_look", "heartbeater")
    finish(events, "processor", "processor")
    for asked_at in (None, before, None, before):
        for service in ("queue_look", "heartbeater"):
            events.emit(RoundFinished(service, 1.0, asked_at=asked_at))
    assert 1 == len(info_lines(caplog))
    finish(events, "queue_look", "heartbeater")
    assert 2 == len(info_lines(caplog))


def test_a_round_of_the_forwarder_does_not_end_an_outage(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """It asks Redis nothing when the last one was a moment ago. (D35)"""
    fail(events, "processor")
    finish(events, "forwarder", "forwarder")
    assert 1 == len(info_lines(caplog))


def test_all_kept_outcomes_are_in_the_line(
    events: Events, server: Reported, caplog: pytest.LogCaptureFixture
) -> None:
    """One is written before the others; an attempt that ends meanwhile is not waited for. (D35)"""
    server.outcomes = 2
    fail(events, "processor")
    events.emit(TaskSettled("default", "1", written=True))
    finish(events, "processor")
    events.emit(TaskFinished("default", "new", "t", 0, 5, Outcome.SUCCEEDED, 0.1, None))
    events.emit(TaskSettled("default", "2", written=True))
    finish(events, "processor")
    assert not any("back" in line for line in info_lines(caplog))
    events.emit(TaskSettled("default", "3", written=True))
    finish(events, "processor")
    assert info_lines(caplog)[-1].endswith("; 3 outcomes written")


def test_outcomes_of_attempts_that_end_after_it_do_not_count(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """They were not kept. (D35)"""
    fail(events, "heartbeater")
    events.emit(TaskSettled("default", "kept", written=True))
    events.emit(TaskFinished("default", "new", "t", 0, 5, Outcome.SUCCEEDED, 0.1, None))
    events.emit(TaskSettled("default", "new", written=True))
    finish(events, "heartbeater")
    assert info_lines(caplog)[-1].endswith("; 1 outcome written")


def test_the_next_outage_is_told_again(events: Events, caplog: pytest.LogCaptureFixture) -> None:
    """Each has its two lines; a service that fails twice after the first one has met the second. (D35)"""
    for _ in range(2):
        fail(events, "queue_look", "queue_look")
        finish(events, "queue_look")
    assert 4 == len(info_lines(caplog))


def test_a_round_that_fails_late_is_not_a_new_outage(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """It began when Redis was away, and waited for it until its time was over. (D35)"""
    fail(events, "queue_look")
    finish(events, "queue_look")
    fail(events, "heartbeater", "recoverer")
    assert 2 == len(info_lines(caplog))


def test_a_refused_password_is_told_with_the_address(
    events: Events, server: Reported, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, like an outage. (D35)"""
    server.types = ()
    text = "Redis at localhost:6379 refused the user name or password: invalid password"
    fail(events, "queue_look", "recoverer", error=RedisAuthenticationError(text))
    assert [
        "Redis at localhost:6379 is away: it refused the user name or password: invalid password"
    ] == info_lines(caplog)


def test_a_login_that_is_refused_after_a_break_is_told_once_more(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection broke because the password was changed; that does not pass by itself. (D35)"""
    text = "Redis at localhost:6379 refused the user name or password: invalid password"
    fail(events, "processor", "queue_look")
    fail(events, "queue_look", "recoverer", "queue_look", error=RedisAuthenticationError(text))
    assert [
        "Redis at localhost:6379 is away: nothing listens there; 3 tasks run on, outcomes are kept",
        "Redis at localhost:6379 is away: it refused the user name or password: invalid password",
    ] == info_lines(caplog)


DENIED = "script dequeue was refused: this user has no permissions to run the 'lmove' command"


def test_denied_rights_are_one_warning_and_one_info(
    events: Events, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning names the right; rounds that finish between denied calls do not end it."""
    clock = FakeClock()
    monkeypatch.setattr("pyasynq._background.denial_log.time", clock)
    fail(events, "processor", error=RedisPermissionError(DENIED))
    events.emit(SettleDelayed(2, RedisPermissionError("script done was refused")))
    for _ in range(3):
        clock.now += 10
        finish(events, "processor", "heartbeater")
        fail(events, "processor", "janitor", error=RedisPermissionError(DENIED))
    clock.now += 11
    finish(events, "processor", "janitor")
    clock.now += 20
    assert 1 == len(info_lines(caplog))
    finish(events, "heartbeater")
    assert [
        f"Redis at localhost:6379 denies a right: {DENIED}; 3 tasks run on, outcomes are kept",
        "Redis answers again after 41 s",
    ] == info_lines(caplog)
    assert not events.wants(RoundFinished)


def test_another_right_that_is_denied_for_long_is_told(
    events: Events, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user got the first right back, and lacks a second one."""
    clock = FakeClock()
    monkeypatch.setattr("pyasynq._background.denial_log.time", clock)
    for text in (DENIED, "no 'zadd'", DENIED, "no 'zadd'", "no 'zadd'", DENIED):
        fail(events, "processor", error=RedisPermissionError(text))
        clock.now += 25
    assert [
        f"Redis at localhost:6379 denies a right: {DENIED}; 3 tasks run on, outcomes are kept",
        "Redis at localhost:6379 denies a right: no 'zadd'",
    ] == info_lines(caplog)


def test_h20_a_service_that_fails_again_and_again_is_one_warning(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """Until the error is another; each service speaks for itself."""
    for text in ("no", "no", "no", "loading"):
        events.emit(RoundFailed("janitor", ValueError(text), 0.1))
    events.emit(RoundFailed("forwarder", ValueError("loading"), 0.1))
    assert [
        "janitor failed; retrying: ValueError('no')",
        "janitor failed; retrying: ValueError('loading')",
        "forwarder failed; retrying: ValueError('loading')",
    ] == info_lines(caplog)


def test_outcomes_that_cannot_be_written_are_one_line(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """Five failed writes log one line, and not one for each try. (D44)"""
    for _ in range(5):
        events.emit(SettleDelayed(1, ValueError("too large")))
    assert ["1 outcome could not be written; retrying: ValueError('too large')"] == info_lines(caplog)


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """Return an error that code of the user's has raised, from a cause that was raised there too."""
    try:
        raise error from (None if cause is None else raised(cause))
    except BaseException as caught:  # noqa: BLE001 - given back
        return caught


@pytest.mark.parametrize(
    "error",
    [
        Retry(5),
        raised(Retry(5)),
        raised(Retry(5, reason="no answer")),
        raised(Archive("no use")),
        PayloadDecodingError("email:deliver", "it is not UTF-8"),
        HandlerNotFoundError("email:deliver", []),
    ],
)
def test_a_traceback_that_only_repeats_the_line_is_left_out(
    finished: Callable[..., logging.LogRecord], error: BaseException
) -> None:
    """A control value of a handler is not an error of its code, even if it was raised in a helper. (D36)"""
    assert finished(Outcome.RETRIED, error, 5.0).exc_info is None


@pytest.mark.parametrize(
    "error",
    [
        raised(ValueError("no user")),
        raised(Retry(5, reason="no answer"), ValueError("no user")),
        raised(RedisUnavailableError("localhost:6379", "nothing listens there")),
    ],
)
def test_the_traceback_of_an_error_in_a_handler_is_written(
    finished: Callable[..., logging.LogRecord], error: BaseException
) -> None:
    """Also of one that a retry was asked for from, and of ours when the user's code met it. (D36)"""
    assert finished(Outcome.RETRIED, error, 5.0).exc_info is not None


def test_the_traceback_of_an_error_with_a_long_text_is_shortened(
    finished: Callable[..., logging.LogRecord],
) -> None:
    """Its frames and the end of its text stay, and it says how much is left out."""
    record = finished(Outcome.RETRIED, raised(ValueError("x" * 3_000_000 + "the end")), 5.0)
    shown = logging.Formatter().format(record)
    assert len(shown) < 20_000
    assert "in raised\n" in shown
    assert shown.endswith("the end")
    assert "characters left out) ...\n" in shown
    assert "characters left out" in TextFormatter(terminal=False, colour=False).format(record)


def test_the_log_shows_no_frame_of_ours_for_what_a_coroutine_may_not_raise(
    finished: Callable[..., logging.LogRecord],
) -> None:
    """Python replaces StopIteration in the frame that awaits the handler, which is the engine's."""
    scope: dict[str, Any] = {}
    engine = "async def run(handler):\n    await handler()\n"
    exec(compile(engine, code_places.__file__, "exec"), scope)

    async def handler() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError) as caught:
        scope["run"](handler).send(None)
    error = caught.value
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    shown = logging.Formatter().format(finished(Outcome.RETRIED, error, 5.0))
    assert "in handler\n" in shown
    assert "code_places.py" not in shown


def test_a_long_text_of_an_error_is_shortened_in_every_line(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """It may hold a whole payload."""
    error = ValueError("x" * 3_000_000)
    fail(events, "janitor", error=error)
    events.emit(SettleRefused("default", "id", "it counts as failed", error))
    events.emit(AggregationFailed("default", "group", error, 5.0))
    for line in info_lines(caplog):
        assert len(line) < 3_000
        assert "characters left out" in line


def test_a_stack_of_what_hangs_keeps_its_lines(events: Events, caplog: pytest.LogCaptureFixture) -> None:
    """Not one line with symbols for line breaks; and no empty line ends it. (D14)"""
    stack = 'this stack:\n  File "/app/tasks.py", line 3, in report\n    compute()\n'
    events.emit(ShutdownHung("the event loop", stack))
    assert [
        f"the event loop did not end in time and was given up; it was waiting at {stack.rstrip()}"
    ] == info_lines(caplog)
