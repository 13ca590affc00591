"""Visits to a dashboard without a network: httpx calls the ASGI application directly."""

from __future__ import annotations

import asyncio
import html
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx

from pyasynq.web import Dashboard, dashboard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp

LOCAL = ("127.0.0.1", 50_000)
ABROAD = ("203.0.113.9", 50_000)
_FIELD = re.compile(r'name="csrf" value="([^"]*)"')
_LINK = re.compile(r'(?:href|action|src)="([^"#]*)"')


@asynccontextmanager
async def visiting(
    redis: Any,
    *,
    client: tuple[str, int] = LOCAL,
    base: str = "http://localhost/",
    host: ASGIApp | None = None,
    **options: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """Visit a dashboard; `host` is an application that it has been mounted in."""
    site = redis if isinstance(redis, Dashboard) else dashboard(redis, **options)
    transport = httpx.ASGITransport(host or site, client=client)
    try:
        async with httpx.AsyncClient(transport=transport, base_url=base) as visitor:
            yield visitor
    finally:
        await site.aclose()


async def send_form(
    visitor: httpx.AsyncClient, path: str, fields: dict[str, Any], *, page: str | None = None, **headers: str
) -> httpx.Response:
    """Send a form with the token that a page holds: the page at the form's own address unless given."""
    shown = await visitor.get(path if page is None else page)
    token = form_token(shown.text)
    return await visitor.post(
        path, data={"csrf": token, **fields}, headers={"sec-fetch-site": "same-origin", **headers}
    )


def form_token(text: str) -> str:
    """Return the token of the first form of a page."""
    found = _FIELD.search(text)
    assert found, "the page has no form"
    return html.unescape(found[1])


def hidden_value(text: str, name: str) -> str:
    """Return the value of a hidden field of a page."""
    found = re.search(rf'<input type="hidden" name="{re.escape(name)}" value="([^"]*)"', text)
    assert found, f"the page has no hidden field {name}"
    return html.unescape(found[1])


def links_of(text: str) -> list[str]:
    """Return all addresses that a page names."""
    return [html.unescape(address) for address in _LINK.findall(text)]


def heading_of(response: httpx.Response) -> str:
    """Return the one heading of a page."""
    found = re.findall(r"<h1>(.*?)</h1>", response.text, re.DOTALL)
    assert len(found) == 1, f"{response.request.url} has {len(found)} headings"
    return html.unescape(found[0])


def stream_scope(path: str, query: str) -> dict[str, Any]:
    """Return the ASGI scope of a GET request of a stream, which httpx would read to its end."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
        "state": {},
    }


class StreamClient:
    """The receiving side of a stream's client for an ASGI application: one request, then its end."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        """Return the request, and then, once `gone` is set, that the client has gone."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}
