"""Client, inspector and workers of a measurement, and a proxy that drops notifications."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pyasynq import Client, Inspector, Mux, Server, ServerConfig, Task
from pyasynq._redis.url import parse_redis_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import TypeAlias

RETRY_DELAY: Final = 1.0
ROUND_TRIP: Final = 0.1
"""Seconds that a round trip may take on a busy machine."""
WHOLE_SECONDS: Final = 1.0
"""Seconds by which Asynq's whole seconds delay due tasks."""
_PIECE: Final = 65_536
_REPORTS: Final = (b">2\r\n$10\r\ninvalidate", b"*3\r\n$7\r\nmessage", b">3\r\n$7\r\nmessage")
"""First bytes of notifications: changes of watched keys, and published messages."""


class Scene:
    """A client, an inspector, and handlers that record the times of their calls."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = Client(url)
        self.inspector = Inspector(url)
        self.calls: asyncio.Queue[float] = asyncio.Queue()
        """Unix time of each call of a handler, of the end of a cancelled one, and of an aggregation."""
        self.mux = Mux()
        self.mux.handler("note")(self._note)
        self.mux.handler("hang")(self._hang)
        self.mux.handler("fail")(self._fail)
        self.mux.handler("block")(self._block)

    async def _note(self, _task: Task) -> None:
        self.calls.put_nowait(time.time())

    async def _hang(self, _task: Task) -> None:
        self.calls.put_nowait(time.time())
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            self.calls.put_nowait(time.time())
            raise

    async def _fail(self, _task: Task) -> None:
        self.calls.put_nowait(time.time())
        raise RuntimeError

    async def _block(self, _task: Task) -> None:
        self.calls.put_nowait(time.time())
        time.sleep(2.5)  # noqa: ASYNC251 - this is what is measured

    async def aggregate(self, _group: str, tasks: list[Task]) -> Task:
        """Record the call; the returned task records its call too."""
        self.calls.put_nowait(time.time())
        return Task("note", tasks[0].payload)

    async def next(self) -> float:
        """Wait for the next call of the handler; return its Unix time."""
        return await self.calls.get()

    def forget(self) -> None:
        """Forget the calls so far."""
        while not self.calls.empty():
            self.calls.get_nowait()

    @asynccontextmanager
    async def worker(self, url: str = "", engine: Any = None, **settings: Any) -> AsyncIterator[Server]:
        """Run a worker in this process.

        Args:
            url: URL of Redis, if it is not the scene's own.
            engine: `EngineSettings`, for what users cannot set.
            **settings: those of `ServerConfig`.
        """
        server = Server(url or self.url, ServerConfig(retry_delay=RETRY_DELAY, **settings))
        if engine is not None:
            server._settings = engine  # noqa: SLF001 - nothing public shortens them
        await server.start(self.mux)
        try:
            yield server
        finally:
            await server.shutdown()

    async def close(self) -> None:
        """Close client and inspector."""
        await self.client.close()
        await self.inspector.close()


Sample: TypeAlias = "Callable[[Scene], Awaitable[float]]"


class Delay(NamedTuple):
    """A kind of delay: its name, its bar in seconds, and what measures a sample of it."""

    name: str
    bar: float
    measure: Sample


class Proxy:
    """Proxy for Redis that can drop notifications, like a broken network path."""

    def __init__(self, url: str) -> None:
        self._path = parse_redis_url(url).path
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_deaf = False
        self.swallowed = 0

    @property
    def url(self) -> str:
        """URL of the proxy."""
        assert self._server is not None  # noqa: S101 - it is open within its block
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        """Start to listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        assert self._server is not None  # noqa: S101 - as above
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_redis, to_redis = await asyncio.open_unix_connection(self._path)
        for source, sink, is_reply in ((reader, to_redis, False), (from_redis, writer, True)):
            task = asyncio.create_task(self._pass(source, sink, is_reply=is_reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_reply: bool
    ) -> None:
        try:
            while data := await source.read(_PIECE):
                if is_reply and self.is_deaf and data.startswith(_REPORTS):
                    self.swallowed += 1
                else:
                    sink.write(data)
        except ConnectionError:
            pass  # the other side is gone, and so is this one
        finally:
            sink.close()
