"""The worker's table of handlers: task names, functions, and the middlewares around all of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyasynq._call_shape import first_doc_line
from pyasynq.app import App
from pyasynq.context import context
from pyasynq.errors import ConfigurationError, describe_value
from pyasynq.mux import Mux
from pyasynq.task import Task
from pyasynq.task_types import TaskTypeInfo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pyasynq.context import TaskContext

    ArticleHandler = Callable[[TaskContext, Task], Any]


class HandlerTable:
    """Routes by task name, for `Server.run`. A task name is a task type, and also the name of its queue.

    A function with parameters for a context and a task gets both. Any other function is a typed task of an
    `App`: its parameters are the fields of the task's params.

    Args:
        handlers: coroutine functions and plain functions by task name.
        middlewares: `async def m(task, call_next)`, the first one outermost.
        version: version of the caller's application, which is published with the types.

    Raises:
        ConfigurationError: for an empty table, and for an invalid handler or middleware.
    """

    def __init__(self, handlers: object, middlewares: Iterable[Any] = (), *, version: str = "") -> None:
        if not isinstance(handlers, Mapping) or not handlers:
            raise ConfigurationError(
                f"handlers={describe_value(handlers)}: give a table of task names and functions, "
                'as in handlers={"dumpfeature": dump_feature}'
            )
        self._app = App(middleware=middlewares, version=version)
        self._router = self._app.__pyasynq_router__()
        self._mux = Mux()
        self._mux.use(*middlewares)
        self._inner = Mux()
        """Handlers of the SDK itself, which the middlewares do not wrap."""
        self._summaries: dict[str, str] = {}
        """First line of the docstring of each handler that takes a context and a task, by task name."""
        self._version = version
        for name, function in handlers.items():
            self._add(name, function)
        self._app.load()
        self.names: frozenset[str] = frozenset(handlers)

    def _add(self, name: object, function: object) -> None:
        if not isinstance(name, str):
            raise ConfigurationError(f"handlers: a task name is text, and is {describe_value(type(name))}")
        if not callable(function):
            raise ConfigurationError(
                f"handlers[{name!r}] must be a function, and is {describe_value(type(function))}"
            )
        if _takes_context_and_task(function):
            self._mux.handle(name, _bind_context(function))
            self._summaries[name] = first_doc_line(function)
        else:
            self._app.task(name, queue=name)(function)

    def add_inner(self, name: str, handler: Callable[[Task], Awaitable[None]]) -> None:
        """Add a handler of the SDK itself, which the middlewares do not wrap.

        Raises:
            ConfigurationError: when the table already has this name.
        """
        if name in self.names:
            raise ConfigurationError(
                f"handlers[{name!r}]: the ends of the team's tasks arrive under this name; use another one"
            )
        self._inner.handle(name, handler)

    @property
    def inner_names(self) -> tuple[str, ...]:
        """Names of the handlers of the SDK itself."""
        return tuple(self._inner.types())

    @property
    def lifetime(self) -> Callable[[], Any]:
        """Factory of the context manager around all handlers; it closes the handlers' dependencies."""
        return self._app._lifetime  # noqa: SLF001 - the table has an app of its own

    def route(self, task_type: str) -> Any:
        """Return the route of a type; without a handler, a route that fails inside the middlewares."""
        for mux in (self._mux, self._inner):
            if task_type in mux.types():  # exact names only: a mux also matches prefixes
                return mux.route(task_type)
        return self._router.route(task_type)

    def routes(self) -> Iterable[Any]:
        """Return all routes."""
        return [*self._router.routes(), *self._mux.routes(), *self._inner.routes()]

    def types(self) -> Iterable[str]:
        """Return the task names of the table."""
        return tuple(self.names)

    def describe_types(self) -> Iterable[TaskTypeInfo]:
        """Return a description of each type, which workers publish."""
        plain = [
            TaskTypeInfo(name, queue=name, summary=summary, version=self._version)
            for name, summary in self._summaries.items()
        ]
        return [*self._app.describe_types(), *plain]


def _takes_context_and_task(function: Callable[..., Any]) -> bool:
    """Return whether a handler takes `(context, task)`: the second is named `task`, or is a `Task`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [
        one
        for one in parameters
        if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD} and one.default is one.empty
    ]
    return len(needed) == 2 and (needed[1].name == "task" or _is_task(needed[1].annotation))


def _is_task(annotation: object) -> bool:
    return annotation is Task or (isinstance(annotation, str) and annotation.rpartition(".")[2] == "Task")


def _bind_context(handler: ArticleHandler) -> Callable[[Task], Any]:
    """Adapt a handler that takes `(context, task)`: the returned handler takes only the task."""
    if _is_coroutine_function(handler):

        async def call(task: Task) -> Any:
            return await handler(context(), task)

        return call

    def call_plain(task: Task) -> Any:
        return handler(context(), task)

    return call_plain


def _is_coroutine_function(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004 - its kind matters, not whether it exists
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
