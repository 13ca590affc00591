"""Endpoints of live updates: server-sent events, and a snapshot for browsers and hosts without streams."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import compile_path

from pyasynq.web.live.channel import Channel, Channels, changes, event_text
from pyasynq.web.live.render import render_now
from pyasynq.web.locations import Links
from pyasynq.web.page_table import LIVE_PAGES
from pyasynq.web.targets import access_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyasynq.web.live.channel import Rendering
    from pyasynq.web.page import PageRequest
    from pyasynq.web.page_table import LivePage

MOST_STREAMS: Final = 500
"""Maximum number of open streams of one Redis and event loop; further viewers poll."""
_ALIVE_SECONDS: Final = 15.0
"""Seconds without an event after which a stream sends `alive`: proxies and browsers close silent streams."""
_CHECK_SECONDS: Final = 10.0
"""Seconds between two checks that the session is still valid."""
_QUERY_PREFIX: Final = "p."


async def live_stream(ask: PageRequest) -> Response:
    """Stream the changes of a page to one viewer."""
    found = _find_page(ask)
    if found is None:
        return Response("There is no such live page.\n", 404, media_type="text/plain")
    channels = ask.target.channels()
    if "wsgi_environ" in ask.request.scope or channels.viewers >= MOST_STREAMS:
        return Response(
            "Poll live.json instead.\n", 503, headers={"Retry-After": "10"}, media_type="text/plain"
        )
    page, inner = found
    key = (inner.links.path, tuple(sorted(inner.query.items())), inner.preferences, access_key(ask.user))
    channel = channels.find(key, lambda: Channel(partial(render_now, page.function, inner), page.interval))
    return StreamingResponse(
        _stream_events(ask, channels, channel),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def live_snapshot(ask: PageRequest) -> Response:
    """Return all cells and rows of a page, for browsers that poll."""
    found = _find_page(ask)
    if found is None:
        return JSONResponse({"error": "there is no such live page"}, 404)
    page, inner = found
    rendering = await render_now(page.function, inner)
    events = [{"event": name, "data": data} for name, data in changes(None, rendering)]
    return JSONResponse({"events": events})


async def _stream_events(ask: PageRequest, channels: Channels, channel: Channel) -> AsyncIterator[str]:
    channels.viewers += 1
    before: Rendering | None = None
    checked = sent = time.monotonic()
    try:
        async with channel.watched():
            yield "retry: 3000\n\n"
            while True:
                rendering = await channel.after(before.number if before else -1, _ALIVE_SECONDS)
                events = changes(before, rendering) if rendering is not None else []
                for name, data in events:
                    yield event_text(name, data, f"{channel.epoch}-{rendering.number if rendering else 0}")
                before = rendering or before
                if events:
                    sent = time.monotonic()
                elif time.monotonic() - sent > _ALIVE_SECONDS:
                    sent = time.monotonic()
                    yield event_text("alive", {}, "")
                if time.monotonic() - checked > _CHECK_SECONDS:
                    checked = time.monotonic()
                    if await ask.is_session_over():
                        yield event_text("bye", {}, "")
                        return
    finally:
        channels.viewers -= 1


def _find_page(ask: PageRequest) -> tuple[LivePage, PageRequest] | None:
    path = ask.query.get("page", "")
    for pattern, page in LIVE_PAGES.items():
        regex, _, _ = compile_path(pattern)
        if match := regex.match(path):
            query = {
                name.removeprefix(_QUERY_PREFIX): value
                for name, value in ask.query.items()
                if name.startswith(_QUERY_PREFIX)
            }
            return page, ask.at(Links(path, query), match.groupdict())
    return None
