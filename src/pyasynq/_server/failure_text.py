"""How an error is written down: one line for the message, the traceback for `x:trace`."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyasynq.control import ControlFlow
from pyasynq.errors import (
    ChildProcessDiedError,
    HandlerNotFoundError,
    LeaseExpiredError,
    ReportedError,
    TaskCanceledError,
    TaskTimeoutError,
)

if TYPE_CHECKING:
    from types import TracebackType

_OWN_FOLDER = str(Path(__file__).parent.parent)
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


class Elsewhere(NamedTuple):
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


def note_elsewhere(error: BaseException, elsewhere: Elsewhere) -> None:
    """Remember with an error what is known of it from another process."""
    vars(error)[_ELSEWHERE] = elsewhere
    if elsewhere.trace:
        error.add_note(f"In the child process:\n{elsewhere.trace.decode().rstrip()}")


def elsewhere_of(error: BaseException) -> Elsewhere | None:
    """Return what is known of an error from another process; None for one that was raised in this one."""
    found: Elsewhere | None = vars(error).get(_ELSEWHERE)
    return found


def error_line(error: BaseException, limit: int = 2_048) -> str:
    """Return `TypeName: message [file.py:123]`, valid UTF-8 of at most `limit` bytes.

    Where the message is too long, the place is kept. Errors that peers in Go have too keep Go's words; what
    was reported, `Archive` and `Retry` say what they say and no more.
    """
    if isinstance(error, (*_PLAIN, ControlFlow)):
        return _cut(text_of(error), limit).decode()
    elsewhere = elsewhere_of(error)
    if elsewhere is None:
        head, text, place = type(error).__name__, text_of(error), place_of(error)
    else:
        head, text, place = elsewhere.name, elsewhere.text, elsewhere.place
    line = f"{head}: {text}" if text else head
    tail = f" [{place}]" if place else ""
    return (_cut(line, limit - len(_encode(tail))) + _encode(tail)).decode()


def trace_of(error: BaseException, limit: int = 16_384) -> bytes:
    """Return the traceback as UTF-8 of at most `limit` bytes; of a longer one the middle is left out."""
    elsewhere = elsewhere_of(error)
    if elsewhere is not None:
        return _shortened(elsewhere.trace, limit)
    if isinstance(error, _PLAIN) or _was_returned(error):
        return b""
    try:
        lines = traceback.format_exception(type(error), error, _strip_own_frames(error.__traceback__))
    except Exception as broken:  # noqa: BLE001 - an error whose own methods raise must still be settled
        lines = [f"{type(error).__name__}: the traceback cannot be formatted: {type(broken).__name__}\n"]
    return _shortened(_encode("".join(lines)), limit)


def place_of(error: BaseException) -> str:
    """Return file and line in which an error was raised, as in `tasks.py:12`; empty for none."""
    trace = _strip_own_frames(error.__traceback__)
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


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
    return error.__traceback__


def shorten(text: str, limit: int) -> str:
    """Return the text as valid UTF-8 of at most `limit` bytes; what was cut ends with three dots."""
    return _cut(text, limit).decode()


def _strip_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of the library above the handler's; all of them when there are no others."""
    left = trace
    while left is not None and left.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
        left = left.tb_next
    return left or trace


def _was_returned(error: BaseException) -> bool:
    """Return whether a handler returned what others raise; then no frame of it says anything."""
    if not isinstance(error, ControlFlow) or error.__cause__ or error.__context__:
        return False
    left = _strip_own_frames(error.__traceback__)
    return left is None or left.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER)


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
