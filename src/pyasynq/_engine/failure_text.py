"""Text form of errors: one line for the message, the traceback for `x:trace`."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, NamedTuple

from pyasynq._background.code_places import drop_own_frames, find_user_line, is_own
from pyasynq._human_text import shorten_middle
from pyasynq.control import ControlFlow
from pyasynq.errors import (
    ChildProcessDiedError,
    HandlerNotFoundError,
    LeaseExpiredError,
    PyasynqError,
    ReportedError,
    TaskCanceledError,
    TaskTimeoutError,
)

if TYPE_CHECKING:
    from types import TracebackType

_PLAIN = (
    ChildProcessDiedError,
    HandlerNotFoundError,
    LeaseExpiredError,
    ReportedError,
    TaskCanceledError,
    TaskTimeoutError,
)
_ELLIPSIS = b"\n...\n"
_ELSEWHERE = "_pyasynq_elsewhere"
_TRACEBACK = b"Traceback (most recent call last)"


class RemoteFailure(NamedTuple):
    """The text form of an error raised in another process, where it cannot be read off the error itself.

    Attributes:
        name: name of the error's class in that process.
        text: the error's text in that process.
        place: file and line.
        trace: its traceback.
    """

    name: str
    text: str
    place: str
    trace: bytes


def note_elsewhere(error: BaseException, elsewhere: RemoteFailure) -> None:
    """Attach to an error the text and traceback that it had in a child process (remote traceback)."""
    vars(error)[_ELSEWHERE] = elsewhere
    if elsewhere.trace:
        error.add_note(f"In the child process:\n{elsewhere.trace.decode().rstrip()}")


def find_remote_failure(error: BaseException) -> RemoteFailure | None:
    """Return an error's text form in another process; None for an error raised in this process."""
    found: RemoteFailure | None = vars(error).get(_ELSEWHERE)
    return found


def error_line(error: BaseException, limit: int = 2_048) -> str:
    """Return `TypeName: message [file.py:123]`, valid UTF-8 of at most `limit` bytes, as stored in Redis.

    A message that is too long is cut, and the file and line are kept. Errors that Asynq in Go has too get its
    text. Reported errors, `Archive` and `Retry` are written as their message alone. The line of an exception
    group also has the message of its first leaf error.
    """
    if isinstance(error, HandlerNotFoundError | TaskTimeoutError):
        return _cut(error.words, limit).decode()
    return log_line(error, limit)


def log_line(error: BaseException, limit: int = 2_048) -> str:
    """Return the line of `error_line` for a log, with details that the texts of Go's errors do not have."""
    if isinstance(error, (*_PLAIN, ControlFlow)):
        return _cut(format_text(error), limit).decode()
    line = _headline(error)
    if isinstance(error, BaseExceptionGroup):
        line += f": {_headline(_first_leaf(error))}"
    place = find_place(error)
    tail = f" [{place}]" if place else ""
    return (_cut(line, limit - len(_encode(tail))) + _encode(tail)).decode()


def _headline(error: BaseException) -> str:
    elsewhere = find_remote_failure(error)
    name = type(error).__name__ if elsewhere is None else elsewhere.name
    text = format_text(error) if elsewhere is None else elsewhere.text
    return f"{name}: {text}" if text else name


def _first_leaf(error: BaseException) -> BaseException:
    """Return the first error of a group, or of the groups in it, that is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def format_trace(error: BaseException, limit: int = 16_384) -> bytes:
    """Return the traceback as UTF-8 of at most `limit` bytes; the middle of a longer one is left out.

    Empty for a returned control value, and for errors that no handler raised and that have no notes.
    """
    elsewhere = find_remote_failure(error)
    if elsewhere is not None:
        return _shorten(elsewhere.trace, limit)
    if (isinstance(error, _PLAIN) and not getattr(error, "__notes__", ())) or _was_returned(error):
        return b""
    return _shorten(_encode(_format(error)), limit)


def log_trace(error: BaseException) -> str:
    """Return the traceback for a log; the middle of a long traceback is left out."""
    return shorten_middle(_format(error).rstrip("\n"))


def _format(error: BaseException) -> str:
    try:
        formatted = traceback.TracebackException(type(error), error, own_traceback(error))
        _drop_own_frames(formatted, error)
        return "".join(formatted.format())
    except Exception as broken:  # noqa: BLE001 - an error whose own methods raise must still be settled
        return f"{type(error).__name__}: the traceback cannot be formatted: {type(broken).__name__}\n"


def find_place(error: BaseException) -> str:
    """Return the innermost line of user code that raised an error, as in `tasks.py:12`; empty for none.

    For an exception group, return the line of its first leaf error, if user code raised that error. If a
    coroutine raises StopIteration, Python replaces it by a `RuntimeError`; then return the line of the cause.
    """
    leaf = _first_leaf(error)
    for one in (leaf, error, leaf.__cause__ or leaf):
        elsewhere = find_remote_failure(one)
        place = find_user_line(one.__traceback__) if elsewhere is None else elsewhere.place
        if place:
            return place
    return ""


def format_text(error: BaseException) -> str:
    """Return an error's text, even if its own methods raise."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - an error whose own methods raise must still be settled
        return f"(its text cannot be read: {type(broken).__name__})"


def own_traceback(error: BaseException) -> TracebackType | None:
    """Return an error's traceback for a log, without frames of pyasynq around the user's.

    None if the handler ran in another process, because then the traceback has no line of the handler.
    """
    if find_remote_failure(error) is not None or isinstance(error, ChildProcessDiedError):
        return None
    # A coroutine must not raise StopIteration: Python replaces it by a RuntimeError raised in our frame.
    is_replaced = isinstance(error, RuntimeError) and isinstance(
        error.__cause__, StopIteration | StopAsyncIteration
    )
    return drop_own_frames(error.__traceback__, keep_end=not (is_replaced or isinstance(error, PyasynqError)))


def says_no_more_than_its_line(error: BaseException) -> bool:
    """Return whether a traceback of this error would only repeat its log line.

    This is the case for control-flow errors such as `Retry`, and for errors of pyasynq that no user code
    raised. It is not the case for an error with notes, or with a cause whose traceback says more.
    """
    if isinstance(error, HandlerNotFoundError):
        return True
    if not isinstance(error, PyasynqError):
        return False
    if isinstance(error, ControlFlow):
        elsewhere = find_remote_failure(error)
        if elsewhere is not None:
            # The traceback text from the child process includes the error's cause.
            return elsewhere.trace.count(_TRACEBACK) <= 1
    elif find_user_line(error.__traceback__):
        return False
    if getattr(error, "__notes__", ()):
        return False
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return before is None or says_no_more_than_its_line(before)


def _drop_own_frames(formatted: traceback.TracebackException, error: BaseException) -> None:
    """Remove pyasynq's frames from the tracebacks of an error's causes and of a group's members."""
    others = [formatted.__cause__, formatted.__context__, *(formatted.exceptions or ())]
    for one in (one for one in others if one is not None):
        kept = [frame for frame in one.stack if not is_own(frame.filename)]
        if kept or issubclass(one.exc_type or Exception, PyasynqError):
            one.stack = traceback.StackSummary.from_list(kept)
        _drop_own_frames(one, error)


def shorten_bytes(text: str, limit: int) -> str:
    """Return the text as valid UTF-8 of at most `limit` bytes; cut text ends with three dots."""
    return _cut(text, limit).decode()


def _was_returned(error: BaseException) -> bool:
    """Return whether a handler returned a control value; then its traceback has no frame of the user."""
    if not isinstance(error, ControlFlow) or error.__cause__ or error.__context__:
        return False
    return drop_own_frames(error.__traceback__, keep_end=False) is None


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _cut(text: str, limit: int) -> bytes:
    encoded = _encode(text[: limit + 1])
    if len(encoded) <= limit:
        return encoded
    return _drop_halves(encoded[: max(0, limit - 3)]) + b"..."


def _shorten(trace: bytes, limit: int) -> bytes:
    if len(trace) <= limit:
        return trace
    head = limit // 4
    tail = limit - head - len(_ELLIPSIS)
    return _drop_halves(trace[:head]) + _ELLIPSIS + _drop_halves(trace[-tail:])


def _drop_halves(encoded: bytes) -> bytes:
    """Drop incomplete UTF-8 characters that a cut has left at either end."""
    return encoded.decode("utf-8", "ignore").encode()
