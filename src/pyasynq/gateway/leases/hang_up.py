"""Detection of clients that disconnect, while a request waits and when its answer is sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

_T = TypeVar("_T")


class ClientGoneError(Exception):
    """Error: the client has closed its connection."""


class HangUpWatch:
    """Watches, from `start` to `stop`, whether the client of a request disconnects.

    The body of the request must have been read before.
    """

    def __init__(self, request: Request) -> None:
        self._receive = request.receive
        self._work: asyncio.Timeout | None = None
        """Timeout scope of the work while it runs; it expires when the client disconnects."""
        self._task: asyncio.Task[None] | None = None
        self.is_gone = False
        """Whether the client has disconnected."""

    def start(self) -> None:
        """Begin to watch."""
        self._task = asyncio.create_task(self._watch(), name="pyasynq hang-up watch")

    async def stop(self) -> None:
        """End the watch."""
        self.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})

    def cancel(self) -> None:
        """End the watch, but do not wait for its asyncio task to end: the wait would double the cost."""
        if self._task is not None:
            self._task.cancel()

    async def run(self, work: Coroutine[Any, Any, _T], undo: Callable[[_T], None]) -> _T:
        """Return the result of work, which is cancelled when the client disconnects.

        Args:
            work: a coroutine.
            undo: called with a result that came after the disconnect.

        Raises:
            ClientGoneError: the client has disconnected.
        """
        scope = self._work = asyncio.timeout(0 if self.is_gone else None)
        try:
            async with scope:
                result = await work
        except TimeoutError:
            if not scope.expired():
                raise
            raise ClientGoneError from None
        finally:
            self._work = None
        if self.is_gone:
            undo(result)
            raise ClientGoneError
        return result

    async def _watch(self) -> None:
        message: Message = {"type": ""}
        while message["type"] != "http.disconnect":
            message = await self._receive()
        self.is_gone = True
        if self._work is not None:
            self._work.reschedule(asyncio.get_running_loop().time())


class ReturnableResponse(Response):
    """A response that calls back if the client disconnects before the body is sent.

    Args:
        content: the body.
        watch: `HangUpWatch` of the request; the response stops it.
        on_unsent: called if the client disconnects before the body is sent.
    """

    def __init__(self, content: bytes, watch: HangUpWatch, on_unsent: Callable[[], None]) -> None:
        super().__init__(content, media_type="application/json", headers={"Cache-Control": "no-store"})
        self._watch = watch
        self._on_unsent = on_unsent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        is_sent = False

        async def send_watched(message: Message) -> None:
            nonlocal is_sent
            if message["type"] == "http.response.body" and self._watch.is_gone:
                return
            await send(message)
            is_sent = message["type"] == "http.response.body"

        try:
            await super().__call__(scope, receive, send_watched)
        finally:
            if not is_sent:
                self._on_unsent()
            self._watch.cancel()
