"""A viewer of a live page, without a network."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.visiting import StreamClient, stream_scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyasynq.web import Dashboard


class Stream(StreamClient):
    """A viewer's connection, as an ASGI server would hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.status = 0

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        fields = dict(line.split(": ", 1) for line in message["body"].decode().splitlines() if ": " in line)
        if "event" in fields:
            await self.events.put((fields["event"], json.loads(fields["data"])))

    async def next(self, name: str) -> Any:
        """Return the data of the next event of this name."""
        while True:
            event, data = await self.events.get()
            if event == name:
                return data


@asynccontextmanager
async def stream_of(site: Dashboard, query: str, *headers: tuple[bytes, bytes]) -> AsyncIterator[Stream]:
    """Hold a live stream open; the headers are sent besides those of every request."""
    stream = Stream()
    scope = stream_scope("/live", query)
    scope["headers"] += headers
    serving = asyncio.create_task(site(scope, stream.receive, stream.send))
    try:
        yield stream
    finally:
        stream.gone.set()
        await asyncio.gather(serving, return_exceptions=True)
