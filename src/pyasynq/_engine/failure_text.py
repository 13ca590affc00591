"""How an error is written down: one line for the message, the traceback for `x:trace`."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, NamedTuple

from pyasynq._background.code_places import is_own, place_in, without_own_frames
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
    """What is written down of an error that was raised in another process: nobody can read it off the error.

    Attributes:
        name: of its class, which may be another one here.
        text: what it said there.
        place: file and line.
        trace: its traceback.
    """

    name: str
    text: str
    place: str
    trace: bytes


def note_elsewhere(error: BaseException, elsewhere: RemoteFailure) -> None:
    """Remember with an error what is known of it from another process."""
    vars(error)[_ELSEWHERE] = elsewhere
    if elsewhere.trace:
        error.add_note(f"In the child process:\n{elsewhere.trace.decode().rstrip()}")


def elsewhere_of(error: BaseException) -> RemoteFailure | None:
    """Return what is known of an error from another process; None for one that was raised in this one."""
    found: RemoteFailure | None = vars(error).get(_ELSEWHERE)
    return found


def error_line(error: BaseException, limit: int = 2_048) -> str:
    """Return `TypeName: message [file.py:123]`, valid UTF-8 of at most `limit` bytes, as Redis keeps it.

    Where the message is too long, the place is kept. Errors that peers in Go have too keep Go's words; what
    was reported, `Archive` and `Retry` say what they say and no more. A group names its first leaf.
    """
    if isinstance(error, HandlerNotFoundError | TaskTimeoutError):
        return _cut(error.words, limit).decode()
    return log_line(error, limit)


def log_line(error: BaseException, limit: int = 2_048) -> str:
    """Return what `error_line` returns, and what is known besides Go's words."""
    if isinstance(error, (*_PLAIN, ControlFlow)):
        return _cut(text_of(error), limit).decode()
    line = _headline(error)
    if isinstance(error, BaseExceptionGroup):
        line += f": {_headline(_first_leaf(error))}"
    place = place_of(error)
    tail = f" [{place}]" if place else ""
    return (_cut(line, limit - len(_encode(tail))) + _encode(tail)).decode()


def _headline(error: BaseException) -> str:
    elsewhere = elsewhere_of(error)
    name = type(error).__name__ if elsewhere is None else elsewhere.name
    text = text_of(error) if elsewhere is None else elsewhere.text
    return f"{name}: {text}" if text else name


def _first_leaf(error: BaseException) -> BaseException:
    """Return the first error of a group, or of the groups in it, that is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def trace_of(error: BaseException, limit: int = 16_384) -> bytes:
    """Return the traceback as UTF-8 of at most `limit` bytes; of a longer one the middle is left out."""
    elsewhere = elsewhere_of(error)
    if elsewhere is not None:
        return _shortened(elsewhere.trace, limit)
    if (isinstance(error, _PLAIN) and not getattr(error, "__notes__", ())) or _was_returned(error):
        return b""
    return _shortened(_encode(_format(error)), limit)


def log_trace(error: BaseException) -> str:
    """Return the traceback for a log; of a long one, such as that of an error with a long text, a part."""
    return shorten_middle(_format(error).rstrip("\n"))


def _format(error: BaseException) -> str:
    try:
        formatted = traceback.TracebackException(type(error), error, own_traceback(error))
        _drop_own_frames(formatted, error)
        return "".join(formatted.format())
    except Exception as broken:  # noqa: BLE001 - an error whose own methods raise must still be settled
        return f"{type(error).__name__}: the traceback cannot be formatted: {type(broken).__name__}\n"


def place_of(error: BaseException) -> str:
    """Return the innermost line of the user's that raised an error, as in `tasks.py:12`; empty for none.

    A group's is that of its first leaf, if that has one. Python raises a `RuntimeError` for a coroutine that
    raises StopIteration outside of it; then the place is that of the cause.
    """
    leaf = _first_leaf(error)
    for one in (leaf, error, leaf.__cause__ or leaf):
        elsewhere = elsewhere_of(one)
        place = place_in(one.__traceback__) if elsewhere is None else elsewhere.place
        if place:
            return place
    return ""


def text_of(error: BaseException) -> str:
    """Return what an error says, whatever its own methods raise."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - an error whose own methods raise must still be settled
        return f"(its text cannot be read: {type(broken).__name__})"


def own_traceback(error: BaseException) -> TracebackType | None:
    """Return an error's traceback for a log; None where it says nothing of the handler: it ran elsewhere."""
    if elsewhere_of(error) is not None or isinstance(error, ChildProcessDiedError):
        return None
    # Python raises an error of its own in our frame where a handler raises what no coroutine may raise.
    is_replaced = isinstance(error, RuntimeError) and isinstance(
        error.__cause__, StopIteration | StopAsyncIteration
    )
    return without_own_frames(
        error.__traceback__, keep_end=not (is_replaced or isinstance(error, PyasynqError))
    )


def says_no_more_than_its_line(error: BaseException) -> bool:
    """Return whether a traceback of this error would only repeat its log line.

    So it is with `Retry` and its like, wherever they were raised, and with errors of pyasynq in which no line
    of the user's stands, unless something else caused them.
    """
    if isinstance(error, HandlerNotFoundError):
        return True
    if not isinstance(error, PyasynqError):
        return False
    if isinstance(error, ControlFlow):
        elsewhere = elsewhere_of(error)
        if elsewhere is not None:
            # In the child process its cause was part of the text.
            return elsewhere.trace.count(_TRACEBACK) <= 1
    elif place_in(error.__traceback__):
        return False
    if getattr(error, "__notes__", ()):
        return False
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return before is None or says_no_more_than_its_line(before)


def _drop_own_frames(formatted: traceback.TracebackException, error: BaseException) -> None:
    """Leave our frames out of the causes and members of an error too."""
    others = [formatted.__cause__, formatted.__context__, *(formatted.exceptions or ())]
    for one in (one for one in others if one is not None):
        kept = [frame for frame in one.stack if not is_own(frame.filename)]
        if kept or issubclass(one.exc_type or Exception, PyasynqError):
            one.stack = traceback.StackSummary.from_list(kept)
        _drop_own_frames(one, error)


def shorten(text: str, limit: int) -> str:
    """Return the text as valid UTF-8 of at most `limit` bytes; what was cut ends with three dots."""
    return _cut(text, limit).decode()


def _was_returned(error: BaseException) -> bool:
    """Return whether a handler returned what others raise; then no frame of it says anything."""
    if not isinstance(error, ControlFlow) or error.__cause__ or error.__context__:
        return False
    return without_own_frames(error.__traceback__, keep_end=False) is None


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _cut(text: str, limit: int) -> bytes:
    encoded = _encode(text[: limit + 1])
    if len(encoded) <= limit:
        return encoded
    return _whole(encoded[: max(0, limit - 3)]) + b"..."


def _shortened(trace: bytes, limit: int) -> bytes:
    if len(trace) <= limit:
        return trace
    head = limit // 4
    tail = limit - head - len(_ELLIPSIS)
    return _whole(trace[:head]) + _ELLIPSIS + _whole(trace[-tail:])


def _whole(encoded: bytes) -> bytes:
    """Drop halves of characters that cutting left at either end."""
    return encoded.decode("utf-8", "ignore").encode()
