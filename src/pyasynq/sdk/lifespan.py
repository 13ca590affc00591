"""`with_worker`: a worker for ASGI applications without a lifespan of their own, such as Django's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyasynq._visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from .worker import RunningWorker

    Application = Callable[[Any, Any, Any], Awaitable[None]]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger("pyasynq.sdk")


def with_worker(application: Application, start: Callable[[], Awaitable[RunningWorker]]) -> Application:
    """Wrap an ASGI application so that a worker runs while it is served.

    `with_worker(get_asgi_application(), lambda: start_worker(...))`. If the worker cannot start, the server
    is told the reason and ends.

    Args:
        application: receives all requests, but no lifespan events.
        start: calls `start_worker`.
    """

    async def call(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(start, receive, send)
        else:
            await application(scope, receive, send)

    return call


async def _live(start: Callable[[], Awaitable[RunningWorker]], receive: Receive, send: Send) -> None:
    await receive()  # the startup
    try:
        worker = await start()
    except Exception as error:  # noqa: BLE001 - the server reports it, and ends
        _log.critical("the worker cannot start: %s", visible(error))
        await send({"type": "lifespan.startup.failed", "message": visible(error)})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()  # the shutdown
    await worker.close()
    await send({"type": "lifespan.shutdown.complete"})
