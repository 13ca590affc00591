"""How errors are written down."""

from __future__ import annotations

import asyncio
import json
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App, Mux, Task
from pyasynq._engine.failure_text import error_line, format_trace, log_line, own_traceback
from pyasynq._engine.handlers.routes import make_router
from pyasynq._engine.run.outcome import reported_error
from pyasynq._payload import ArgumentsCodec
from pyasynq.control import Retry
from pyasynq.errors import (
    HandlerNotFoundError,
    LeaseExpiredError,
    PayloadDecodingError,
    TaskCanceledError,
    TaskTimeoutError,
)
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable


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
        ('handler not found for task "mial"', HandlerNotFoundError("mial", ["mail"])),
    ],
)
def test_errors_that_go_knows_keep_gos_words(words: str, error: BaseException) -> None:
    """Dashboards of peers show one text for one thing."""
    assert words == error_line(raised(error))
    assert b"" == format_trace(raised(error))


def test_w22_text_that_is_not_utf8_is_replaced() -> None:
    """Half a surrogate pair would keep the message from being encoded, and the task from being settled."""
    line = error_line(raised(ValueError("bad \ud800 text")))
    assert "bad ? text" in line
    line.encode()
    format_trace(raised(ValueError("bad \ud800 text"))).decode()


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
    trace = format_trace(raised(ValueError("x" * 50_000)))
    assert len(trace) <= 16_384
    assert trace.startswith(b"Traceback")
    assert b"\n...\n" in trace


def test_the_trace_shows_where_it_happened() -> None:
    """It is Python's own traceback."""
    trace = format_trace(raised(ValueError("bad"))).decode()
    assert "in raised" in trace
    assert "ValueError: bad" in trace


def test_an_error_whose_text_cannot_be_read_is_written_down_all_the_same() -> None:
    """A settle is never lost to the user's `__str__`."""
    assert "UnreadableError: (its text cannot be read: RuntimeError)" in error_line(raised(UnreadableError()))
    assert b"UnreadableError" in format_trace(raised(UnreadableError()))


def test_a_retry_without_retries_left_does_not_promise_another_attempt() -> None:
    """It stays the last error of the archived task; a reason comes before what it was raised from. (D31)"""
    assert "the handler asked for a retry" == error_line(reported_error(raised(Retry(5))))
    wish = Retry(5, reason="no answer")
    wish.__cause__ = TimeoutError("timed out")
    assert "no answer" == error_line(reported_error(wish))
    wish = Retry(5)
    wish.__cause__ = TimeoutError("timed out")
    assert "TimeoutError: timed out" == error_line(reported_error(wish))


async def fail(text: str) -> None:
    """Raise in a task of its own."""
    raise ValueError(text)


async def fail_in_group(*texts: str) -> None:
    """Let tasks of a group fail."""
    async with asyncio.TaskGroup() as group:
        for text in texts:
            group.create_task(fail(text))


@run_async
async def test_the_line_of_a_group_names_its_first_leaf_and_the_users_line() -> None:
    """Not only how many there are, and not a line of asyncio. (D32)"""
    lines = []
    for text in ("no such user", "no such card"):
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail_in_group(text, "other"))
        lines.append(error_line(caught.value))
    line = fail.__code__.co_firstlineno + 2
    assert [
        f"ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception): ValueError: {text} "
        f"[test_failure_text.py:{line}]"
        for text in ("no such user", "no such card")
    ] == lines


def test_the_place_is_the_users_line_and_not_the_standard_librarys() -> None:
    """The standard library refuses a call that the user's line made. (D33)"""

    def handler() -> None:
        json.loads("{")

    with pytest.raises(json.JSONDecodeError) as caught:
        handler()
    line = handler.__code__.co_firstlineno + 1
    assert f"[test_failure_text.py:{line}]" in error_line(caught.value)


def test_an_error_that_only_we_raise_has_no_place() -> None:
    """A line of ours tells nothing, and its traceback holds none either. (D33)"""
    try:
        ArgumentsCodec(fail, {"text": str}, owner="task 't'").decode(b"{}")
    except PayloadDecodingError as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        line, trace = error_line(error), format_trace(error).decode()
    assert line.endswith("missing 'text'")
    assert "File" not in trace
    assert "missing 'text'" in trace


async def stop(task: Task, call_next: Callable[[Task], Any]) -> None:
    """Raise what no coroutine may raise."""
    raise StopIteration


@run_async
async def test_an_error_that_python_raises_for_the_user_has_the_place_of_its_cause() -> None:
    """Its own traceback holds no frame of the coroutine. (D33)"""
    mux = Mux()
    mux.handle("t", fail)  # type: ignore[arg-type]
    mux.use(stop)
    with pytest.raises(RuntimeError) as caught:
        await mux.route("t").call(Task("t"))  # type: ignore[misc]
    # The frames of this test stand for those of the engine.
    error = caught.value.with_traceback(caught.value.__traceback__ and caught.value.__traceback__.tb_next)
    place = f"[test_failure_text.py:{stop.__code__.co_firstlineno + 2}]"
    assert f"RuntimeError: coroutine raised StopIteration {place}" == error_line(error)


async def observe(task: Task, call_next: Callable[[Task], Any]) -> Any:
    """Stand between our frames and the handler's."""
    return await call_next(task)


async def quote(task: Task, call_next: Callable[[Task], Any]) -> Any:
    """Raise another error than the handler."""
    try:
        return await call_next(task)
    except ValueError as error:
        raise LookupError("quoted") from error


@run_async
async def test_tracebacks_hold_no_frames_of_ours_between_middleware_and_handler() -> None:
    """This holds for the error, for its causes, and for the log. (D33)"""
    app, mux = App("redis://127.0.0.1:1"), Mux()
    app.task("t")(fail)
    app.use(observe)
    app.use(quote)
    mux.handle("t", fail)  # type: ignore[arg-type]
    mux.use(observe, quote)
    for router in (app, mux):
        route = make_router(router).route("t")
        assert route is not None
        with pytest.raises(LookupError) as caught:
            await route.call(Task("t", b'{"text":"x"}'))  # type: ignore[misc]
        trace = format_trace(caught.value).decode()
        assert "middleware.py" not in trace
        assert "routes.py" not in trace
        assert ["observe", "quote", "fail"] == [
            name for name in ("observe", "quote", "fail") if f"in {name}\n" in trace
        ]
        shown = "".join(traceback.format_tb(own_traceback(caught.value)))
        assert "middleware.py" not in shown
        assert "in quote" in shown


def test_facts_besides_the_text_of_asynq_are_in_the_log() -> None:
    """Limit and place of a timeout, the nearest name of an unknown type. (D37)"""
    timeout = TaskTimeoutError(1.5, "shop.py:12 in fetch")
    timeout.add_note("The handler was at:\n  File shop.py, line 12, in fetch")
    assert "context deadline exceeded" == error_line(timeout)
    assert "context deadline exceeded after 1.5 s at shop.py:12 in fetch" == log_line(timeout)
    assert "line 12, in fetch" in format_trace(timeout).decode()
    unknown = HandlerNotFoundError("mial", ["mail"])
    assert "handler not found for task \"mial\"; did you mean 'mail'?" == log_line(unknown)


@run_async
async def test_an_unknown_type_gets_the_nearest_one() -> None:
    """An app with middleware and a mux both suggest it. (D37)"""
    app, mux = App("redis://127.0.0.1:1"), Mux()
    app.task("email:deliver")(fail)
    app.use(observe)
    mux.handle("email:deliver", fail)  # type: ignore[arg-type]
    for router in (app, mux):
        route = make_router(router).route("emial:deliver")
        assert route is not None
        with pytest.raises(HandlerNotFoundError, match="did you mean 'email:deliver'"):
            await route.call(Task("emial:deliver"))  # type: ignore[misc]
