"""The lifespan of a server: entered and left in its own asyncio task, which can be abandoned."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pyasynq._background.time_limits import cancel_task, report_place

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from contextvars import Context

    from pyasynq._background.shutdown_watch import ShutdownWatch


class Lifespan:
    """One run of a user's async context manager.

    It is entered and left in the same task, as anyio's cancel scopes require. The task shares `context` with
    the tasks that the caller starts in it, so they see context variables that the lifespan sets.

    Args:
        make: returns the context manager.
        context: context of the task.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Any]], context: Context) -> None:
        self._make = make
        self._entered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(
            self._live(), name="pyasynq lifespan", context=context
        )

    @property
    def _is_entered(self) -> bool:
        """Whether the lifespan was entered successfully."""
        return self._entered.done() and not self._entered.cancelled() and self._entered.exception() is None

    async def wait_entered(self) -> Any:
        """Wait until the lifespan is entered; return its value, or raise its error.

        If the caller is cancelled, the start continues until `leave` is called.
        """
        return await asyncio.shield(self._entered)

    async def leave(self, watch: ShutdownWatch) -> bool:
        """Leave the lifespan, or cancel its start. Raises what its end raises.

        A lifespan that takes longer than the watch allows is reported, cancelled, and then left running.
        Returns whether it ended in time.
        """
        watch.stage = "the end of the lifespan" if self._is_entered else "the start of the lifespan"
        self._leave.set()
        if not self._entered.done():
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=watch.time_left()())
        if not self._task.done():
            watch.report(report_place(self._task))
            await cancel_task(self._task)
            return False
        if not self._task.cancelled():
            self._task.result()
        return True

    async def _live(self) -> None:
        try:
            async with self._make() as state:
                self._entered.set_result(state)
                await self._leave.wait()
        except asyncio.CancelledError:
            self._entered.cancel()
            raise
        except BaseException as error:
            # `wait_entered` raises this error. A SystemExit that leaves this asyncio task would end the event
            # loop.
            if self._entered.done():
                raise
            self._entered.set_exception(error)
