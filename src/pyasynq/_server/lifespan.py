"""The lifespan of a server: entered and left by one asyncio task of its own, which can be given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pyasynq._server.code_places import waiting_place

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from contextvars import Context

_CANCEL_SECONDS = 0.25
"""How long a cancelled lifespan may take to end before it is left behind."""


class Lifespan:
    """One run of a user's async context manager.

    Both ends are in the same task, as cancel scopes of anyio need it. The task shares `context` with what
    the caller starts in it, so context variables that the lifespan sets are seen there.

    Args:
        make: returns the context manager.
        context: of the task.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Any]], context: Context) -> None:
        self._make = make
        self._entered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(
            self._live(), name="pyasynq lifespan", context=context
        )

    @property
    def is_entered(self) -> bool:
        """Whether its start has ended well."""
        return self._entered.done() and not self._entered.cancelled() and self._entered.exception() is None

    async def entered(self) -> Any:
        """Wait for the start, and return what it yields. Raises what it raises.

        Cancelled, it leaves the lifespan to `leave`.
        """
        return await asyncio.shield(self._entered)

    async def leave(self, seconds: float) -> str:
        """Leave the lifespan, or break its start off. Raises what its end raises.

        What takes longer than `seconds` is cancelled, and then left behind. Returns where it hung, or the
        empty string.
        """
        self._leave.set()
        if not self._entered.done():
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=seconds)
        if not self._task.done():
            place = waiting_place(self._task)
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CANCEL_SECONDS)
            return place
        if not self._task.cancelled():
            self._task.result()
        return ""

    async def _live(self) -> None:
        try:
            async with self._make() as state:
                self._entered.set_result(state)
                await self._leave.wait()
        except asyncio.CancelledError:
            self._entered.cancel()
            raise
        except BaseException as error:
            # `entered` raises it. A SystemExit in a task of its own would end the event loop here.
            if self._entered.done():
                raise
            self._entered.set_exception(error)
