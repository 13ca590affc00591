"""`App`: typed tasks on top of client and server.

Example:
    app = App("redis://localhost:6379/0")

    @app.task("email:deliver", queue="critical", max_retry=5, timeout=30)
    async def deliver(user_id: int, template: str) -> str: ...

    handle = await deliver.enqueue(user_id=42, template="welcome")
"""

from __future__ import annotations

import importlib
import inspect
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, overload

from pyasynq._app.declaration import Declaration
from pyasynq._app.registry import Registry
from pyasynq._app.scheduling import Scheduling
from pyasynq._app.sending import REDIS_URL_VARIABLE
from pyasynq._call_shape import name_of_function, takes
from pyasynq._checks import new_name_of
from pyasynq._engine.handlers.group_routes import ALL_GROUPS
from pyasynq._human_text import counted
from pyasynq.config import GroupRule, ServerConfig
from pyasynq.errors import ConfigurationError, describe_value
from pyasynq.options import (
    DEFAULT_MAX_PAYLOAD,
    DEFAULT_QUEUE,
    check_option_names,
    resolve_options,
    with_result_ttl,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from typing import Unpack

    from pyasynq._app.decorators import TaskDecorator
    from pyasynq._app.typed_task import CoroutineTask, PlainTask, TypedTask
    from pyasynq._engine.handlers.group_routes import DeclaredAggregator
    from pyasynq._engine.handlers.middleware import Middleware
    from pyasynq._engine.handlers.routes import Executor, Route
    from pyasynq._redis.clients import RedisSource
    from pyasynq.client import ClientMiddleware
    from pyasynq.config import GroupAggregator, SchedulerConfig
    from pyasynq.control import Control
    from pyasynq.options import Duration, EnqueueOptions
    from pyasynq.retry import RetryDelay
    from pyasynq.scheduler import Scheduler
    from pyasynq.server import Server

    Lifespan: TypeAlias = Callable[["App"], AbstractAsyncContextManager[Any]]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_M = TypeVar("_M", bound="Middleware")
_A = TypeVar("_A", bound="GroupAggregator")

_RULES_OF_TYPES = ("crash_limit", "executor", "is_failure", "result_ttl", "retry_delay")
"""What a declaration takes beside the options of its tasks."""


class App(Scheduling):
    """Typed tasks, and all that is needed to enqueue and to run them.

    An app is made once, at module level. It connects when it is first used, and belongs to no event loop:
    each loop and each process gets connections of its own.

    Args:
        url: a URL or a client of redis-py, as for `Client`; without it the environment variable
            `PYASYNQ_REDIS_URL` is read at the first connection.
        modules: names of modules that declare tasks; a worker imports them before it starts.
        lifespan: takes the app and returns an async context manager, which is entered once in each worker
            process; what it yields is `context().state`.
        middleware: around every handler, outermost first; see `use`.
        client_middleware: around every enqueue, outermost first; see `use_client`.
        max_payload: bytes that payload and headers of one task may have together, also of one that an
            aggregator returns.
        timeout: how long one exchange with Redis may take.
        publish_events: publish what this app enqueues, as `Client` does; what workers do is theirs to
            publish: `ServerConfig.publish_events`.
        scheduler_config: how the app's schedulers work: the zone of expressions, hooks, heartbeat.

    Raises:
        ConfigurationError: for a URL that cannot work. The message never shows the password.
        InvalidOptionError: for a value that a setting cannot have.
    """

    def __init__(  # noqa: PLR0913 - an app is configured in one place, by name
        self,
        url: RedisSource | None = None,
        *,
        modules: Iterable[str] = (),
        lifespan: Lifespan | None = None,
        middleware: Iterable[Middleware] = (),
        client_middleware: Iterable[ClientMiddleware] = (),
        max_payload: int = DEFAULT_MAX_PAYLOAD,
        timeout: Duration = 5.0,
        publish_events: bool | int = False,
        scheduler_config: SchedulerConfig | None = None,
    ) -> None:
        if isinstance(modules, str):
            raise ConfigurationError(
                f"modules={describe_value(modules)}: give a list, as in modules=['shop.tasks']"
            )
        super().__init__(
            url,
            client_middleware,
            max_payload=max_payload,
            timeout=timeout,
            publish_events=publish_events,
            scheduler_config=scheduler_config,
        )
        self.modules = tuple(modules)
        if inspect.isasyncgenfunction(lifespan):
            raise ConfigurationError(
                f"lifespan {lifespan.__qualname__!r} is a generator: decorate it with @asynccontextmanager",
            )
        if lifespan is not None and not callable(lifespan):
            raise ConfigurationError(
                f"lifespan={describe_value(lifespan)}: "
                "give a function of the app that returns an async context manager",
            )
        if lifespan is not None and not takes(lifespan, 1):
            raise ConfigurationError(
                f"lifespan {name_of_function(lifespan)} must take one argument, the app: "
                "`async def lifespan(app):` under @asynccontextmanager",
            )
        self._lifespan = lifespan
        self._registry = Registry(middleware)

    # Declaring.

    @overload
    def task(  # type: ignore[overload-overlap] # a coroutine function is also a function; the first match wins
        self, function: Callable[_P, Coroutine[Any, Any, _R | Control]], /
    ) -> CoroutineTask[_P, _R]: ...

    @overload
    def task(self, function: Callable[_P, _R | Control], /) -> PlainTask[_P, _R]: ...

    @overload
    def task(
        self,
        name: str | None = None,
        *,
        retry_delay: RetryDelay | Duration | None = None,
        is_failure: Callable[[BaseException], bool] | None = None,
        crash_limit: int | None = None,
        result_ttl: Duration | None = None,
        executor: Executor | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskDecorator: ...

    def task(
        self,
        name: Any = None,
        *,
        retry_delay: RetryDelay | Duration | None = None,
        is_failure: Callable[[BaseException], bool] | None = None,
        crash_limit: int | None = None,
        result_ttl: Duration | None = None,
        executor: Executor | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Any:
        """Declare a handler: `@app.task`, `@app.task("type")` or `@app.task("type", queue=..., ...)`.

        Args:
            name: the task's type; without it module and function name, as in `"shop.tasks.deliver"`.
            retry_delay: the wait before the next attempt, or takes `retried, error, task` and returns it.
            is_failure: False for errors that are retried without spending a retry.
            crash_limit: how many crashes of its worker archive a task.
            result_ttl: how long what the handler returns can be read, by `await handle.result()`: the
                option `retention` by another name, at least 1 second.
            executor: "process" to run the handler in a child process of the worker, which is killed when
                its time is over; the function must be found as `module:function`.
            options: of every task of this type, unless `.options()` says otherwise.

        Raises:
            ConfigurationError: for a second task of the same type, an unnamed task in `__main__`, or a
                parameter that a payload cannot carry.
            UnknownOptionError, InvalidOptionError: for wrong options.
        """
        check_option_names(options, beside=_RULES_OF_TYPES)
        if result_ttl is not None:
            options = with_result_ttl(options, result_ttl)
        resolve_options(options)

        def declare(function: Callable[..., Any]) -> TypedTask[..., Any]:
            declaration = Declaration(
                function,
                name if isinstance(name, str) else None,
                retry_delay=retry_delay,
                is_failure=is_failure,
                crash_limit=crash_limit,
                executor=executor,
            )
            return self._registry.add(self, declaration, options)

        if callable(name):
            return declare(name)
        if name is not None:
            new_name_of("the name of a task", name)
        return declare

    @overload
    def aggregator(self, function: _A, /) -> _A: ...

    @overload
    def aggregator(
        self,
        groups: str = ALL_GROUPS,
        *,
        grace_period: Duration | None = None,
        max_delay: Duration | None = None,
        max_size: int | None = None,
    ) -> Callable[[_A], _A]: ...

    def aggregator(
        self,
        groups: Any = ALL_GROUPS,
        *,
        grace_period: Duration | None = None,
        max_delay: Duration | None = None,
        max_size: int | None = None,
    ) -> Any:
        """Declare a function that makes one task of the tasks of a group: `@app.aggregator`.

        `(group, tasks) -> Task | None`, `async def` or `def` in a thread. It may return what
        `deliver.task(...)` makes; the queue is that of the group. None leaves the tasks for later.

        Args:
            groups: a group's name, or the beginning of names and a `*`; without it all groups.
            grace_period: instead of the server's `group_grace_period`.
            max_delay: instead of the server's `group_max_delay`.
            max_size: instead of the server's `group_max_size`.

        Raises:
            ConfigurationError: for a second aggregator of the same groups.
            InvalidOptionError: for a setting that cannot work.
        """
        rule = GroupRule(grace_period=grace_period, max_delay=max_delay, max_size=max_size)

        def declare(function: _A) -> _A:
            pattern = groups if isinstance(groups, str) else ALL_GROUPS
            self._registry.add_aggregator(pattern, function, rule, self._max_payload)
            return function

        return declare(groups) if callable(groups) else declare

    @property
    def tasks(self) -> Mapping[str, TypedTask[..., Any]]:
        """All declared tasks by type."""
        return MappingProxyType(self._registry.tasks)

    @property
    def queues(self) -> tuple[str, ...]:
        """Names of the queues that the declared and the scheduled tasks go to, sorted."""
        return tuple(sorted({*self._registry.queues, *self.scheduled_queues}))

    def default_weights(self) -> dict[str, int]:
        """Return what a worker serves unless told otherwise: the tasks' queues and `default`, alike."""
        return dict.fromkeys(sorted({*self.queues, DEFAULT_QUEUE}), 1)

    def use(self, middleware: _M) -> _M:
        """Add `async def m(task, call_next)` around every handler, inside those added before.

        It may be used as a decorator. `call_next(task)` returns the result's bytes; plain handlers run in
        their thread behind it. A task type without a handler raises `HandlerNotFoundError` from `call_next`.
        """
        self._registry.use(middleware)
        return middleware

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

    def types(self) -> Iterable[str]:
        """Return the types of all tasks; for the server."""
        return self._registry.types()

    def aggregators(self) -> Mapping[str, DeclaredAggregator]:
        """Return the aggregators by the names of their groups; for the server."""
        return self._registry.aggregators

    def server(self, config: ServerConfig | None = None, *, with_scheduler: bool = False) -> Server:
        """Return a server with this app's lifespan, for programs with an event loop of their own.

        Pass the app to its `run` or `start`. The app's connections are closed when the server is.

        Args:
            config: how to work; without it as `default_weights` says.
            with_scheduler: also be a scheduler, from before the first task until after the last.

        Raises:
            ConfigurationError: when there is no Redis URL, or as `load` does.
        """
        from pyasynq.server import Server  # noqa: PLC0415 - programs that only enqueue start faster

        self.load()
        scheduler = self.scheduler() if with_scheduler else None
        if config is None:
            config = ServerConfig(queues=self.default_weights())
        return Server(self.url, config, clock=self._clock, lifespan=lambda: self.lifetime(scheduler))

    def run_worker(
        self,
        config: ServerConfig | None = None,
        *,
        with_scheduler: bool = False,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> int:
        """Be the worker of this process: run tasks until a signal says stop, and return the exit code.

        `raise SystemExit(app.run_worker())` is what `pyasynq worker` does.

        Args:
            config: how to work; without it as `default_weights` says.
            with_scheduler: also be a scheduler, in the same event loop.
            loop_factory: makes the event loop, such as `uvloop.new_event_loop`.

        Raises:
            ConfigurationError: when there is no Redis URL, or as `load` does.
        """
        server = self.server(config, with_scheduler=with_scheduler)
        return server.run_forever(self, loop_factory=loop_factory)

    @asynccontextmanager
    async def lifetime(self, scheduler: Scheduler | None = None) -> AsyncGenerator[Any, None]:
        """Enter the lifespan and a scheduler, for a process that runs tasks; yields the lifespan's value.

        The app's connections are closed at the end.
        """
        try:
            async with AsyncExitStack() as stack:
                state = None
                if self._lifespan is not None:
                    state = await stack.enter_async_context(self._lifespan(self))
                if scheduler is not None:
                    await stack.enter_async_context(scheduler)
                yield state
        finally:
            await self.close()

    def __repr__(self) -> str:
        known = self._url is not None or self._destination is not None
        address = self.address if known else f"${REDIS_URL_VARIABLE}"
        return f"<App at {address} with {counted(len(self._registry.tasks), 'task')}>"
