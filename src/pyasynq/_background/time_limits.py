"""Time limits of shutdowns: the time left, and the end of tasks that exceed them."""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from pyasynq._background.code_places import UNKNOWN_PLACE, find_executor_places, find_waiting_place
from pyasynq._checks import parse_seconds

if TYPE_CHECKING:
    from pyasynq.config import ServerConfig

CANCEL_SECONDS: Final = 0.25
"""Seconds that a cancelled task may take to end before it is left running."""
_reported: weakref.WeakSet[asyncio.Future[Any]] = weakref.WeakSet()
"""Hanging tasks that were reported, so that each is reported once. Used in the event loops' threads."""
_LEAST_SECONDS: Final = 0.1
"""Minimum seconds that a step gets, even after the limit: most steps take milliseconds."""


class TimeLeft:
    """Callable that returns the seconds left until a limit that all steps of a shutdown share.

    Args:
        seconds: seconds from now to the limit.
        least: smallest number of seconds returned, also after the limit.
    """

    def __init__(self, seconds: float, least: float = _LEAST_SECONDS) -> None:
        self._end = time.monotonic() + seconds
        self._least = least

    def __call__(self) -> float:
        """Return the seconds that the next step may take."""
        return max(self._least, self._end - time.monotonic())


def shutdown_limit(config: ServerConfig) -> float:
    """Return the seconds that a server's running tasks may take to end at a shutdown."""
    return parse_seconds("shutdown_timeout", config.shutdown_timeout) + parse_seconds(
        "cancel_timeout", config.cancel_timeout
    )


async def cancel_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait briefly for its end; a task that ignores the cancellation is left running."""
    task.cancel()
    await asyncio.wait({task}, timeout=CANCEL_SECONDS)


def report_place(task: asyncio.Task[Any]) -> str:
    """Return where a task waits, and mark it as reported, so that `clear_loop` does not name it again."""
    _reported.add(task)
    return find_waiting_place(task)


async def clear_loop(seconds: float) -> tuple[bool, list[str]]:
    """End the tasks, generators and threads that handlers have left on the loop.

    When a loop is closed, asyncio waits without limit for tasks that ignore their cancellation. It also waits
    for asynchronous generators that do not close, and for threads of its executor.
    Returns whether everything has ended, and the source lines of what still runs. Tasks that were reported
    before are left out.
    """
    loop, left = asyncio.get_running_loop(), TimeLeft(seconds)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    executor = asyncio.ensure_future(loop.shutdown_default_executor())
    await asyncio.wait({*tasks, executor}, timeout=left())
    late = {task for task in tasks if not task.done()}
    places = [report_place(task) for task in late if task not in _reported]
    # A generator that is still run by a task cannot be closed.
    hanging = [] if late else await _close_generators(left())
    if not executor.done():
        hanging += find_executor_places(loop)
    return not late and not hanging, places + hanging


async def _close_generators(seconds: float) -> list[str]:
    """Close the loop's asynchronous generators; return source lines of generators that do not close."""
    others = asyncio.all_tasks()
    closing = asyncio.ensure_future(asyncio.get_running_loop().shutdown_asyncgens())
    await asyncio.wait({closing}, timeout=seconds)
    if closing.done():
        return []
    return [find_waiting_place(task) for task in asyncio.all_tasks() - others - {closing}] or [UNKNOWN_PLACE]
