"""The middleware `task_run`: logs start, end, duration, host, outcome and error of each attempt."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.context import context
from pyasynq.control import Archive, Cancel, Retry, Snooze, find_control

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq.task import Task

_HOST: Final = socket.gethostname()
_LONGEST_ERROR: Final = 300
_OUTCOMES: Final = ((Snooze, "snoozed"), (Cancel, "cancelled"), (Archive, "archived"), (Retry, "retried"))


async def task_run(
    task: Task, call_next: Callable[[Task], Awaitable[bytes | str | None]]
) -> bytes | str | None:
    """Log the start and the end of an attempt, as two lines of the logger `pyasynq.task`.

    Both lines have the task's fields and `host`. The second one also has `outcome`, `seconds` and `error`.
    A worker with this middleware that takes its tasks from Redis also publishes events of its tasks.
    """
    running = context()
    log = running.log
    log.info("task %s begins", running.task_id, extra={"host": _HOST})
    began = time.monotonic()
    outcome, error = "succeeded", ""
    try:
        return await call_next(task)
    except asyncio.CancelledError:
        reason = running.cancelled.reason
        outcome, error = "cancelled", reason.value if reason else ""
        raise
    except BaseException as raised:
        outcome, error = _read_outcome(raised)
        raise
    finally:
        seconds = time.monotonic() - began
        extra = {"host": _HOST, "outcome": outcome, "seconds": round(seconds, 6), "error": error}
        why = f": {error}" if error else ""
        log.info("task %s %s after %.3f s%s", running.task_id, outcome, seconds, why, extra=extra)


def _read_outcome(raised: BaseException) -> tuple[str, str]:
    wish = find_control(raised)
    line = visible(f"{type(raised).__name__}: {raised}".partition("\n")[0])[:_LONGEST_ERROR]
    for kind, outcome in _OUTCOMES:
        if isinstance(wish, kind):
            return outcome, line
    return "failed", line
