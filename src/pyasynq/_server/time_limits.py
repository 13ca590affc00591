"""Time limits of shutdowns: what is left of them, and how that ends which does not keep them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import seconds_of
from pyasynq._server.code_places import THREAD_PLACE, waiting_place

if TYPE_CHECKING:
    from pyasynq.config import ServerConfig

CANCEL_SECONDS: Final = 0.25
"""How long what was cancelled may take to end, before it is left behind."""
_LEAST_SECONDS: Final = 0.1
"""What a step gets although the time is over: most steps take milliseconds."""


class TimeLeft:
    """Returns, when called, how many seconds are left until a limit that all steps of a shutdown share.

    Args:
        seconds: from now to the limit.
        least: what it returns at least, also after the limit.
    """

    def __init__(self, seconds: float, least: float = _LEAST_SECONDS) -> None:
        self._end = time.monotonic() + seconds
        self._least = least

    def __call__(self) -> float:
        """Return the seconds that the next step may take."""
        return max(self._least, self._end - time.monotonic())


def shutdown_limit(config: ServerConfig) -> float:
    """Return how many seconds a server's running tasks may take to end at a shutdown."""
    return seconds_of("shutdown_timeout", config.shutdown_timeout) + seconds_of(
        "cancel_timeout", config.cancel_timeout
    )


async def cancel_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait briefly for its end; one that swallows the cancellation is left behind."""
    task.cancel()
    await asyncio.wait({task}, timeout=CANCEL_SECONDS)


async def clear_loop(seconds: float) -> list[str]:
    """End what handlers have left behind on the loop; return where that waits which does not end in time.

    When a loop is closed, asyncio waits without limit for tasks that swallow their cancellation, and for
    threads of its executor.
    """
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    executor = asyncio.ensure_future(asyncio.get_running_loop().shutdown_default_executor())
    _, late = await asyncio.wait({*left, executor}, timeout=seconds)
    return [THREAD_PLACE if task is executor else waiting_place(task) for task in late]
