"""Where a suspended coroutine or a thread stands, for reports of what hangs."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

UNKNOWN_PLACE = "an unknown place"
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")
_FRAMES = ("cr_frame", "gi_frame", "ag_frame")


def waiting_place(task: asyncio.Task[Any]) -> str:
    """Return the innermost line, outside of asyncio, at which a task waits."""
    place = UNKNOWN_PLACE
    awaited: object = task.get_coro()
    while awaited is not None:
        frame: FrameType | None = _first(awaited, _FRAMES)
        if frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] != "asyncio":
            place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        inner = _first(awaited, _AWAITED)
        if frame is not None and _first(inner, _FRAMES) is None:
            # An asynchronous generator hides behind the step that is awaited; contextlib keeps it.
            inner = getattr(frame.f_locals.get("self"), "gen", inner)
        awaited = inner if inner is not awaited else None
    return place


def thread_stack(thread_id: int) -> str:
    """Return the stack of a thread, as text; empty if it has ended."""
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - the documented way to see another thread
    return "".join(traceback.format_stack(frame)) if frame is not None else ""


def _first(thing: object, names: tuple[str, ...]) -> Any:
    return next((getattr(thing, name) for name in names if hasattr(thing, name)), None)
