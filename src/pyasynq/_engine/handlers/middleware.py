"""Middleware around handlers, for every router."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from pyasynq._call_shape import name_of_function, takes
from pyasynq._engine.handlers.routes import Route, is_coroutine_handler
from pyasynq._engine.handlers.threads import in_thread
from pyasynq.control import control_of
from pyasynq.errors import ConfigurationError, HandlerNotFoundError, describe_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from pyasynq._engine.handlers.routes import HandlerResult, HandlerReturn
    from pyasynq.task import Task

    AsyncHandler: TypeAlias = Callable[[Task], Awaitable[HandlerResult]]
    _Call: TypeAlias = Callable[[Task], Awaitable[HandlerReturn]]
    Middleware: TypeAlias = Callable[[Task, AsyncHandler], Awaitable[HandlerReturn]]


def check_middleware(middleware: object) -> None:
    """Raise `ConfigurationError` unless this is a coroutine function of a task and the next call."""
    if not callable(middleware) or not is_coroutine_handler(middleware):
        raise ConfigurationError(
            f"middleware is `async def m(task, call_next)`, and this is {describe_value(type(middleware))}"
        )
    if not takes(middleware, 2):
        raise ConfigurationError(
            f"middleware is `async def m(task, call_next)`, and {name_of_function(middleware)} does not take "
            "these two arguments"
        )


def wrap_route(route: Route, middleware: Sequence[Middleware]) -> Route:
    """Return a route whose handler runs inside the middleware, the first one outermost.

    A plain handler still runs in a thread, and one of a child process there; the middleware does not. What is
    returned to say what becomes of the task is raised in the middleware further out, which so gets results
    and nothing else.
    """
    if not middleware:
        return route
    call = _raising(cast("_Call", in_thread(route.call) if route.plain else route.call))
    for one in reversed(middleware):
        call = _wrapped(one, call)
    return Route(
        call,
        retry_delay=route.retry_delay,
        is_failure=route.is_failure,
        crash_limit=route.crash_limit,
        program=route.program,
    )


def _wrapped(middleware: Middleware, call_next: AsyncHandler) -> AsyncHandler:
    return _raising(lambda task: middleware(task, call_next))


def _raising(inner: _Call) -> AsyncHandler:
    async def call(task: Task) -> HandlerResult:
        result = await inner(task)
        wish = control_of(result)
        if wish is not None:
            raise wish
        return cast("HandlerResult", result)

    return call


def missing_route(types: Callable[[], Iterable[str]]) -> Route:
    """Return a route that raises `HandlerNotFoundError`; wrapped, it lets middleware see such tasks too."""

    async def call(task: Task) -> None:
        raise HandlerNotFoundError(task.type, types())

    return Route(call)
