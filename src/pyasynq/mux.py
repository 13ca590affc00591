"""Routing of tasks to handlers by their type.

    mux = Mux()

    @mux.handler("email:deliver", retry_delay=lambda retried, error, task: 60)
    async def deliver(task: Task) -> None: ...

    @mux.middleware
    async def timed(task, call_next):
        started = time.perf_counter()
        try:
            return await call_next(task)
        finally:
            print(task.type, time.perf_counter() - started)

The server gets the mux: `Server(url).run_forever(mux)`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pyasynq._call_shape import first_doc_line
from pyasynq._checks import check_name
from pyasynq._engine.executor.order import Program
from pyasynq._engine.handlers.middleware import check_middleware, missing_route, wrap_route
from pyasynq._engine.handlers.routes import HandlerRules, Route, is_coroutine_handler
from pyasynq.errors import ConfigurationError, describe_value
from pyasynq.task_types import TaskTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq._engine.handlers.middleware import Middleware
    from pyasynq._engine.handlers.routes import Executor, Handler
    from pyasynq.options import Duration
    from pyasynq.retry import RetryDelay

_AnyHandler = TypeVar("_AnyHandler", bound="Handler")
_AnyMiddleware = TypeVar("_AnyMiddleware", bound="Middleware")


class Mux:
    """Route table: handlers by pattern. The exact type wins, then the longest pattern that is its prefix.

    Handlers are coroutine functions, or plain functions, which run in threads. They return None, bytes or
    text. Bytes and text are kept as the task's result, if the task has a retention.
    """

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}
        self._middleware: list[Middleware] = []
        self._found: dict[str, Route] = {}
        self._prefixes: list[str] = []
        self._missing = missing_route(self.types)

    def handle(
        self,
        pattern: str,
        handler: Handler,
        *,
        retry_delay: RetryDelay | Duration | None = None,
        is_failure: Callable[[BaseException], bool] | None = None,
        crash_limit: int | None = None,
        executor: Executor | None = None,
    ) -> None:
        """Register a handler for a type, or for all types that begin with `pattern`.

        Args:
            pattern: a task type, or a prefix of several types; not blank, and unique.
            handler: called with the task.
            retry_delay: overrides the server's `retry_delay`; a function, or a constant delay.
            is_failure: overrides the server's `is_failure`.
            crash_limit: overrides the server's `crash_limit`.
            executor: "process" to run it in a child process of the worker, which imports it as
                `module:function`. It has no `context().state`, since the server's lifespan cannot be imported
                there.

        Raises:
            InvalidOptionError: for a blank pattern, or an invalid value of an option.
            ConfigurationError: for a duplicate pattern or a handler that cannot be called.
        """
        check_name("pattern", pattern)
        if pattern in self._routes:
            raise ConfigurationError(f"there is a handler for {pattern!r} already; a pattern has one handler")
        if not callable(handler):
            raise ConfigurationError(
                f"the handler for {pattern!r} must be a function, and is {describe_value(type(handler))}"
            )
        rules = HandlerRules(retry_delay, is_failure, crash_limit, executor)
        route = Route(handler, plain=not is_coroutine_handler(handler), rules=rules)
        self._routes[pattern] = _in_child(pattern, route) if executor else route
        self._prefixes = sorted(self._routes, key=len, reverse=True)
        self._found.clear()

    def handler(
        self,
        pattern: str,
        *,
        retry_delay: RetryDelay | Duration | None = None,
        is_failure: Callable[[BaseException], bool] | None = None,
        crash_limit: int | None = None,
        executor: Executor | None = None,
    ) -> Callable[[_AnyHandler], _AnyHandler]:
        """Register the decorated function; arguments and errors are those of `handle`."""

        def register(function: _AnyHandler) -> _AnyHandler:
            self.handle(
                pattern,
                function,
                retry_delay=retry_delay,
                is_failure=is_failure,
                crash_limit=crash_limit,
                executor=executor,
            )
            return function

        return register

    def use(self, *middleware: Middleware) -> None:
        """Wrap all handlers, including the not-found one; the first middleware is the outermost.

        Args:
            middleware: `async def m(task, call_next)`, which returns what `await call_next(task)` returned.

        Raises:
            ConfigurationError: for middleware that is not a coroutine function.
        """
        for one in middleware:
            check_middleware(one)
        self._middleware += middleware
        self._found.clear()

    def middleware(self, function: _AnyMiddleware) -> _AnyMiddleware:
        """Use the decorated function as middleware."""
        self.use(function)
        return function

    def route(self, task_type: str) -> Route:
        """Return the route of this type; without a handler, the route raises `HandlerNotFoundError`."""
        route = self._found.get(task_type)
        if route is not None:
            return route
        route = wrap_route(self._match(task_type), self._middleware)
        # Types come from outside; an endless stream of new ones must not fill the memory.
        if len(self._found) < _MOST_REMEMBERED:
            self._found[task_type] = route
        return route

    def routes(self) -> Iterable[Route]:
        """Return all routes, as registered."""
        return tuple(self._routes.values())

    def types(self) -> Iterable[str]:
        """Return all patterns."""
        return tuple(self._routes)

    def describe_types(self) -> Iterable[TaskTypeInfo]:
        """Return each pattern with the first line of its handler's docstring. The server publishes this."""
        return [
            TaskTypeInfo(
                pattern,
                summary=first_doc_line(route.program.function if route.program else route.call),
                is_prefix=True,
            )
            for pattern, route in self._routes.items()
        ]

    def _match(self, task_type: str) -> Route:
        exact = self._routes.get(task_type)
        if exact is not None:
            return exact
        for prefix in self._prefixes:
            if task_type.startswith(prefix):
                return self._routes[prefix]
        return self._missing


def _in_child(pattern: str, route: Route) -> Route:
    from pyasynq._engine.executor.pool import in_child  # noqa: PLC0415 - few handlers need it

    function = route.call
    program = Program(f"the handler for {pattern!r}", function, lambda found: found is function, dict)
    return replace(route, call=in_child(program, route), plain=False, program=program)


_MOST_REMEMBERED = 10_000
