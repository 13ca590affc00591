"""From a declaration to what the engine calls: decode the payload, run the handler, encode the result."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeAlias

from pyasynq._server.routes import Route
from pyasynq._server.threads import in_thread
from pyasynq.context import current_task
from pyasynq.errors import HandlerNotFoundError, PayloadEncodingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pyasynq._app.declaration import Declaration
    from pyasynq.task import Task

    Next: TypeAlias = Callable[[Task], Awaitable[bytes | str | None]]
    Middleware: TypeAlias = Callable[[Task, Next], Awaitable[bytes | str | None]]

_log = logging.getLogger("pyasynq")


def route_of(declaration: Declaration, middleware: Iterable[Middleware]) -> Route:
    """Return how tasks of this declaration are run; the middleware comes outermost first."""
    middleware = tuple(middleware)
    is_coroutine = declaration.is_coroutine
    call: Any = _coroutine_call(declaration) if is_coroutine else _plain_call(declaration)
    if middleware and not is_coroutine:
        call, is_coroutine = in_thread(call), True
    return Route(
        wrap(call, middleware),
        plain=not is_coroutine,
        retry_delay=declaration.retry_delay,
        is_failure=declaration.is_failure,
        crash_limit=declaration.crash_limit,
    )


def not_found_route(middleware: Iterable[Middleware]) -> Route:
    """Return a route that raises `HandlerNotFoundError` inside the middleware, which sees such tasks too."""

    async def call(task: Task) -> None:
        raise HandlerNotFoundError(task.type)

    return Route(wrap(call, middleware))


def wrap(call: Next, middleware: Iterable[Middleware]) -> Next:
    """Return `call` inside the middleware, the first one outermost."""
    for one in reversed(tuple(middleware)):
        call = _around(one, call)
    return call


def _around(middleware: Middleware, call_next: Next) -> Next:
    def call(task: Task) -> Awaitable[bytes | str | None]:
        return middleware(task, call_next)

    return call


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
