"""Responses: compressed HTML pages, and redirects that work under any prefix."""

from __future__ import annotations

import gzip
import time
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from starlette.responses import HTMLResponse, Response, StreamingResponse

from pyasynq.task import EnqueueStatus
from pyasynq.web.frame import build_frame
from pyasynq.web.notice import Notice
from pyasynq.web.rendering import Moments, RenderedParts, render_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from pyasynq.web.page import Page, PageRequest

_LEVEL: Final = 5
_LEAST_COMPRESSED: Final = 1_000
_GZIP_WINDOW: Final = 31


def page_response(ask: PageRequest, page: Page, began: float) -> Response:
    """Return the response for a page, with the notice of a previous action (flash message)."""
    notices = read_notices(ask)
    html = page_html(ask, page, RenderedParts(), began, notices)
    response = html_response(ask.request, html, page.status, page.headers)
    if notices:
        forget_notices(ask, response)
    return response


def forget_notices(ask: PageRequest, response: Response) -> None:
    """Delete the cookie with the notices that this response shows."""
    ask.settings.notices.remove(ask.request, response)


def page_html(
    ask: PageRequest, page: Page, record: RenderedParts, began: float, notices: tuple[Notice, ...] = ()
) -> str:
    """Return the HTML of a page, which shows how long it took to make.

    `began` is the start of that time by `perf_counter`; 0 means the time of the request.
    """
    seconds = time.perf_counter() - began if began else (datetime.now(UTC) - ask.now).total_seconds()
    values = {
        "frame": build_frame(ask, page, seconds, notices),
        "view": page.view,
        "to": ask.links.to,
        "here": ask.links.here,
        "own": ask.links.own(),
        "at": Moments(ask.now, ask.preferences.time_zone),
        "csrf": ask.csrf,
        "may": ask.may,
    }
    return render_template(page.template, record, values)


def html_response(
    request: Request, html: str, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return an HTML response, compressed with gzip if the browser accepts that."""
    content = html.encode("utf-8", "replace")
    sent = {"Vary": "Accept-Encoding, Cookie", **(headers or {})}
    if accepts_gzip(request) and len(content) >= _LEAST_COMPRESSED:
        content = gzip.compress(content, _LEVEL, mtime=0)
        sent["Content-Encoding"] = "gzip"
    return HTMLResponse(content, status, headers=sent)


def html_stream(request: Request, pieces: AsyncIterator[str]) -> Response:
    """Return a streamed HTML response: each piece is sent as soon as it is ready."""
    headers = {"Vary": "Accept-Encoding, Cookie", "X-Accel-Buffering": "no"}
    if accepts_gzip(request):
        headers["Content-Encoding"] = "gzip"
        return StreamingResponse(_compress(pieces), headers=headers, media_type="text/html")
    return StreamingResponse(_encode(pieces), headers=headers, media_type="text/html")


def redirect(ask: PageRequest, address: str, notice: Notice | None = None) -> Response:
    """Redirect to a page after a form, with a notice that the page shows once (flash message)."""
    response = Response(status_code=303, headers={"Location": address})
    if notice is not None:
        ask.settings.notices.write(ask.request, response, notice)
    return response


def redirect_to_enqueued(
    ask: PageRequest, queue: str, task_id: str, status: EnqueueStatus | None, noun: str = "The task"
) -> Response:
    """Redirect to a task that a form has enqueued now or earlier, or to its queue if the task is gone."""
    is_gone = status is EnqueueStatus.IGNORED
    text = "had been enqueued before" if is_gone or status is EnqueueStatus.EXISTING else "was enqueued"
    there = ask.links.to("queues", queue, *(() if is_gone else ("tasks", task_id)))
    return redirect(ask, there, Notice("good", f"{noun} {text}{', and is done' if is_gone else ''}."))


def read_notices(ask: PageRequest) -> tuple[Notice, ...]:
    """Return the notices that an action left for the next page (flash messages); ignore a forged cookie."""
    notice = ask.settings.notices.read(ask.request)
    return () if notice is None else (notice,)


def accepts_gzip(request: Request) -> bool:
    """Return whether the browser accepts content compressed with gzip."""
    return "gzip" in request.headers.get("accept-encoding", "")


async def _encode(pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for piece in pieces:
        yield piece.encode("utf-8", "replace")


async def _compress(pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    async for piece in pieces:
        yield packer.compress(piece.encode("utf-8", "replace")) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()
