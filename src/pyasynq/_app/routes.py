"""From a declaration to what the engine calls: decode the payload, run the handler, encode the result."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyasynq._server.routes import Route
from pyasynq.context import current_task
from pyasynq.errors import PayloadEncodingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq._app.declaration import Declaration
    from pyasynq.task import Task

_log = logging.getLogger("pyasynq")


def route_of(declaration: Declaration) -> Route:
    """Return how tasks of this declaration are run, without middleware."""
    call = _coroutine_call(declaration) if declaration.is_coroutine else _plain_call(declaration)
    return Route(
        call,
        plain=not declaration.is_coroutine,
        retry_delay=declaration.retry_delay,
        is_failure=declaration.is_failure,
        crash_limit=declaration.crash_limit,
    )


def _coroutine_call(declaration: Declaration) -> Callable[[Task], Awaitable[bytes | None]]:
    function = declaration.function
    decode = declaration.arguments.decode

    async def call(task: Task) -> bytes | None:
        result = await function(**decode(task.payload or b""))
        return None if result is None else _result(declaration, result)

    return call


def _plain_call(declaration: Declaration) -> Callable[[Task], bytes | None]:
    function = declaration.function
    decode = declaration.arguments.decode

    def call(task: Task) -> bytes | None:
        result = function(**decode(task.payload or b""))
        return None if result is None else _result(declaration, result)

    return call


def _result(declaration: Declaration, value: object) -> bytes | None:
    running = current_task.get(None)
    # Without retention the task is deleted when it is done, and its result with it.
    if running is not None and not running.message.retention:
        return None
    try:
        return declaration.result.encode(value)
    except PayloadEncodingError as error:
        _log.error("%s; the task has succeeded without a result", error)
        return None
