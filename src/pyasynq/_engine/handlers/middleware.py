"""Middleware that wraps handlers, for any router."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, cast

from pyasynq._call_shape import describe_function, takes
from pyasynq._engine.handlers.routes import Route, is_coroutine_handler
from pyasynq._engine.handlers.threads import in_thread
from pyasynq.context import current_task
from pyasynq.control import find_control
from pyasynq.errors import ConfigurationError, HandlerNotFoundError, describe_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from pyasynq._engine.handlers.routes import HandlerResult, HandlerReturn
    from pyasynq.task import Task

    AsyncHandler: TypeAlias = Callable[[Task], Awaitable[HandlerResult]]
    _Call: TypeAlias = Callable[[Task], Awaitable[HandlerReturn]]
    Middleware: TypeAlias = Callable[[Task, AsyncHandler], Awaitable[HandlerReturn]]


def check_middleware(middleware: object) -> None:
    """Raise `ConfigurationError` unless this is a coroutine function that takes a task and `call_next`."""
    if callable(middleware) and not isinstance(middleware, type) and not is_coroutine_handler(middleware):
        raise ConfigurationError(
            f"middleware {describe_function(middleware)} must be `async def`, as in "
            "`async def m(task, call_next)`"
        )
    if not callable(middleware) or isinstance(middleware, type):
        raise ConfigurationError(
            f"middleware is `async def m(task, call_next)`, not {describe_value(type(middleware))}"
        )
    if not takes(middleware, 2):
        raise ConfigurationError(
            f"middleware is `async def m(task, call_next)`, and {describe_function(middleware)} does not "
            "take these two arguments"
        )


def limit_to_queues(middleware: Middleware, queues: Iterable[str]) -> Middleware:
    """Return middleware that wraps only the handlers of tasks from these queues."""
    names = frozenset(queues)

    async def limited(task: Task, call_next: AsyncHandler) -> HandlerReturn:
        running = current_task.get(None)
        if running is not None and running.queue in names:
            return await middleware(task, call_next)
        return await call_next(task)

    return limited


def wrap_route(route: Route, middleware: Sequence[Middleware]) -> Route:
    """Return a route whose handler runs inside the middleware, the first one outermost.

    The middleware runs on the event loop. Only the handler itself runs in a thread, if it is a plain
    function, or in a child process. A returned control value is raised in the outer middleware, so
    `call_next` returns only results.
    """
    if not middleware:
        return route
    call = _raising(cast("_Call", in_thread(route.call) if route.plain else route.call))
    for one in reversed(middleware):
        call = _wrap(one, call)
    return replace(route, call=call, plain=False)


def _wrap(middleware: Middleware, call_next: AsyncHandler) -> AsyncHandler:
    async def call(task: Task) -> HandlerResult:
        result = await middleware(task, call_next)
        return None if result is None else _check_result(result)

    return call


def _raising(inner: _Call) -> AsyncHandler:
    async def call(task: Task) -> HandlerResult:
        result = await inner(task)
        # None, the usual result, is tested inline: another function call costs measurable time.
        return None if result is None else _check_result(result)

    return call


def _check_result(result: HandlerReturn) -> HandlerResult:
    """Return a result; raise a control value."""
    wish = find_control(result)
    if wish is not None:
        raise wish
    return cast("HandlerResult", result)


def missing_route(types: Callable[[], Iterable[str]]) -> Route:
    """Return a route that raises `HandlerNotFoundError`, so that middleware sees tasks without a handler."""

    async def call(task: Task) -> None:
        raise HandlerNotFoundError(task.type, types())

    return Route(call)
