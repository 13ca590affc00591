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
    """The client has closed its connection."""


class HangUpWatch:
    """Watches the connection of a request whose body was read, from `start` to `stop`."""

    def __init__(self, request: Request) -> None:
        self._receive = request.receive
        self._task: asyncio.Task[None] | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the client has disconnected."""
        return self._task is not None and self._task.done() and not self._task.cancelled()

    def start(self) -> None:
        """Begin to watch."""
        self._task = asyncio.create_task(self._watch(), name="pyasynq hang-up watch")

    async def stop(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def run(self, work: Coroutine[Any, Any, _T], undo: Callable[[_T], None]) -> _T:
        """Return the result of work; cancel it when the client disconnects or the caller is cancelled.

        Args:
            work: a coroutine.
            undo: called with a result that came after the disconnect.

        Raises:
            ClientGoneError: the client has disconnected.
        """
        assert self._task is not None  # noqa: S101 - `start` comes first
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self._task}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await _withdraw(task, undo)
            raise
        if self.is_gone:
            await _withdraw(task, undo)
            raise ClientGoneError
        return task.result()

    async def _watch(self) -> None:
        message: Message = {"type": ""}
        while message["type"] != "http.disconnect":
            message = await self._receive()


async def _withdraw(task: asyncio.Task[_T], undo: Callable[[_T], None]) -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is None:
        undo(task.result())


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
            await self._watch.stop()
