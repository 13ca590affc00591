"""Tasks as lines of JSON (NDJSON) in one request: enqueued as they arrive, each answered by a line."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from pyasynq.web.api.json_body import BODY_SECONDS
from pyasynq.web.api.problem import ProblemError

from .problems import to_service_problem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    Enqueue = Callable[[Sequence[bytes], int], Awaitable[list[dict[str, Any]]]]
    """Function that enqueues the tasks of some lines, given the first line's index; returns their results."""

LINES_TYPE: Final = "application/x-ndjson"
_MOST_LINES: Final = 500
"""Number of lines that are enqueued in one call."""


class LineResponse(Response):
    """A response whose lines are sent while the request is still read (full duplex).

    Starlette's streaming response is not used: it may read the request itself, to notice a disconnect. A
    client that does not read the answer is disconnected, so that no answers pile up here.

    Args:
        blocks: yields lines.
    """

    def __init__(self, blocks: AsyncGenerator[bytes]) -> None:
        super().__init__(
            media_type=LINES_TYPE, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        del self.headers["content-length"]
        self._blocks = blocks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        del scope, receive
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            async for block in self._blocks:
                async with asyncio.timeout(BODY_SECONDS):
                    await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self._blocks.aclose()


async def answer_lines(
    request: Request, enqueue: Enqueue, largest: int, is_ending: Callable[[], bool]
) -> AsyncGenerator[bytes]:
    """Yield the results of the tasks in a request's lines, in their order; stop when the client disconnects.

    An error that ends the stream is its last line, `{"problem": {...}}`.

    Args:
        request: its body has a task in each line; empty lines are skipped.
        enqueue: enqueues the tasks of some lines, given the index of the first; returns their results.
        largest: maximum size of one line, in bytes.
        is_ending: returns whether the instance ends.
    """
    number = 0
    try:
        async with aclosing(_read_lines(request, largest)) as pieces:
            async for lines in pieces:
                for first in range(0, len(lines), _MOST_LINES):
                    _check_open(number, is_ending=is_ending())
                    part = lines[first : first + _MOST_LINES]
                    results = await enqueue(part, number)
                    number += len(part)
                    yield encode_lines(results)
    except ClientDisconnect:
        return
    except Exception as error:  # noqa: BLE001 - the status was sent already
        yield json.dumps({"problem": to_service_problem(error).content()}).encode() + b"\n"


def encode_lines(results: Sequence[dict[str, Any]]) -> bytes:
    """Return results as lines of JSON."""
    return b"".join(msgspec.json.encode(one) + b"\n" for one in results)


async def _read_lines(request: Request, largest: int) -> AsyncGenerator[list[bytes]]:
    """Yield the complete lines of each piece of a body as it arrives.

    Raises:
        ProblemError: for a line that is too long, and a body that pauses for too long.
        ClientDisconnect: the client has disconnected.
    """
    rest = b""
    piece: bytes | None = b""
    async with aclosing(request.stream()) as stream:
        while piece is not None:
            piece = await _read_piece(stream)
            *lines, rest = (rest + (piece or b"")).split(b"\n")
            if piece is None:
                lines, rest = [rest], b""
            short = list(itertools.takewhile(lambda line: len(line) <= largest, lines))
            if found := [line for line in short if line.strip()]:
                yield found
            if len(short) < len(lines) or len(rest) > largest:
                remedy = f"Send at most {largest:,} bytes in a line."
                raise ProblemError(413, "body_too_large", "A line is too long.", remedy)


async def _read_piece(stream: AsyncGenerator[bytes]) -> bytes | None:
    """Return the next piece of a body; None at its end."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await anext(stream, None)
    except TimeoutError:
        remedy = f"Send something every {BODY_SECONDS:g} seconds, or end the request."
        raise ProblemError(408, "body_too_slow", "The body is incomplete.", remedy) from None


def _check_open(number: int, *, is_ending: bool) -> None:
    """Raise `ProblemError` if the instance shuts down; the error says how many results were sent."""
    if is_ending:
        remedy = "Send the lines without a result again, to another instance."
        headers = {"Retry-After": "1"}
        raise ProblemError(
            503, "shutting_down", "This instance is closing.", remedy, results=number, headers=headers
        )
