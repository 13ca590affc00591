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
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, cast, overload

from pyasynq._app.declaration import Declaration
from pyasynq._app.queue_rules import DeclaredQueues, QueueRules
from pyasynq._app.registry import AppRouter, Registry, check_undeclared
from pyasynq._app.scheduling import Scheduling
from pyasynq._app.sending import REDIS_URL_VARIABLE
from pyasynq._call_shape import describe_function, name_unknown_arguments, needs_function, takes
from pyasynq._checks import check_label, check_new_name
from pyasynq._engine.handlers.group_routes import ALL_GROUPS
from pyasynq._engine.handlers.middleware import check_middleware, limit_to_queues
from pyasynq._engine.handlers.routes import HandlerRules
from pyasynq._human_text import counted, some
from pyasynq.config import (
    DefaultQueues,
    GroupRule,
    ResolvedQueues,
    SchedulerConfig,
    ServerConfig,
    check_queues,
    check_server_config,
)
from pyasynq.context import current_task
from pyasynq.errors import ConfigurationError, InvalidOptionError, ServerStateError, describe_value
from pyasynq.hooks import Hooks
from pyasynq.options import (
    DEFAULT_MAX_PAYLOAD,
    DEFAULT_QUEUE,
    check_option_names,
    resolve_options,
    with_result_ttl,
)
from pyasynq.task import Task
from pyasynq.worker_config import WorkerConfig, list_command_settings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from typing import Unpack

    import typing_extensions

    from pyasynq._app.decorators import TaskDecorator
    from pyasynq._app.providers import Providers
    from pyasynq._app.typed_task import CoroutineTask, PlainTask, TypedTask
    from pyasynq._engine.handlers.middleware import Middleware
    from pyasynq._engine.handlers.routes import Executor
    from pyasynq._redis.clients import RedisSource
    from pyasynq.client import ClientMiddleware
    from pyasynq.config import GroupAggregator
    from pyasynq.control import Control
    from pyasynq.hooks import AttemptHook, WorkerHook
    from pyasynq.limits import Queue
    from pyasynq.options import Duration, EnqueueOptions
    from pyasynq.retry import RetryDelay
    from pyasynq.scheduler import Scheduler
    from pyasynq.server import Server
    from pyasynq.task_types import TaskTypeInfo

    # An app without a lifespan, and `App` as an annotation, is an `App[Any]`.
    _State_co = typing_extensions.TypeVar("_State_co", covariant=True, default=Any)
else:
    _State_co = TypeVar("_State_co", covariant=True)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
_M = TypeVar("_M", bound="Middleware")
_A = TypeVar("_A", bound="GroupAggregator")
_H = TypeVar("_H")
_Hook = TypeVar("_Hook", bound="AttemptHook")
_WorkerHook = TypeVar("_WorkerHook", bound="WorkerHook")

_log = logging.getLogger("pyasynq")
_SHOWN_QUEUES: Final = 20
_NO_STATE: Final = object()
"""Sentinel for the state of an app whose lifespan is not entered in this process."""

_RULES_OF_TYPES = (
    *(
        "crash_limit",
        "executor",
        "is_failure",
        "max_run",
        "ordered",
        "rate",
        "result_ttl",
        "retry_delay",
        "middleware",
    ),
)
"""Names of the settings that a declaration takes besides the options of its tasks."""


def _check_lifespan(lifespan: Callable[..., Any]) -> None:
    if inspect.isasyncgenfunction(lifespan):
        raise ConfigurationError(
            f"lifespan {lifespan.__qualname__!r} is a generator: decorate it with @asynccontextmanager",
        )
    if inspect.isgeneratorfunction(lifespan):
        raise ConfigurationError(
            f"lifespan {lifespan.__qualname__!r} is a plain generator: make it `async def`, and decorate it "
            "with @asynccontextmanager",
        )
    if inspect.iscoroutinefunction(lifespan):
        raise ConfigurationError(
            f"lifespan {lifespan.__qualname__!r} has no `yield`: yield once, between start and end, and "
            "decorate it with @asynccontextmanager",
        )
    if not callable(lifespan):
        raise ConfigurationError(
            f"lifespan={describe_value(lifespan)}: "
            "give a function of the app that returns an async context manager",
        )
    if not takes(lifespan, 1):
        raise ConfigurationError(
            f"lifespan {describe_function(lifespan)} must take one argument, the app: "
            "`async def lifespan(app):` under @asynccontextmanager",
        )


class App(Scheduling, Generic[_State_co]):
    """Application: declares typed tasks, enqueues them, and runs their workers and schedulers.

    An app is made once, at module level. It connects when it is first used, and belongs to no event loop:
    each loop and each process gets connections of its own.

    Args:
        url: a URL or a client of redis-py, as for `Client`; without it the environment variable
            `PYASYNQ_REDIS_URL` is read at the first connection.
        modules: names of modules that declare tasks; a worker imports them before it starts.
        lifespan: function that takes the app and returns an async context manager. It is entered once in each
            worker process. The value that it yields is `context().state` in handlers, and `app.state`. Type
            checkers know the type of `app.state`.
        middleware: around every handler, outermost first; see `use`.
        client_middleware: around every enqueue, outermost first; see `use_client`.
        max_payload: largest size of one task's payload and headers together, in bytes. It also holds for
            tasks that aggregators return.
        timeout: time that one round trip to Redis may take.
        publish_events: publish events of the tasks that this app enqueues, as `Client` does. Workers publish
            their own events: see `ServerConfig.publish_events`.
        scheduler_config: settings of the app's schedulers: time zone of cron expressions, hooks, heartbeat.
        worker: settings of the app's workers; flags, environment and a configuration file override them.
        queues: weights and limits of queues, as in `{"mail": Queue(rate=50), "bulk": 1}`. Workers also serve
            the queues that the tasks name.
        version: version of your application, such as "2026.11.1"; workers publish it with their record and
            the task types.

    Raises:
        ConfigurationError: for a URL that cannot work. The message never shows the password.
        InvalidOptionError: for an invalid value.
    """

    def __init__(  # noqa: PLR0913 - an app is configured in one place, by name
        self,
        url: RedisSource | None = None,
        *,
        modules: Iterable[str] = (),
        lifespan: Callable[[App[Any]], AbstractAsyncContextManager[_State_co]] | None = None,
        middleware: Iterable[Middleware] = (),
        client_middleware: Iterable[ClientMiddleware] = (),
        max_payload: int = DEFAULT_MAX_PAYLOAD,
        timeout: Duration = 5.0,
        publish_events: bool | int = False,
        scheduler_config: SchedulerConfig | None = None,
        worker: WorkerConfig | None = None,
        queues: Mapping[str, int | Queue] | None = None,
        version: str = "",
    ) -> None:
        check_label("version", version)
        if worker is not None and not isinstance(worker, WorkerConfig):
            raise InvalidOptionError("worker", type(worker), "must be a WorkerConfig")
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
        if lifespan is not None:
            _check_lifespan(lifespan)
        self._lifespan = lifespan
        self._state: object = _NO_STATE
        self._registry = Registry(middleware)
        self._version = version
        self._hooks = Hooks()
        self._worker = WorkerConfig() if worker is None else worker
        if queues is not None and queues != {}:
            check_queues(queues)
        self._queues = DeclaredQueues(queues or {})

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
        max_run: int | None = None,
        rate: float | str | None = None,
        ordered: bool | None = None,
        middleware: Iterable[Middleware] = (),
        **options: Unpack[EnqueueOptions],
    ) -> TaskDecorator: ...

    def task(  # noqa: PLR0913 - a task is declared in one place, by name
        self,
        name: Any = None,
        *,
        retry_delay: RetryDelay | Duration | None = None,
        is_failure: Callable[[BaseException], bool] | None = None,
        crash_limit: int | None = None,
        result_ttl: Duration | None = None,
        executor: Executor | None = None,
        max_run: int | None = None,
        rate: float | str | None = None,
        ordered: bool | None = None,
        middleware: Iterable[Middleware] = (),
        **options: Unpack[EnqueueOptions],
    ) -> Any:
        """Declare a handler: `@app.task`, `@app.task("type")` or `@app.task("type", queue=..., ...)`.

        Args:
            name: the task's type; without it module and function name, as in `"shop.tasks.deliver"`.
            retry_delay: delay before the next attempt, or a function of `retried, error, task` that returns
                it.
            is_failure: function of the error. If it returns False, the task is tried again, and no retry is
                spent.
            crash_limit: number of worker crashes at which a task is archived.
            result_ttl: time for which `await handle.result()` can read the handler's result, at least 1
                second; another name of the option `retention`.
            executor: "process" to run the handler in a child process of the worker, which is killed at the
                timeout. The function must be importable as `module:function`.
            max_run: maximum number of tasks of the queue that run at once, in all workers together.
            rate: maximum number of the queue's tasks that start per period, such as `"50/s"` or `"100/m+10"`,
                or a number per second.
            ordered: True to run the queue's tasks strictly one after the other. If `max_run`, `rate` or
                `ordered` is given, the task has a queue of its own. Its name is the task's type, unless
                `queue` gives another.
            middleware: around the handlers of this type alone, inside that of the app; see `use`.
            options: options of every task of this type, unless `.options()` says otherwise.

        Raises:
            ConfigurationError: for a second task of the same type, an unnamed task in `__main__`, a
                parameter whose type JSON cannot encode, or a queue that another task limits differently.
            UnknownOptionError, InvalidOptionError: for wrong options.
        """
        check_option_names(options, also=_RULES_OF_TYPES)
        if result_ttl is not None:
            options = with_result_ttl(options, result_ttl)
        resolve_options(options)
        if callable(middleware):
            raise InvalidOptionError("middleware", type(middleware), "give a list, as in middleware=[m]")
        inner = tuple(middleware)
        for one in inner:
            check_middleware(one)
        limits = QueueRules(max_run, rate, ordered)
        is_limited = bool(limits.fields())

        def declare(function: Callable[..., Any]) -> TypedTask[..., Any]:
            check_undeclared(function)
            declaration = Declaration(
                function,
                name if isinstance(name, str) else None,
                HandlerRules(retry_delay, is_failure, crash_limit, executor),
                inner,
                self._registry.codecs,
            )
            queue = options.get("queue", declaration.type if is_limited else DEFAULT_QUEUE)
            self._queues.add(queue, limits, declaration.owner)
            self._queues.check_front({**options, "queue": queue})
            own: EnqueueOptions = {**options, "queue": queue} if is_limited else options
            return self._registry.add(self, declaration, own)

        if callable(name):
            return declare(name)
        if name is not None:
            if not isinstance(name, str):
                remedy = "must be the task's type, as in @app.task('email:deliver')"
                raise InvalidOptionError("name", name, remedy)
            check_new_name("the name of a task", name)
        return declare

    def type_codec(
        self,
        kind: type[_T],
        *,
        encode: Callable[[_T], Any],
        decode: Callable[[Any], _T],
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        """Register a codec, which converts a class to JSON and back, for arguments and results of tasks.

        `app.type_codec(Money, encode=str, decode=Money.parse)` affects the tasks that are declared after it.
        Exceptions of `encode` and `decode` become encoding or decoding errors. These name the exception's
        class and never show the value.

        Args:
            kind: the class; values of subclasses are encoded too.
            encode: returns text, a number, a boolean, a list or a dict of these; never None.
            decode: takes what `encode` returns, and returns an equal value.
            schema: JSON Schema (2020-12) of what `encode` returns, for forms.

        Raises:
            ConfigurationError: for a second codec of a class, or something that is not a class.
        """
        from pyasynq._payload.type_codecs import codec_of  # noqa: PLC0415 - few apps have codecs

        if not isinstance(kind, type):
            raise ConfigurationError(f"type_codec({describe_value(kind)}): give a class")
        if kind in self._registry.codecs:
            raise ConfigurationError(f"{kind.__qualname__} has a codec already")
        self._registry.codecs[kind] = codec_of(kind, encode, decode, schema)

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

        The function is `(group, tasks) -> Task | None`: an `async def`, or a `def`, which runs in a thread.
        The task that it returns, such as `deliver.task(...)`, goes to the queue of the group. None leaves the
        tasks for later.

        Args:
            groups: a group's name, or a prefix of names followed by `*`; all groups by default.
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
        return tuple(sorted({*self._registry.queues, *self._scheduled_queues}))

    @property
    def worker(self) -> WorkerConfig:
        """Settings of the app's workers, as they were given."""
        return self._worker

    def default_queues(self) -> dict[str, int | Queue]:
        """Return the queues that a worker serves by default, with the declared weights and limits.

        They are the queues of the tasks, those of `App(queues=...)`, and `default`.
        """
        return self._queues.settings(sorted({*self.queues, *self._queues.names, DEFAULT_QUEUE}))

    def _complete(self, config: ServerConfig) -> ServerConfig:
        """Return a worker's settings with the queues that it serves, and their declared limits."""
        check_server_config(config)
        if isinstance(config.queues, ResolvedQueues):
            return config
        is_given = config.queues and not isinstance(config.queues, DefaultQueues)
        queues = self._queues.limited(config.queues) if is_given else self.default_queues()
        return replace(config, queues=queues)

    def _warn_of_unserved_queues(self, config: ServerConfig, remedy: str) -> None:
        """Log a warning if tasks of the app go to queues that a worker with these settings does not serve."""
        unserved = [name for name in self.queues if name not in config.queues]
        if unserved:
            _log.warning(
                "tasks of this app go to queues that this worker does not serve: %s; add them to %s",
                some(unserved, _SHOWN_QUEUES),
                remedy,
            )

    def use(self, middleware: _M, *, queues: Iterable[str] | None = None) -> _M:
        """Add `async def m(task, call_next)` around every handler, inside the middleware added before.

        It may be used as a decorator. `call_next(task)` returns the result's bytes; a plain handler runs in a
        thread during this call. A task type without a handler raises `HandlerNotFoundError` from `call_next`.

        Args:
            middleware: a coroutine function.
            queues: names of the queues whose tasks' handlers are wrapped; by default all queues.

        Raises:
            ConfigurationError: for anything but a coroutine function that takes two arguments.
            InvalidOptionError: for one name instead of several.
        """
        check_middleware(middleware)
        if queues is None:
            self._registry.use(middleware)
        else:
            if isinstance(queues, str):
                raise InvalidOptionError(
                    "queues", queues, "must be several names; put a single one in a list"
                )
            self._registry.use(limit_to_queues(middleware, queues))
        return middleware

    # Hooks.

    @needs_function
    def on_error(self, hook: _Hook) -> _Hook:
        """Register a hook for failed attempts: `async def hook(end: AttemptEnd)`, or a plain function.

        Like the other hooks, it runs in the worker that decides the outcome, concurrently with other tasks,
        for at most 5 seconds. An exception from it is logged and changes nothing. See the page on hooks.

        Raises:
            ConfigurationError: for an object that cannot be called with one argument.
        """
        return self._add_hook("error", hook, 1)

    @needs_function
    def on_retry(self, hook: _Hook) -> _Hook:
        """Register a hook that is called when an attempt has failed and the task is tried again."""
        return self._add_hook("retry", hook, 1)

    @needs_function
    def on_archived(self, hook: _Hook) -> _Hook:
        """Register a hook that is called when a task has failed for good and was archived."""
        return self._add_hook("archived", hook, 1)

    @needs_function
    def on_success(self, hook: _Hook) -> _Hook:
        """Register a hook that is called when a task has succeeded."""
        return self._add_hook("success", hook, 1)

    @needs_function
    def on_worker_start(self, hook: _WorkerHook) -> _WorkerHook:
        """Register `async def hook()`, or a plain function, to call in each worker before its first task."""
        return self._add_hook("start", hook, 0)

    @needs_function
    def on_worker_stop(self, hook: _WorkerHook) -> _WorkerHook:
        """Register a hook that is called in each worker process after its last task."""
        return self._add_hook("stop", hook, 0)

    def _add_hook(self, kind: str, hook: _H, arguments: int) -> _H:
        if not callable(hook) or not takes(hook, arguments):
            needs = "one argument, the end of an attempt" if arguments else "no argument"
            raise ConfigurationError(f"the hook {describe_function(hook)} must take {needs}")
        getattr(self._hooks, kind).append(hook)
        return hook

    # Running.

    @property
    def state(self) -> _State_co:
        """What the lifespan yielded in this process; None without a lifespan.

        If several workers of the app run in this process, it is the value of the newest worker. Inside
        `pyasynq.testing.task_context(state=...)` it is the given value.

        Raises:
            ServerStateError: where no worker of the app runs, such as in a program that only enqueues.
        """
        state = self._state
        if state is _NO_STATE:
            running = current_task.get(None)
            if running is None:
                raise ServerStateError(
                    "app.state is what the lifespan yields, and no worker of this app runs in this process: "
                    "read it in a handler or a hook; in a test, inside "
                    "`with pyasynq.testing.task_context(state=...):`"
                )
            state = running.home.task_state
        return cast("_State_co", state)

    def load(self) -> None:
        """Import the modules that declare tasks, then resolve their annotations and compile their codecs.

        Raises:
            ConfigurationError: for annotations that cannot be resolved, or whose types JSON cannot encode.
            ImportError: for a module that does not exist.
        """
        for module in self.modules:
            importlib.import_module(module)
        self._registry.compile()

    def describe_types(self) -> Iterable[TaskTypeInfo]:
        """Return a description of each task: its JSON Schema, queue, options and docstring, for tools.

        Raises:
            ConfigurationError: for an annotation that cannot be resolved.
        """
        return self._registry.describe_types(self._version)

    def __pyasynq_router__(self) -> AppRouter:
        """Return the router through which servers run this app's tasks."""
        return AppRouter(self._registry, self._hooks, self._version)

    def _check_front(self, task: Task | str, options: EnqueueOptions) -> None:
        declared = task.options if isinstance(task, Task) else {}
        if "front" in declared or "front" in options:
            self._queues.check_front({**declared, **options})

    def _use_for(self, declaration: Declaration, middleware: Middleware) -> None:
        self._registry.use_for(declaration, middleware)

    @property
    def _providers(self) -> Providers:
        return self._registry.providers

    def server(self, config: ServerConfig | None = None, *, with_scheduler: bool | None = None) -> Server:
        """Return a server with this app's lifespan, for programs with an event loop of their own.

        Pass the app to its `run` or `start`. The app's connections are closed with the server.

        Args:
            config: settings; by default those of `App(worker=...)`. Without queues the server serves what
                `default_queues` says; with queues it keeps the limits that the app declares for them.
                Settings of processes, probes and logs are for `pyasynq worker` alone.
            with_scheduler: whether to run a scheduler as well, from before the first task until after the
                last; by default what the settings say.

        Raises:
            ConfigurationError: without a Redis URL, or raised by `load`.
            InvalidOptionError: for a `config` that is not one.
        """
        from pyasynq.server import Server  # noqa: PLC0415 - programs that only enqueue start faster

        self.load()
        config = self._complete(self._worker if config is None else config)
        if with_scheduler is None:
            with_scheduler = isinstance(config, WorkerConfig) and config.with_scheduler
        scheduler = self.scheduler() if with_scheduler else None
        server = Server(
            self.url,
            config,
            clock=self._clock,
            lifespan=lambda: self._working(scheduler),
            version=self._version,
        )
        if scheduler is not None:
            server.related_events = (scheduler.events,)
        return server

    def run_worker(
        self,
        config: ServerConfig | None = None,
        *,
        with_scheduler: bool | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> int:
        """Run a worker as the main program of this process until a stop signal; return the exit code.

        `raise SystemExit(app.run_worker())` runs one process. `pyasynq worker` also starts several processes,
        answers probes, reloads, and sets up logging. Warnings name the settings for that which are given, and
        queues of the app's tasks that this worker does not serve.

        Args:
            config: settings, as for `server`.
            with_scheduler: whether to run a scheduler as well, in the same event loop; by default what the
                settings say.
            loop_factory: makes the event loop, such as `uvloop.new_event_loop`.

        Raises:
            ConfigurationError: without a Redis URL, or raised by `load`.
        """
        server = self.server(config, with_scheduler=with_scheduler)
        if ignored := list_command_settings(server.config):
            # Not refused: the same app may also be started by `pyasynq worker`.
            _log.warning(
                "a worker in a program of its own ignores %s: start it with `pyasynq worker`",
                ", ".join(ignored),
            )
        self._warn_of_unserved_queues(server.config, "queues")
        return server.run_forever(self, loop_factory=loop_factory)

    @asynccontextmanager
    async def _working(self, scheduler: Scheduler | None) -> AsyncGenerator[Any, None]:
        """Enter the lifespan, and call the hooks `on_worker_start`; at the end call `on_worker_stop`."""
        async with self._lifetime(scheduler) as state:
            await self._call_worker_hooks(self._hooks.start)
            try:
                yield state
            finally:
                await self._call_worker_hooks(self._hooks.stop)

    async def _call_worker_hooks(self, hooks: Iterable[WorkerHook]) -> None:
        from pyasynq._engine.hook_runner import call_hooks  # noqa: PLC0415 - programs that only enqueue start faster

        await call_hooks(hooks)

    @asynccontextmanager
    async def _lifetime(self, scheduler: Scheduler | None = None) -> AsyncGenerator[Any, None]:
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
                # Entered after the lifespan, which may prepare what providers need, and left before it.
                await stack.enter_async_context(self._providers.for_worker())
                outer, self._state = self._state, state
                stack.callback(setattr, self, "_state", outer)
                yield state
        finally:
            await self.close()

    def __repr__(self) -> str:
        known = self._url is not None or self._destination is not None
        address = self.address if known else f"${REDIS_URL_VARIABLE}"
        return f"<App at {address} with {counted(len(self._registry.tasks), 'task')}>"


def _find_setting(name: str) -> str:
    """Return what to write for a setting of workers or schedulers that an app was given; "" for others."""
    for option, kind in (("worker", WorkerConfig), ("scheduler_config", SchedulerConfig)):
        if name in kind.__dataclass_fields__:
            return f"write {option}={kind.__name__}({name}=...)"
    return ""


name_unknown_arguments(App, _find_setting)
