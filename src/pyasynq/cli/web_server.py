"""HTTP servers (uvicorn) of the dashboard: without signal handlers, or in a background task."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.web import Dashboard


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(config: uvicorn.Config) -> uvicorn.Server:
    """Return a uvicorn server that installs no signal handlers."""
    return _Server(config)


async def serve_in_background(site: Dashboard, port: int) -> tuple[asyncio.Task[None], int]:
    """Serve a dashboard on this machine in a background task; return the task and the port.

    Cancelling the task stops the server. If the port is in use, a free port is chosen.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        site,
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = make_server(config)

    async def run() -> None:
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            await asyncio.shield(serving)
        finally:
            server.should_exit = True
            await serving
            await site.aclose()
            listener.close()

    task = asyncio.create_task(run(), name="pyasynq-dashboard")
    return task, int(listener.getsockname()[1])
