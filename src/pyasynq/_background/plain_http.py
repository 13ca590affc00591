"""Small HTTP server for probes and metrics: GET and HEAD, one request for each connection."""

from __future__ import annotations

import asyncio
import inspect
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Mapping

    Respond: TypeAlias = "Callable[[Request], Answer | Awaitable[Answer]]"

JSON: Final = "application/json"
_PATIENCE: Final = 5.0
"""Seconds that a client may take to read the answer."""
_HEAD_SECONDS: Final = 1.0
"""Seconds that a request may take to arrive."""
_MOST_SILENT: Final = 64
"""Maximum number of connections without a complete request; the next one closes the oldest."""
_MOST_ANSWERED: Final = 64
"""Maximum number of concurrent answers, counted until the client has read them."""
_LONGEST_HEAD: Final = 8_192


class Request(NamedTuple):
    """A request without a body.

    Attributes:
        path: path without the query.
        headers: headers by their names in lower case.
    """

    path: str
    headers: Mapping[str, str]


class Answer(NamedTuple):
    """Status, body and type of an HTTP response."""

    status: int
    body: bytes
    content_type: str = JSON


class PlainHttp:
    """HTTP server that keeps answering while many connections are silent or do not read their answers.

    Args:
        respond: returns the answer to a request; it may be a coroutine function.
    """

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Connections without a complete request, the oldest first."""
        self._answering = asyncio.Semaphore(_MOST_ANSWERED)

    async def start(self, listener: socket.socket) -> asyncio.Server:
        """Begin to answer at a listening socket."""
        return await asyncio.start_server(self._handle_connection, sock=listener, limit=_LONGEST_HEAD)

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._silent) >= _MOST_SILENT:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        self._silent[writer] = None
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            self._silent.pop(writer, None)
            async with self._answering:
                writer.write(await self._answer(head))
                async with asyncio.timeout(_PATIENCE):
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # such a request is not answered
        finally:
            self._silent.pop(writer, None)
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        first, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        if method not in ("GET", "HEAD"):
            body = b'{"error": "only GET and HEAD are allowed"}\n'
            return _format_response(Answer(HTTPStatus.METHOD_NOT_ALLOWED, body))
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        answer = self._respond(Request(rest.partition(" ")[0].partition("?")[0], headers))
        if inspect.isawaitable(answer):
            answer = await answer
        return _format_response(answer, has_body=method == "GET")


def _format_response(answer: Answer, *, has_body: bool = True) -> bytes:
    lines = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        "\r\n",
    )
    return "\r\n".join(lines).encode() + (answer.body if has_body else b"")
