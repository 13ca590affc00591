"""How errors are written down."""

from __future__ import annotations

import pytest

from pyasynq._server.failure_text import error_line, trace_of
from pyasynq.errors import HandlerNotFoundError, LeaseExpiredError, TaskCanceledError, TaskTimeoutError


def raised(error: BaseException) -> BaseException:
    """Return the error with a traceback."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - any error will do
        return caught


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_the_line_names_the_type_the_message_and_the_place() -> None:
    """`TypeName: message [file.py:123]`, the place being where it was raised."""
    line = error_line(raised(ValueError("bad user")))
    assert line.startswith("ValueError: bad user [test_failure_text.py:")
    assert line.endswith("]")


def test_an_error_without_a_message_is_its_type() -> None:
    """No empty text after a colon."""
    assert error_line(raised(ValueError())).startswith("ValueError [")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("context deadline exceeded", TaskTimeoutError()),
        ("context canceled", TaskCanceledError()),
        ("asynq: task lease expired", LeaseExpiredError()),
        ('handler not found for task "x"', HandlerNotFoundError("x")),
    ],
)
def test_errors_that_go_knows_keep_gos_words(words: str, error: BaseException) -> None:
    """Dashboards of peers show one text for one thing."""
    assert words == error_line(raised(error))
    assert b"" == trace_of(raised(error))


def test_w22_text_that_is_not_utf8_is_replaced() -> None:
    """Half a surrogate pair would keep the message from being encoded, and the task from being settled."""
    line = error_line(raised(ValueError("bad \ud800 text")))
    assert "bad ? text" in line
    line.encode()
    trace_of(raised(ValueError("bad \ud800 text"))).decode()


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\U0001f600"])
def test_the_line_has_at_most_two_kilobytes_and_keeps_the_place(letter: str) -> None:
    """Cut between characters, in bytes of UTF-8."""
    line = error_line(raised(ValueError(letter * 5_000)))
    assert len(line.encode()) <= 2_048
    assert len(line.encode()) > 2_000
    assert "..." in line
    assert "[test_failure_text.py:" in line


def test_the_trace_has_at_most_sixteen_kilobytes_and_keeps_both_ends() -> None:
    """The middle of a long one is left out."""
    trace = trace_of(raised(ValueError("x" * 50_000)))
    assert len(trace) <= 16_384
    assert trace.startswith(b"Traceback")
    assert b"\n...\n" in trace


def test_the_trace_shows_where_it_happened() -> None:
    """It is Python's own traceback."""
    trace = trace_of(raised(ValueError("bad"))).decode()
    assert "in raised" in trace
    assert "ValueError: bad" in trace


def test_an_error_whose_text_cannot_be_read_is_written_down_all_the_same() -> None:
    """A settle is never lost to the user's `__str__`."""
    assert "UnreadableError: (its text cannot be read: RuntimeError)" in error_line(raised(UnreadableError()))
    assert b"UnreadableError" in trace_of(raised(UnreadableError()))
