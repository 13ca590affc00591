"""`App`: typed tasks on top of client and server.

Example:
    app = App("redis://localhost:6379/0")

    @app.task("email:deliver", queue="critical", max_retry=5, timeout=30)
    async def deliver(user_id: int, template: str) -> str: ...

    handle = await deliver.enqueue(user_id=42, template="welcome")
"""

from __future__ import annotations

import importlib
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, overload

from pyasynq._app.clients import Clients
from pyasynq._app.declaration import Declaration
from pyasynq._app.registry import Registry
from pyasynq._broker.redis_url import parse_redis_url
from pyasynq.errors import ConfigurationError
from pyasynq.options import name_of, resolve_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Self, Unpack

    from pyasynq._app.client_middleware import ClientMiddleware
    from pyasynq._app.routes import Middleware
    from pyasynq._app.typed_task import CoroutineTask, PlainTask, TaskDecorator, TypedTask
    from pyasynq._server.routes import Route
    from pyasynq.options import EnqueueOptions
    from pyasynq.retry import RetryDelay
    from pyasynq.task import EnqueueResult, Task, TaskInfo

    Lifespan: TypeAlias = Callable[["App"], AbstractAsyncContextManager[Any]]

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound="Middleware")
C = TypeVar("C", bound="ClientMiddleware")

REDIS_URL_VARIABLE = "PYASYNQ_REDIS_URL"
"""Where `App()` without a URL finds one, at its first connection."""


class App:
    """Typed tasks, and all that is needed to enqueue and to run them.

    An app is made once, at module level. It connects when it is first used, and belongs to no event loop:
    each loop and each process gets connections of its own.

    Args:
        url: `redis://`, `rediss://`, `unix://` or `embedded://`; without it the environment variable
            `PYASYNQ_REDIS_URL` is read at the first connection.
        modules: names of modules that declare tasks; a worker imports them before it starts.
        lifespan: takes the app and returns an async context manager, which is entered once in each worker
            process; what it yields is `context().state`.
        middleware: around every handler, outermost first; see `use`.
        client_middleware: around every enqueue, outermost first; see `use_client`.
        max_payload: the largest payload in bytes that may be enqueued.
        timeout: how many seconds one exchange with Redis may take.

    Raises:
        ConfigurationError: for a URL that cannot work. The message never shows the password.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        modules: Iterable[str] = (),
        lifespan: Lifespan | None = None,
        middleware: Iterable[Middleware] = (),
        client_middleware: Iterable[ClientMiddleware] = (),
        max_payload: int = 8_000_000,
        timeout: float = 5.0,
    ) -> None:
        if isinstance(modules, str):
            raise ConfigurationError(f"modules={modules!r}: give a list, as in modules=[{modules!r}]")
        if url is not None:
            parse_redis_url(url)
        self._url = url
        self.modules = tuple(modules)
        self._lifespan = lifespan
        self._registry = Registry(middleware)
        self._clients = Clients(lambda: self.url, list(client_middleware), max_payload, timeout)

    # Declaring.

    @overload
    def task(  # type: ignore[overload-overlap] # a coroutine function is also a function; the first match wins
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...

    @overload
    def task(
        self,
        name: str | None = None,
        *,
        retry_delay: RetryDelay | None = None,
        is_failure: Callable[[BaseException], bool] | None = None,
        crash_limit: int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskDecorator: ...

    def task(
        self,
        name: Any = None,
        *,
        retry_delay: RetryDelay | None = None,
        is_failure: Callable[[BaseException], bool] | None = None,
        crash_limit: int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Any:
        """Declare a handler: `@app.task`, `@app.task("type")` or `@app.task("type", queue=..., ...)`.

        Args:
            name: the task's type; without it module and function name, as in `"shop.tasks.deliver"`.
            retry_delay: takes `retried, error, task` and returns the wait before the next attempt.
            is_failure: False for errors that are retried without spending a retry.
            crash_limit: how many crashes of its worker archive a task.
            options: of every task of this type, unless `.options()` says otherwise.

        Raises:
            ConfigurationError: for a second task of the same type, an unnamed task in `__main__`, or a
                parameter that a payload cannot carry.
            UnknownOptionError, InvalidOptionError: for wrong options.
        """
        resolve_options(options)

        def declare(function: Callable[..., Any]) -> TypedTask[..., Any]:
            declaration = Declaration(
                function,
                name if isinstance(name, str) else None,
                retry_delay=retry_delay,
                is_failure=is_failure,
                crash_limit=crash_limit,
            )
            return self._registry.add(self, declaration, options)

        if callable(name):
            return declare(name)
        if name is not None:
            name_of("the name of a task", name)
        return declare

    @property
    def tasks(self) -> Mapping[str, TypedTask[..., Any]]:
        """All declared tasks by type."""
        return MappingProxyType(self._registry.tasks)

    @property
    def queues(self) -> tuple[str, ...]:
        """Names of the queues that the tasks' declarations name, and `default`, sorted."""
        return self._registry.queues

    def use(self, middleware: M) -> M:
        """Add `async def m(task, call_next)` around every handler, inside those added before.

        It may be used as a decorator. `call_next(task)` returns the result's bytes; plain handlers run in
        their thread behind it. A task type without a handler raises `HandlerNotFoundError` from `call_next`.
        """
        self._registry.use(middleware)
        return middleware

    def use_client(self, middleware: C) -> C:
        """Add `async def m(task, call_next)` around every enqueue, inside those added before.

        It may be used as a decorator, and may pass a task with other headers or options to `call_next`,
        which returns the `TaskInfo`. `enqueue_sync` runs it too, unless it waits for something else.
        """
        self._clients.use(middleware)
        return middleware

    # Enqueueing.

    async def enqueue(
        self,
        task: Task | str,
        payload: bytes | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskInfo:
        """Enqueue a task of any type, as `Client.enqueue` does; typed tasks have their own `enqueue`."""
        return await self._clients.asynchronous().enqueue(task, payload, **options)

    def enqueue_sync(
        self,
        task: Task | str,
        payload: bytes | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskInfo:
        """Enqueue a task of any type, blocking this thread."""
        return self._clients.blocking().enqueue(task, payload, **options)

    async def enqueue_many(
        self,
        tasks: Iterable[Task] | AsyncIterable[Task],
        **shared: Unpack[EnqueueOptions],
    ) -> list[EnqueueResult]:
        """Enqueue any mix of tasks in chunks, and return a result for each; see `Client.enqueue_many`.

        A caller that is cancelled may have enqueued some of them.
        """
        return await self._clients.asynchronous().enqueue_many(tasks, **shared)

    def enqueue_many_sync(
        self,
        tasks: Iterable[Task],
        **shared: Unpack[EnqueueOptions],
    ) -> list[EnqueueResult]:
        """Enqueue any mix of tasks, blocking this thread."""
        return self._clients.blocking().enqueue_many(tasks, **shared)

    async def ping(self) -> None:
        """Ask Redis for a sign of life.

        Raises:
            RedisError: when it cannot be reached within the time-out, or refuses.
        """
        await self._clients.asynchronous().ping()

    async def close(self) -> None:
        """Close the connections of this app. It may be used again afterwards, with new ones."""
        await self._clients.close()

    def close_sync(self) -> None:
        """Close the connections that the blocking methods opened."""
        self._clients.close_sync()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # Running.

    def load(self) -> None:
        """Import the modules that declare tasks, and finish what their declarations left open.

        Raises:
            ConfigurationError: for annotations that cannot be resolved or carried.
            ImportError: for a module that does not exist.
        """
        for module in self.modules:
            importlib.import_module(module)
        self._registry.compile()

    def route(self, task_type: str) -> Route | None:
        """Return how to run tasks of this type; for the server."""
        return self._registry.route(task_type)

    def routes(self) -> Iterable[Route]:
        """Return the routes of all tasks; for the server."""
        return self._registry.routes()

    @property
    def url(self) -> str:
        """The connection URL, password included.

        Raises:
            ConfigurationError: when there is none.
        """
        url = self._url or os.environ.get(REDIS_URL_VARIABLE)
        if not url:
            raise ConfigurationError(
                "this app has no Redis URL: write App('redis://localhost:6379/0'), "
                f"or set {REDIS_URL_VARIABLE} in the environment",
            )
        return url

    def __repr__(self) -> str:
        address = parse_redis_url(self._url).address if self._url else f"${REDIS_URL_VARIABLE}"
        return f"<App at {address} with {len(self._registry.tasks)} tasks>"
