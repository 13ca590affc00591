"""The two log formats."""

from __future__ import annotations

import io
import json
import logging
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._engine.outcome_log import attach_outcome_log
from pyasynq._visible_text import visible
from pyasynq.cli.logs import JsonFormatter, TextFormatter, install_handler
from pyasynq.events import Events, Outcome, TaskFinished
from tests.foreign_texts import HOSTILE_TEXTS, INNOCENT_TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator

TASK: dict[str, Any] = {
    "task_id": "01234567-89ab-cdef-0123-456789abcdef",
    "task_type": "email",
    "queue": "low",
    "attempt": 2,
}


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """The root logger as it was."""
    root, asyncio_logger = logging.getLogger(), logging.getLogger("asyncio")
    before = root.handlers[:], root.level, asyncio_logger.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    asyncio_logger.setLevel(before[2])


@pytest.fixture
def kiritimati(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone where it is tomorrow already."""
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def record_of(
    message: str, *, name: str = "shop", level: int = logging.INFO, **fields: Any
) -> logging.LogRecord:
    """Return a record with extra fields."""
    record = logging.LogRecord(name, level, __file__, 1, message, None, None)
    record.created = 1_767_355_200.123
    record.__dict__.update(fields)
    return record


def test_a_line_off_a_terminal_leaves_nothing_out(kiritimati: None) -> None:
    """Full local time with offset, full task id, no wrapping, no colour. (D40)"""
    line = TextFormatter(terminal=False, colour=False).format(record_of("x" * 200, **TASK))
    assert line.endswith(f" INFO    [email 01234567-89ab-cdef-0123-456789abcdef low attempt 2] {'x' * 200}")
    assert line.startswith("2026-01-03T02:00:00.123+14:00 INFO ")


def test_a_line_on_a_terminal_fits_its_width() -> None:
    """Short time and id; what is too long goes on below the message."""
    text = TextFormatter(terminal=True, colour=False, width=80).format(record_of("word " * 40, **TASK))
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert " INFO    [email 01234567 low attempt 2] word" in lines[0]
    assert lines[1].startswith(" " * 17 + "word")


def test_a_stack_is_not_wrapped() -> None:
    """Lines that are indented are laid out already; file and line stay in one piece."""
    frame = f'  File "/{"long/" * 20}handlers.py", line 7, in block'
    text = TextFormatter(terminal=True, colour=False, width=80).format(record_of(f"it is at:\n{frame}"))
    assert frame in text


def test_watchfiles_does_not_tell_a_second_time_what_reload_tells() -> None:
    """Its own line for each change is an INFO."""
    stream = io.StringIO()
    install_handler("info", "text", stream)
    logging.getLogger("watchfiles.main").info("1 change detected")
    assert "" == stream.getvalue()


def test_colour_is_only_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR is honoured."""
    for stream, no_color, coloured in (
        (Terminal(), "", True),
        (Terminal(), "1", False),
        (io.StringIO(), "", False),
    ):
        monkeypatch.setenv("NO_COLOR", no_color)
        install_handler("info", "text", stream)
        logging.getLogger("shop").warning("careful")
        assert coloured is ("\x1b[" in stream.getvalue())
        logging.getLogger().handlers.pop()


def test_the_engines_own_lines_do_not_name_their_task_twice() -> None:
    """Their message does."""
    line = TextFormatter(terminal=False, colour=False).format(
        record_of("task 1 failed", name="pyasynq", **TASK)
    )
    assert line.endswith(" INFO    task 1 failed")


def test_json_is_one_object_a_line_with_the_tasks_fields() -> None:
    """And the record's own extra fields; a traceback is one string."""
    try:
        raise ValueError("no\nway")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    record = record_of("Grüße\nzwei", level=logging.WARNING, **TASK, tenant="a", odd={1})
    record.exc_info = info
    line = JsonFormatter().format(record)
    assert "\n" not in line
    fields = json.loads(line)
    assert "ValueError: no\nway" in fields.pop("exception")
    assert {
        "time": "2026-01-02T12:00:00.123+00:00",
        "level": "warning",
        "logger": "shop",
        "message": "Grüße\nzwei",
        **TASK,
        "tenant": "a",
        "odd": "{1}",
    } == fields


def test_json_outside_of_handlers_has_no_task_fields() -> None:
    """Empty ones would only be noise."""
    stream = io.StringIO()
    install_handler("warning", "json", stream)
    logging.getLogger("shop").info("not shown")
    logging.getLogger("shop").warning("shown")
    (line,) = stream.getvalue().splitlines()
    assert {"time", "level", "logger", "message"} == json.loads(line).keys()


def test_asyncio_speaks_only_when_something_is_wrong() -> None:
    """Its debug lines are about selectors."""
    stream = io.StringIO()
    install_handler("debug", "text", stream)
    logging.getLogger("asyncio").debug("Using selector")
    assert "" == stream.getvalue()


# Text that other programs have written.


def failed_with(error: Exception) -> Any:
    """Return what a record has of an error that was raised."""
    try:
        raise error
    except type(error) as raised:
        return type(raised), raised, raised.__traceback__


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
@pytest.mark.parametrize("terminal", [False, True])
def test_no_text_forges_a_record_or_reaches_the_terminal(text: str, terminal: bool) -> None:
    """Further lines of messages, fields and tracebacks are indented, so that none looks like a record.

    Defect D22.
    """
    record = record_of(text)
    record.__dict__.update(dict.fromkeys(TASK, text))
    record.exc_info = failed_with(ValueError(text))
    first, *further = TextFormatter(terminal=terminal, colour=False).format(record).split("\n")
    assert [first, *further] == [visible(line) for line in (first, *further)]
    assert further
    assert all(line.startswith("    ") for line in further)


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_json_carries_such_characters_as_escapes(text: str) -> None:
    """A reader gets the text as it was, and the line is safe to look at. (D22)"""
    record = record_of(text, **{**TASK, "task_type": text})
    record.exc_info = failed_with(ValueError(text))
    line = JsonFormatter().format(record)
    assert visible(line) == line
    fields = json.loads(line)
    assert (text, text) == (fields["message"], fields["task_type"])
    assert text in fields["exception"]


@pytest.mark.parametrize("text", INNOCENT_TEXTS)
def test_other_scripts_stay_as_they_are_in_both_formats(text: str) -> None:
    """Chinese is text, too. (D22)"""
    assert text in TextFormatter(terminal=False, colour=False).format(record_of(text))
    assert text in JsonFormatter().format(record_of(text))


# Several processes.


def test_every_line_names_its_process() -> None:
    """In both formats; the number of the place is enough for a person. (D36)"""
    pid = os.getpid()
    line = TextFormatter(terminal=False, colour=False, process="worker 2").format(record_of("on"))
    assert line.endswith(f" INFO    [worker 2, pid {pid}] on")
    line = TextFormatter(terminal=True, colour=False, process="worker 2").format(record_of("on"))
    assert line.endswith(" INFO    [worker 2] on")
    fields = json.loads(JsonFormatter("worker 2").format(record_of("on")))
    assert ("worker 2", pid) == (fields["process"], fields["pid"])


def test_a_terminal_shortens_ids_that_were_generated_and_no_others() -> None:
    """A person knows the id that a person chose."""
    formatter = TextFormatter(terminal=True, colour=False)
    generated = record_of(f"t succeeded (task {TASK['task_id']})", name="pyasynq.outcomes", **TASK)
    assert formatter.format(generated).endswith("t succeeded (task 01234567)")
    chosen = record_of(
        "t succeeded (task invoice:2026:17)",
        name="pyasynq.outcomes",
        **{**TASK, "task_id": "invoice:2026:17"},
    )
    assert formatter.format(chosen).endswith("(task invoice:2026:17)")


def test_a_terminal_shortens_the_ids_of_a_line_about_several_tasks() -> None:
    """Such as the one about a blocked event loop, whose record is of no task."""
    ids = [TASK["task_id"], TASK["task_id"].replace("0", "8")]
    message = f"it is blocked: task {ids[0]} (t, queue q), task {ids[1]} (t, queue q) run on it"
    line = TextFormatter(terminal=True, colour=False, width=200).format(record_of(message, name="pyasynq"))
    assert line.endswith("task 01234567 (t, queue q), task 81234567 (t, queue q) run on it")


def test_json_shows_symbols_in_messages_of_ours_and_carries_the_fields_as_they_are() -> None:
    """As the page says; a handler's own message is carried as it is, too."""
    events, stream = Events(), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    attach_outcome_log(events)
    error = ValueError("no")
    events.emit(TaskFinished("default", "id", "a\x1b[2J", 0, 5, Outcome.RETRIED, 1.5, error, 15.0))
    logging.getLogger("shop").warning("a\x1b[2J")
    ours, theirs = (json.loads(line) for line in stream.getvalue().splitlines())
    assert "a\x1b[2J" == ours["task_type"]
    assert ours["message"].startswith("a␛[2J failed")
    assert "a\x1b[2J" == theirs["message"]
