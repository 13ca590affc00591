"""A server for asynqmon's own front end, which passes its requests on to the API of a dashboard."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
from starlette.applications import Starlette
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tests.interop.asynqmon_program import SOURCE
from tests.interop.go_peer import find_go

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

_MODULE: Final = "github.com/hibiken/asynqmon"
_FONTS: Final = re.compile(r'<link rel="stylesheet" href="https://fonts\.[^>]*>')
"""Fonts of another host, which the tests cannot reach."""
_FLAGS: Final = {"/[[.RootPath]]": "", "/[[.PrometheusAddr]]": "", "/[[.ReadOnly]]": "false"}
"""What asynqmon's server puts into its page."""


def find_pages() -> Path:
    """Return the folder of asynqmon's built front end, from Go's cache of modules.

    Raises:
        GoMissingError: when there is no Go.
    """
    command = [find_go(), "mod", "download", "-json", _MODULE]
    environment = {**os.environ, "GOTOOLCHAIN": "auto", "GOFLAGS": ""}
    found = subprocess.run(command, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"asynqmon cannot be fetched: {found.stderr}"
    return Path(json.loads(found.stdout)["Dir"]) / "ui" / "build"


class AsynqmonPages:
    """ASGI application: asynqmon's pages, and `/api` of a dashboard with a bearer token.

    Args:
        folder: the built front end.
        address: of the dashboard.
        token: what the dashboard knows the front end by.
    """

    def __init__(self, folder: Path, address: str, token: str) -> None:
        self._folder = folder
        self._client = httpx.AsyncClient(base_url=address, headers={"authorization": f"Bearer {token}"})
        page = _FONTS.sub("", (folder / "index.html").read_text("utf-8"))
        for flag, value in _FLAGS.items():
            page = page.replace(flag, value)
        self._page = page
        methods = ["GET", "POST", "DELETE"]
        self._app = Starlette(
            routes=[
                Route("/api/{path:path}", self._pass_on, methods=methods),
                Mount("/static", StaticFiles(directory=folder / "static")),
                Route("/{path:path}", self._show),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    async def aclose(self) -> None:
        """Close the connections to the dashboard."""
        await self._client.aclose()

    async def _pass_on(self, request: Request) -> Response:
        """Pass a request on, without the browser's own headers."""
        address = request.url.path.removeprefix("/")
        kind = request.headers.get("content-type")
        answer = await self._client.request(
            request.method,
            f"{address}?{request.url.query}" if request.url.query else address,
            content=await request.body(),
            headers={"content-type": kind} if kind else {},
        )
        kind = answer.headers.get("content-type")
        return Response(answer.content, answer.status_code, media_type=kind)

    async def _show(self, request: Request) -> Response:
        """Return a file next to the page, or the page itself: its script finds its own way."""
        name = request.path_params["path"]
        if name and name in {file.name for file in self._folder.iterdir() if file.is_file()}:
            return FileResponse(self._folder / name)
        return HTMLResponse(self._page)
