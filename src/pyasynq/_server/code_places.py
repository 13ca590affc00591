"""Whose code a stack frame runs, ours, the standard library's or the user's, and where attempts stand."""

from __future__ import annotations

import os
import sys
import traceback
from itertools import dropwhile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from pyasynq.errors import TaskTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    from pyasynq._server.attempt import Attempt

_OWN: Final = str(Path(__file__).parent.parent) + os.sep
_STANDARD: Final = str(Path(os.__file__).parent) + os.sep
_INSTALLED: Final = tuple(_STANDARD + name + os.sep for name in ("site-packages", "dist-packages"))
_LOOPS: Final = (_STANDARD + "asyncio" + os.sep, "<frozen runpy>")


def is_own(file: str) -> bool:
    """Return whether this is a file of pyasynq."""
    return file.startswith(_OWN)


def is_users(file: str) -> bool:
    """Return whether this is a file of neither pyasynq nor the standard library."""
    if file.startswith(_INSTALLED):
        return not is_own(file)
    return not file.startswith((_OWN, _STANDARD, "<frozen "))


def place_in(trace: TracebackType | None) -> str:
    """Return the innermost line of the user's, as in `tasks.py:12`; empty if there is none."""
    place = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_users(file):
            place = f"{Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def without_own_frames(trace: TracebackType | None, *, keep_end: bool) -> TracebackType | None:
    """Return a traceback without frames of pyasynq; the original is not changed.

    Args:
        trace: the traceback.
        keep_end: leave the frames of pyasynq at its inner end, in which an error that is none of ours arose.
    """
    chain = []
    while trace is not None:
        chain.append(trace)
        trace = trace.tb_next
    kept = None
    at_end = keep_end
    for one in reversed(chain):
        at_end = at_end and is_own(one.tb_frame.f_code.co_filename)
        if at_end or not is_own(one.tb_frame.f_code.co_filename):
            kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept


def blocking_stack(frame: FrameType | None) -> str:
    """Return what runs on an event loop, from the frames of its thread: the user's and what they called.

    Frames below the loop's callback are left out, and ours unless there are no others.
    """
    frames = list(traceback.walk_stack(frame))[::-1]
    below = max((i for i, (one, _) in enumerate(frames) if _is_loop(one)), default=-1)
    frames = frames[below + 1 :]
    others = [(one, line) for one, line in frames if not is_own(one.f_code.co_filename)]
    return _shown(others or frames)


def _is_loop(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_LOOPS)


def timeout_of(attempt: Attempt) -> TaskTimeoutError:
    """Return the error of an attempt whose time is over: it says the limit, and where the handler stands."""
    frames = [(one, line) for one, line in _frames_of(attempt) if not is_own(one.f_code.co_filename)]
    place = ""
    for one, line in frames:
        if is_users(one.f_code.co_filename):
            place = f"{Path(one.f_code.co_filename).name}:{line} in {one.f_code.co_name}"
    error = TaskTimeoutError(attempt.deadline - attempt.started, place)
    if place:
        error.add_note(f"The handler stood at:\n{_shown(frames).rstrip()}")
    return error


def _frames_of(attempt: Attempt) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames in which an attempt stands, outermost first: its coroutines', then its thread's."""
    awaited: Any = None if attempt.task is None else attempt.task.get_coro()
    while awaited is not None:
        frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            yield frame, frame.f_lineno
        awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
    if attempt.threads:
        thread = sys._current_frames().get(attempt.thread_id)  # noqa: SLF001 - the documented way
        stack = [] if thread is None else list(traceback.walk_stack(thread))[::-1]
        # It begins with the frames of `threading`, which call ours.
        yield from dropwhile(lambda pair: _is_standard(pair[0]), stack)


def _is_standard(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not is_users(file) and not is_own(file)


def _first(value: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(value, name, None)) is not None), None)


def _shown(frames: Iterable[tuple[FrameType, int]]) -> str:
    return "".join(traceback.StackSummary.extract(iter(frames)).format())
