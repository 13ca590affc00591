"""How an error is written down: one line for the message, the traceback for `x:trace`."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from pyasynq.control import ControlFlow
from pyasynq.errors import (
    HandlerNotFoundError,
    LeaseExpiredError,
    ReportedError,
    TaskCanceledError,
    TaskTimeoutError,
)

if TYPE_CHECKING:
    from types import TracebackType

_OWN_FOLDER = str(Path(__file__).parent.parent)
_PLAIN = (HandlerNotFoundError, LeaseExpiredError, ReportedError, TaskCanceledError, TaskTimeoutError)
_ELLIPSIS = b"\n...\n"


def error_line(error: BaseException, limit: int = 2_048) -> str:
    """Return `TypeName: message [file.py:123]`, valid UTF-8 of at most `limit` bytes.

    Where the message is too long, the place is kept. Errors that peers in Go have too keep Go's words; what
    was reported, `Archive` and `Retry` say what they say and no more.
    """
    if isinstance(error, (*_PLAIN, ControlFlow)):
        return _cut(_text_of(error), limit).decode()
    place = _place_of(_strip_own_frames(error.__traceback__))
    head = type(error).__name__
    text = _text_of(error)
    line = f"{head}: {text}" if text else head
    tail = f" [{place}]" if place else ""
    return (_cut(line, limit - len(_encode(tail))) + _encode(tail)).decode()


def trace_of(error: BaseException, limit: int = 16_384) -> bytes:
    """Return the traceback as UTF-8 of at most `limit` bytes; of a longer one the middle is left out."""
    if isinstance(error, _PLAIN) or _was_returned(error):
        return b""
    try:
        lines = traceback.format_exception(type(error), error, _strip_own_frames(error.__traceback__))
    except Exception as broken:  # noqa: BLE001 - an error whose own methods raise must still be settled
        lines = [f"{type(error).__name__}: the traceback cannot be formatted: {type(broken).__name__}\n"]
    encoded = _encode("".join(lines))
    if len(encoded) <= limit:
        return encoded
    head = limit // 4
    tail = limit - head - len(_ELLIPSIS)
    return _whole(encoded[:head]) + _ELLIPSIS + _whole(encoded[-tail:])


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


def _place_of(trace: TracebackType | None) -> str:
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - an error whose own methods raise must still be settled
        return f"(its text cannot be read: {type(broken).__name__})"


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _cut(text: str, limit: int) -> bytes:
    encoded = _encode(text[: limit + 1])
    if len(encoded) <= limit:
        return encoded
    return _whole(encoded[: max(0, limit - 3)]) + b"..."


def _whole(encoded: bytes) -> bytes:
    """Drop halves of characters that cutting left at either end."""
    return encoded.decode("utf-8", "ignore").encode()
