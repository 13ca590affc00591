"""Registry of the tasks that an app has declared, and of their routes."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from pyasynq._app.providers import Providers
from pyasynq._app.routes import route_of
from pyasynq._app.typed_task import CoroutineTask, PlainTask, TypedTask
from pyasynq._engine.handlers.group_routes import declare_aggregator
from pyasynq._engine.handlers.middleware import check_middleware, missing_route, wrap_route
from pyasynq.errors import ConfigurationError
from pyasynq.options import DEFAULT_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyasynq._app.declaration import Declaration
    from pyasynq._app.typed_task import TaskSender
    from pyasynq._engine.handlers.group_routes import DeclaredAggregator
    from pyasynq._engine.handlers.middleware import Middleware
    from pyasynq._engine.handlers.routes import Route
    from pyasynq._payload.converter import Converter
    from pyasynq.config import GroupAggregator, GroupRule
    from pyasynq.hooks import Hooks
    from pyasynq.options import EnqueueOptions
    from pyasynq.task_types import TaskTypeInfo


def check_undeclared(function: object) -> None:
    """Raise `ConfigurationError` if the function is already a typed task, by another decorator."""
    if isinstance(function, TypedTask):
        raise ConfigurationError(
            f"task {function.type!r} is declared already: write one @app.task(...), below @app.cron(...)"
        )


class Registry:
    """Declared tasks by type. Each route is made once, at its first use.

    Attributes:
        tasks: the typed tasks by type, in the order of their declaration.
        providers: make the dependencies of handlers in this process.
        aggregators: the functions that aggregate groups, by name or pattern of the groups.
        codecs: the app's converters to and from JSON by class, for tasks that are declared later.
    """

    def __init__(self, middleware: Iterable[Middleware]) -> None:
        self.tasks: dict[str, TypedTask[..., Any]] = {}
        self._middleware: list[Middleware] = []
        self._declarations: dict[str, Declaration] = {}
        self._routes: dict[str, Route] = {}
        self.aggregators: dict[str, DeclaredAggregator] = {}
        self.providers = Providers()
        self.codecs: dict[type, Converter] = {}
        for one in middleware:
            self.use(one)

    def add(
        self, sender: TaskSender, declaration: Declaration, options: EnqueueOptions
    ) -> TypedTask[..., Any]:
        """Register a declaration by its task type, and return its typed task.

        Raises:
            ConfigurationError: when its type is taken.
        """
        first = self._declarations.get(declaration.type)
        if first is not None:
            raise ConfigurationError(
                f"two tasks have the type {declaration.type!r}: {first.place} and {declaration.place}",
            )
        make = CoroutineTask if declaration.is_coroutine else PlainTask
        task: TypedTask[..., Any] = make(sender, declaration, options)
        self._declarations[declaration.type] = declaration
        self.tasks[declaration.type] = task
        return task

    def add_aggregator(
        self, pattern: str, function: GroupAggregator, rule: GroupRule, max_payload: int
    ) -> None:
        """Register the function that aggregates groups whose name matches the pattern.

        Raises:
            InvalidOptionError: for a blank name.
            ConfigurationError: when the name is taken, or `function` is not a function.
        """
        if pattern in self.aggregators:
            raise ConfigurationError(f"groups {pattern!r} have an aggregator already; they have one")
        self.aggregators[pattern] = declare_aggregator(pattern, function, rule, max_payload)

    def use(self, middleware: Middleware) -> None:
        """Add middleware around all handlers, inside the middleware added before.

        Raises:
            ConfigurationError: when it is not a coroutine function.
        """
        check_middleware(middleware)
        self._middleware.append(middleware)
        self._routes.clear()

    def use_for(self, declaration: Declaration, middleware: Middleware) -> None:
        """Add middleware to a single task type, inside the middleware that it already has."""
        declaration.middleware = (*declaration.middleware, middleware)
        self._routes.pop(declaration.type, None)

    def is_provider(self, function: Callable[..., Any]) -> bool:
        """Return whether any handler depends on this function."""
        found = (one.dependencies.values() for one in self._declarations.values())
        return self.providers.is_needed(function, chain.from_iterable(found))

    def compile(self) -> None:
        """Compile declarations whose annotations used names that were not defined yet.

        Raises:
            ConfigurationError: for an annotation that cannot be resolved, or whose type JSON cannot encode.
        """
        for declaration in self._declarations.values():
            declaration.compile()

    @property
    def queues(self) -> tuple[str, ...]:
        """Names of the queues that the declared tasks go to, sorted."""
        options = [task.declared_options for task in self.tasks.values()]
        return tuple(sorted({one.get("queue", DEFAULT_QUEUE) for one in options}))

    def route(self, task_type: str) -> Route | None:
        """Return the route of this task type.

        If no handler has this type, return a route that raises `HandlerNotFoundError` inside the middleware.
        Without middleware, return None.
        """
        route = self._routes.get(task_type)
        if route is None:
            declaration = self._declarations.get(task_type)
            if declaration is None:
                return wrap_route(missing_route(self.types), self._middleware) if self._middleware else None
            program = self.tasks[task_type]._program()  # noqa: SLF001 - made by this class
            route = self._routes[task_type] = wrap_route(
                route_of(declaration, self.providers, program),
                (*self._middleware, *declaration.middleware),
            )
        return route

    def types(self) -> tuple[str, ...]:
        """Return the types of all tasks."""
        return tuple(self._declarations)

    def describe_types(self, version: str) -> list[TaskTypeInfo]:
        """Return a description of each task.

        Args:
            version: version of the user's application.
        """
        from pyasynq._app.descriptions import describe_task  # noqa: PLC0415 - programs that only enqueue start faster

        tasks = self.tasks.values()
        return [describe_task(one, self._declarations[one.type].summary, version) for one in tasks]

    def routes(self) -> list[Route]:
        """Return the routes of all tasks."""
        return [route for task_type in self._declarations if (route := self.route(task_type))]


class _FindRoute(Protocol):
    """Protocol of `AppRouter.route`: its parameter has the name that the protocol `Router` prescribes."""

    def __call__(self, task_type: str) -> Route | None:
        """Return the route of a task type; None if there is none."""


class AppRouter:
    """Interface of an app to the server that runs its tasks.

    Args:
        registry: the app's tasks and aggregators.
        hooks: the app's hooks.
        version: version of the user's application, which servers publish.
    """

    def __init__(self, registry: Registry, hooks: Hooks, version: str) -> None:
        self._registry = registry
        self._version = version
        self.hooks = hooks
        """Hooks that the server calls."""
        # Assigned directly, to save a call: a worker needs the route of each task.
        self.route: _FindRoute = registry.route
        """Returns the route of a task type."""

    def routes(self) -> list[Route]:
        """Return the routes of all tasks."""
        return self._registry.routes()

    def types(self) -> tuple[str, ...]:
        """Return the types of all tasks."""
        return self._registry.types()

    def describe_types(self) -> list[TaskTypeInfo]:
        """Return a description of each task, which servers publish."""
        return self._registry.describe_types(self._version)

    def aggregators(self) -> Mapping[str, DeclaredAggregator]:
        """Return the aggregators by name or pattern of their groups."""
        return self._registry.aggregators
