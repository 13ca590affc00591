"""Source lines of coroutines, threads and errors, and their owners: pyasynq, Python or the user."""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
from itertools import dropwhile
from pathlib import Path
from types import AsyncGeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq.errors import TaskTimeoutError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator, Sequence
    from types import FrameType

_OWN: Final = str(Path(__file__).parent.parent) + os.sep
_STANDARD: Final = str(Path(os.__file__).parent) + os.sep
_INSTALLED: Final = tuple(_STANDARD + name + os.sep for name in ("site-packages", "dist-packages"))
UNKNOWN_PLACE: Final = "an unknown place"
THREAD_PLACE: Final = "a place in a thread"
_ASYNCIO: Final = _STANDARD + "asyncio" + os.sep
_EXECUTOR: Final = f"{_STANDARD}concurrent{os.sep}futures{os.sep}thread.py"
_LOOPS: Final = (_ASYNCIO, "<frozen runpy>")


class HandlerPlace(NamedTuple):
    """Current position of a handler in the source code.

    Attributes:
        line: its innermost line, as in `tasks.py:12 in build`; empty if unknown.
        stack: its stack, as in a traceback; empty if unknown.
    """

    line: str = ""
    stack: str = ""


def is_own(file: str) -> bool:
    """Return whether this is a file of pyasynq."""
    return file.startswith(_OWN)


def is_users(file: str) -> bool:
    """Return whether this file belongs neither to pyasynq nor to the standard library."""
    if file.startswith(_INSTALLED):
        return not is_own(file)
    return not file.startswith((_OWN, _STANDARD, "<frozen "))


def find_user_line(trace: TracebackType | None) -> str:
    """Return the innermost line of user code, as in `tasks.py:12`; empty if there is none."""
    place = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_users(file):
            place = f"{Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def drop_own_frames(trace: TracebackType | None, *, keep_end: bool) -> TracebackType | None:
    """Return a traceback without frames of pyasynq; the original is not changed.

    Args:
        trace: the traceback.
        keep_end: keep the innermost frames of pyasynq, for an error that is not one of ours.
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


def find_waiting_place(task: asyncio.Task[Any]) -> str:
    """Return the innermost line, outside asyncio, at which a task waits."""
    place = UNKNOWN_PLACE
    for frame, line in _coroutine_frames(task):
        code = frame.f_code
        if not code.co_filename.startswith(_ASYNCIO):
            place = f"{code.co_filename}:{line} in {code.co_qualname}"
    return place


def find_thread_place(thread_id: int) -> str:
    """Return a thread's innermost line of user code; the thread's name if there is none."""
    for frame, line in reversed(_thread_frames(thread_id)):
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"
    name = next((one.name for one in threading.enumerate() if one.ident == thread_id), "")
    return f"a place in the thread {name}" if name else THREAD_PLACE


def find_executor_places(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return the source line of each busy thread in a loop's default executor.

    For a loop that hides its executor, as uvloop does, return the lines of all executors' busy threads.
    """
    executor = getattr(loop, "_default_executor", None)
    threads = getattr(executor, "_threads", None) or threading.enumerate()
    busy = [one.ident for one in threads if one.ident is not None and _runs_job(one.ident)]
    return [find_thread_place(thread_id) for thread_id in busy] or [THREAD_PLACE]


def _runs_job(thread_id: int) -> bool:
    """Return whether an executor's thread runs a function now; an idle one waits in `_worker`."""
    codes = [frame.f_code for frame, _ in _thread_frames(thread_id)]
    return any(code.co_filename == _EXECUTOR and code.co_name == "_worker" for code in codes[:-1])


def format_blocking_stack(thread_id: int) -> str:
    """Return the stack that runs on a thread's event loop: user frames and what they called.

    Frames of the event loop itself are left out. Frames of pyasynq are also left out, unless no others
    remain.
    """
    frames = _thread_frames(thread_id)
    frames = frames[_count_loop_frames(frames) :] or frames
    others = [(one, line) for one, line in frames if not is_own(one.f_code.co_filename)]
    return _format_stack(others or frames)


def build_timeout_error(
    seconds: float, task: asyncio.Task[Any] | None, thread_id: int | None
) -> TaskTimeoutError:
    """Build the error of a handler that timed out; it names the limit and the source line that was running.

    Args:
        seconds: the time limit.
        task: the asyncio task that runs the handler.
        thread_id: identifier of the thread that runs the handler, or None.
    """
    return make_timeout_error(seconds, find_handler_place(task, thread_id))


def make_timeout_error(seconds: float | None, place: HandlerPlace) -> TaskTimeoutError:
    """Make the error of a handler that timed out; `place` is its source line, left out if empty."""
    error = TaskTimeoutError(seconds, place.line)
    if place.line:
        error.add_note(f"The handler was at:\n{place.stack}")
    return error


def find_handler_place(task: asyncio.Task[Any] | None, thread_id: int | None) -> HandlerPlace:
    """Return the innermost line of user code of a handler, and its stack without frames of pyasynq."""
    every = _handler_frames(task, thread_id)
    frames = [(one, line) for one, line in every if not is_own(one.f_code.co_filename)]
    place = ""
    for one, line in frames:
        if is_users(one.f_code.co_filename):
            place = f"{Path(one.f_code.co_filename).name}:{line} in {one.f_code.co_name}"
    return HandlerPlace(place, _format_stack(frames).rstrip() if place else "")


def _handler_frames(task: asyncio.Task[Any] | None, thread_id: int | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a handler, outermost first: its coroutines', then its thread's."""
    if task is not None:
        yield from _coroutine_frames(task)
    if thread_id is not None:
        frames = _thread_frames(thread_id)
        if thread_id == threading.main_thread().ident:
            frames = frames[_count_loop_frames(frames) :]
        # A thread begins with frames of `threading`, which call ours.
        yield from dropwhile(lambda pair: _is_standard(pair[0]), frames)


def _count_loop_frames(frames: Sequence[tuple[FrameType, int]]) -> int:
    """Return how many of the outermost frames run an event loop."""
    return 1 + max((i for i, (one, _) in enumerate(frames) if _is_loop(one)), default=-1)


def _coroutine_frames(task: asyncio.Task[Any]) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a suspended task, outermost first."""
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame: FrameType | None = _get_first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            yield frame, frame.f_lineno
        inner = _get_first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
        if frame is None and inner is None:
            # The frame of an asynchronous generator is hidden behind its awaited step.
            hidden = gc.get_referents(awaited)
            inner = next((one for one in hidden if isinstance(one, AsyncGeneratorType)), None)
        awaited = inner


def _thread_frames(thread_id: int) -> list[tuple[FrameType, int]]:
    """Return the frames of a thread, outermost first; none if it has ended."""
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - the documented way to see another thread
    return [] if frame is None else list(traceback.walk_stack(frame))[::-1]


def _is_loop(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_LOOPS)


def _is_standard(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not is_users(file) and not is_own(file)


def _get_first(value: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(value, name, None)) is not None), None)


def _format_stack(frames: Iterable[tuple[FrameType, int]]) -> str:
    return "".join(traceback.StackSummary.extract(iter(frames)).format())
