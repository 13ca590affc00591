"""Middleware around handlers, for every router."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from pyasynq._server.routes import Route, is_coroutine_handler
from pyasynq._server.threads import in_thread
from pyasynq.errors import ConfigurationError, HandlerNotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pyasynq._server.routes import HandlerResult
    from pyasynq.task import Task

    AsyncHandler: TypeAlias = Callable[[Task], Awaitable[HandlerResult]]
    Middleware: TypeAlias = Callable[[Task, AsyncHandler], Awaitable[HandlerResult]]


def check_middleware(middleware: object) -> None:
    """Raise `ConfigurationError` unless this is a coroutine function."""
    if not callable(middleware) or not is_coroutine_handler(middleware):
        raise ConfigurationError(f"middleware is `async def m(task, call_next)`, and this is {middleware!r}")


def wrap_route(route: Route, middleware: Sequence[Middleware]) -> Route:
    """Return a route whose handler runs inside the middleware, the first one outermost.

    A plain handler still runs in a thread; the middleware around it does not.
    """
    if not middleware:
        return route
    call = cast("AsyncHandler", in_thread(route.call) if route.plain else route.call)
    for one in reversed(middleware):
        call = _wrapped(one, call)
    return Route(
        call,
        retry_delay=route.retry_delay,
        is_failure=route.is_failure,
        crash_limit=route.crash_limit,
    )


def _wrapped(middleware: Middleware, call_next: AsyncHandler) -> AsyncHandler:
    async def call(task: Task) -> HandlerResult:
        return await middleware(task, call_next)

    return call


async def _not_found(task: Task) -> None:
    raise HandlerNotFoundError(task.type)


NOT_FOUND = Route(_not_found)
"""Raises `HandlerNotFoundError`; wrapped like any other, so that middleware sees such tasks too."""
