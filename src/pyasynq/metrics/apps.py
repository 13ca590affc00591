"""ASGI and WSGI applications that answer a scrape with the metrics of all queues."""

from __future__ import annotations

import asyncio
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from pyasynq.metrics.queues import QueueMetrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

_METHODS: Final = ("GET", "HEAD")
_NOT_ALLOWED: Final = b"only GET and HEAD are allowed\n"
_TEXT: Final = "text/plain; charset=utf-8"


class MetricsApp:
    """ASGI application that exposes the metrics of one Redis: mount it at `/metrics`.

    It has no authentication: every client that can reach it sees the names of all queues.

    Args:
        target: URL of Redis.
        **settings: as for `QueueMetrics`.
    """

    def __init__(self, target: str, **settings: Any) -> None:
        self._metrics = QueueMetrics(target, **settings)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request; the path does not matter."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"MetricsApp answers HTTP requests, not {scope['type']!r}")
        if scope["method"] not in _METHODS:
            status, kind, body = HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, _NOT_ALLOWED
        else:
            accept = b",".join(value for name, value in scope["headers"] if name == b"accept")
            kind, body = await self._metrics.render(accept.decode("latin-1"))
            status = HTTPStatus.OK
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": int(status), "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def aclose(self) -> None:
        """Close the connections. Call it yourself: a mounted application gets no lifespan events."""
        await self._metrics.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.aclose()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


class MetricsWsgi:
    """WSGI application that does what `MetricsApp` does for ASGI. Its event loop runs in a separate thread.

    Args:
        target: URL of Redis.
        **settings: as for `QueueMetrics`.
    """

    def __init__(self, target: str, **settings: Any) -> None:
        self._target = target
        self._settings = settings
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._metrics: QueueMetrics | None = None

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
    ) -> Iterable[bytes]:
        """Answer one request; the path does not matter."""
        method = environ["REQUEST_METHOD"]
        if method not in _METHODS:
            status, kind, body = HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, _NOT_ALLOWED
        else:
            kind, body = self._render(environ.get("HTTP_ACCEPT", ""))
            status = HTTPStatus.OK
        headers = [
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
        ]
        start_response(f"{status.value} {status.phrase}", headers)
        return [b"" if method == "HEAD" else body]

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent."""
        with self._lock:
            loop, thread, metrics = self._loop, self._thread, self._metrics
            self._loop = self._thread = self._metrics = None
        if loop is None or thread is None or metrics is None:
            return
        asyncio.run_coroutine_threadsafe(metrics.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _render(self, accept: str) -> tuple[str, bytes]:
        with self._lock:
            if self._loop is None or self._metrics is None:
                self._loop = asyncio.new_event_loop()
                self._metrics = QueueMetrics(self._target, **self._settings)
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="pyasynq-metrics", daemon=True
                )
                self._thread.start()
            call = asyncio.run_coroutine_threadsafe(self._metrics.render(accept), self._loop)
        return call.result()
