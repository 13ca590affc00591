"""Typed tasks: the objects that `@app.task` returns."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast

from pyasynq._app.declaration import TypedCall, make_typed_call
from pyasynq._app.handles import (
    Acting,
    BlockingEnqueuedTask,
    BlockingTaskHandle,
    EnqueuedTask,
    TaskHandle,
)
from pyasynq._app.other_libraries import suggest_replacement
from pyasynq._app.routes import route_of
from pyasynq._broker.enqueueing.chunks import check_on_error, check_results
from pyasynq._call_shape import describe_function, takes
from pyasynq._checks import check_name
from pyasynq._engine.executor.order import Program
from pyasynq._engine.handlers.group_routes import ALL_GROUPS
from pyasynq._engine.handlers.middleware import check_middleware
from pyasynq._engine.handlers.routes import is_coroutine_handler
from pyasynq.callbacks import CALLBACK_ARGUMENTS, Callback
from pyasynq.errors import ArgumentsError, ConfigurationError, InvalidOptionError, describe_value
from pyasynq.options import DEFAULT_QUEUE, DEFAULT_TIMEOUT_SECONDS, merge_options, resolve_options
from pyasynq.task import EnqueueResult, EnqueueStatus, Task, TaskInfo, make_unchecked_task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
    from contextlib import AbstractAsyncContextManager
    from typing import Self, Unpack

    from pyasynq._app.declaration import Declaration
    from pyasynq._app.providers import Providers
    from pyasynq._broker.enqueueing.chunks import OnError
    from pyasynq._engine.handlers.middleware import AsyncHandler, Middleware
    from pyasynq._engine.handlers.routes import HandlerReturn, Route
    from pyasynq.config import GroupAggregator
    from pyasynq.dependencies import Dependency
    from pyasynq.options import Duration, EnqueueOptions

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Made = TypeVar("_Made", bound="Task | Awaitable[Task | None] | None")


class TaskSender(Acting, Protocol):
    """Interface of the app through which typed tasks enqueue."""

    url: str
    """URL of Redis; reading it raises `ConfigurationError` if none is configured."""

    def _lifetime(self) -> AbstractAsyncContextManager[Any]:
        """Return the context manager of the lifespan that surrounds all tasks of a process."""

    @property
    def _providers(self) -> Providers:
        """Providers of the handlers' dependencies."""

    def _use_for(self, declaration: Declaration, middleware: Middleware) -> None:
        """Add middleware to a single task."""

    def aggregator(
        self,
        groups: str,
        *,
        grace_period: Duration | None,
        max_delay: Duration | None,
        max_size: int | None,
    ) -> Callable[[GroupAggregator], GroupAggregator]:
        """Declare a function that makes one task of the tasks of a group."""

    async def enqueue(self, task: Task) -> TaskInfo:
        """Enqueue one task."""

    def enqueue_sync(self, task: Task) -> TaskInfo:
        """Enqueue one task, blocking."""

    async def enqueue_many(
        self, tasks: Iterable[Task] | AsyncIterable[Task], *, on_error: OnError
    ) -> list[EnqueueResult]:
        """Enqueue many tasks."""

    def enqueue_many_sync(self, tasks: Iterable[Task], *, on_error: OnError) -> list[EnqueueResult]:
        """Enqueue many tasks, blocking."""


class TypedTask(Generic[_P, _R]):
    """A handler that is enqueued with its own arguments, checked by type checkers and at run time.

    Made by `@app.task`. Calling it runs the handler directly, for tests. `_R` is the
    result: the handler's return type without control values such as `Snooze`.

    Attributes:
        type: the task's type, by which workers find the handler.
    """

    def __init__(self, sender: TaskSender, declaration: Declaration, options: EnqueueOptions) -> None:
        self._sender = sender
        self._declaration = declaration
        self._options = options
        self.type = declaration.type
        functools.update_wrapper(cast("Any", self), declaration.function, updated=())

    @property
    def declared_options(self) -> EnqueueOptions:
        """Options of the tasks that this typed task makes."""
        return self._options

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema (draft 2020-12) of the task's payload, for forms and for other languages.

        Raises:
            ConfigurationError: for an annotation with a name that its module does not define.
        """
        return self._declaration.arguments.schema(self.type, self._declaration.summary)

    def __pyasynq_callback__(self) -> Callback:
        """Return what `on_finished=` of another task enqueues: this task, with its declared options.

        Raises:
            ConfigurationError: for a task that does not take `id`, `type`, `outcome` and `error`, all text.
        """
        try:
            self._declaration.arguments.encode((), dict.fromkeys(CALLBACK_ARGUMENTS, ""))
        except ArgumentsError as error:
            raise ConfigurationError(
                f"task {self.type!r} cannot be told of the end of another one: it must take "
                f"(id: str, type: str, outcome: str, error: str), and no other argument without a default: "
                f"{error}"
            ) from None
        options = resolve_options(self._options)
        return Callback(
            self.type,
            options.queue,
            max_retry=options.max_retry,
            timeout=options.timeout or DEFAULT_TIMEOUT_SECONDS,
            retention=options.retention,
        )

    def options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return a copy whose tasks have these options, which override the options of the declaration.

        Raises:
            UnknownOptionError: for a misspelt option.
            InvalidOptionError: for an invalid value.
        """
        resolve_options(options)
        return type(self)(self._sender, self._declaration, merge_options(self._options, options))

    def with_options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return a copy whose tasks also have these options: an alias of `options`, named as in `Task`."""
        return self.options(**options)

    def with_headers(self, headers: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Return a copy whose tasks have these headers in addition to earlier ones.

        A header given here replaces an earlier one of the same name: `deliver.with_headers(tenant="acme")`,
        or a mapping for names that are not identifiers.

        Raises:
            InvalidOptionError: for headers that are not text, or too large.
        """
        return self.options(headers={**(headers or {}), **more})

    def task(self, *args: _P.args, **kwargs: _P.kwargs) -> TypedCall[_P, _R]:
        """Return a `Task` with these arguments, for `enqueue_many`, schedulers and clients. Nothing is sent.

        Raises:
            ArgumentsError: for arguments that the handler does not take.
            PayloadEncodingError: for an argument that JSON cannot encode; the message names the argument.
        """
        payload = self._declaration.arguments.encode(args, kwargs)
        call: TypedCall[_P, _R] = make_typed_call(self._declaration, payload, self._options.copy())
        return call

    def read_call(self, task: Task) -> TypedCall[_P, _R]:
        """Return a task of this type as a call with typed arguments, for middleware that gets many types.

        Raises:
            ConfigurationError: for a task of another type.
        """
        if task.type != self.type:
            raise ConfigurationError(
                f"a task of type {task.type!r} is not a call of task {self.type!r}: "
                "compare task.type with the type of the typed task first"
            )
        return self._read(task)

    def _read(self, task: Task) -> TypedCall[_P, _R]:
        call: TypedCall[_P, _R] = make_typed_call(self._declaration, task.payload, task.options)
        return call

    def use(
        self,
        middleware: Callable[[TypedCall[_P, _R], AsyncHandler], Awaitable[HandlerReturn]],
    ) -> Callable[[TypedCall[_P, _R], AsyncHandler], Awaitable[HandlerReturn]]:
        """Add middleware around the handler of this task type, inside all middleware added before.

        The middleware is `async def m(call, call_next)`. `call` is the task with typed arguments:
        `call.arguments`, `call.apply(function)`. `await call_next(call)` runs the handler, and returns the
        result's bytes. `use` may be a decorator.

        Raises:
            ConfigurationError: for anything but a coroutine function that takes two arguments.
        """
        check_middleware(middleware)

        async def call(task: Task, call_next: AsyncHandler) -> HandlerReturn:
            return await middleware(self._read(task), call_next)

        self._sender._use_for(self._declaration, call)  # noqa: SLF001 - of the app, which makes typed tasks
        return middleware

    def aggregator(
        self,
        groups: str = ALL_GROUPS,
        *,
        grace_period: Duration | None = None,
        max_delay: Duration | None = None,
        max_size: int | None = None,
    ) -> Callable[
        [Callable[[str, list[TypedCall[_P, _R]]], _Made]], Callable[[str, list[TypedCall[_P, _R]]], _Made]
    ]:
        """Declare a function that makes one task of the calls of a group: `@record.aggregator("user:*")`.

        As `App.aggregator`, with calls of this type instead of tasks. If a group also has tasks of other
        types, the aggregation fails with an error, and the group stays as it is.

        Args:
            groups: a group's name, or a prefix of names followed by `*`; all groups by default.
            grace_period: instead of the server's `group_grace_period`.
            max_delay: instead of the server's `group_max_delay`.
            max_size: instead of the server's `group_max_size`.

        Raises:
            ConfigurationError: for a second aggregator of the same groups, or anything but a function of
                two arguments.
            InvalidOptionError: for a setting that cannot work.
        """
        if not isinstance(groups, str):
            raise InvalidOptionError(
                "groups", groups, "must be text; for all groups write `@task.aggregator()`, with parentheses"
            )
        declare = self._sender.aggregator(
            groups, grace_period=grace_period, max_delay=max_delay, max_size=max_size
        )

        def declare_typed(
            function: Callable[[str, list[TypedCall[_P, _R]]], _Made],
        ) -> Callable[[str, list[TypedCall[_P, _R]]], _Made]:
            given: object = function
            if not callable(given) or not takes(given, 2):
                raise ConfigurationError(
                    f"the aggregator of {groups!r} is a function of a group's name and its calls, "
                    f"and this is {describe_function(function)}"
                )
            declare(self._convert_aggregator(function))
            return function

        return declare_typed

    def _convert_aggregator(
        self, function: Callable[[str, list[TypedCall[_P, _R]]], Task | Awaitable[Task | None] | None]
    ) -> GroupAggregator:
        """Make an aggregator of calls an aggregator of tasks; a plain function still runs in a thread."""

        @functools.wraps(function)
        def call(group: str, tasks: list[Task]) -> Task | Awaitable[Task | None] | None:
            return function(group, [self.read_call(task) for task in tasks])

        @functools.wraps(function)
        async def call_async(group: str, tasks: list[Task]) -> Task | None:
            return await cast("Awaitable[Task | None]", call(group, tasks))

        return call_async if is_coroutine_handler(function) else call

    def _task(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Task:
        return make_unchecked_task(
            self.type, self._declaration.arguments.encode(args, kwargs), self._options.copy()
        )

    async def enqueue(self, *args: _P.args, **kwargs: _P.kwargs) -> EnqueuedTask[_R]:
        """Enqueue a call of the handler.

        A caller that is cancelled while waiting may still have enqueued the task.

        Raises:
            ArgumentsError: for arguments that the handler does not take.
            PayloadEncodingError: for an argument that JSON cannot encode; the message names the argument.
            TaskIDConflictError: when a task with the given `task_id` exists.
            DuplicateTaskError: when an equal `unique` task is unfinished. With another `on_duplicate`,
                `handle.enqueued.enqueue_status` is the outcome of this call.
            RedisError: when Redis cannot be reached within the timeout, or refuses.
        """
        info = await self._sender.enqueue(self._task(args, kwargs))
        return EnqueuedTask(self._sender, info, self._decode)

    def enqueue_sync(self, *args: _P.args, **kwargs: _P.kwargs) -> BlockingEnqueuedTask[_R]:
        """Enqueue a call of the handler, blocking this thread. Raises what `enqueue` raises."""
        info = self._sender.enqueue_sync(self._task(args, kwargs))
        return BlockingEnqueuedTask(self._sender, info, self._decode)

    def handle(self, task_id: str, *, queue: str | None = None) -> TaskHandle[_R]:
        """Return the handle of a task of this type that was enqueued before, perhaps elsewhere.

        Redis is not asked whether there is such a task.

        Args:
            task_id: as `enqueue` or `enqueue_many` gave it.
            queue: the task's queue; by default the queue in this typed task's options.

        Raises:
            InvalidOptionError: for a blank id or queue.
        """
        return TaskHandle(self._sender, self._queue(queue), check_name("task_id", task_id), self._decode)

    def handle_sync(self, task_id: str, *, queue: str | None = None) -> BlockingTaskHandle[_R]:
        """Return a blocking handle, for threads; otherwise as `handle`."""
        return BlockingTaskHandle(
            self._sender, self._queue(queue), check_name("task_id", task_id), self._decode
        )

    def _program(self) -> Program | None:
        """Return the handler as child processes import it; None if tasks of this type run in the worker."""
        if self._declaration.rules.executor is None:
            return None
        declaration = self._declaration
        return Program(declaration.owner, declaration.function, self._stands_at, self._settings)

    def _stands_at(self, found: object) -> bool:
        return isinstance(found, TypedTask) and found._declaration is self._declaration  # noqa: SLF001 - of this class

    def _settings(self) -> dict[str, Any]:
        try:
            return {"url": self._sender.url}
        except ConfigurationError:
            return {}  # the server was given a URL of its own, and the app has none

    def __pyasynq_route__(self, settings: Mapping[str, Any]) -> Route:
        """Return the route by which this child process runs the task.

        Set the app's URL to the worker's URL, so that handlers enqueue to the same Redis.
        """
        if "url" in settings:
            self._sender.url = settings["url"]
        return route_of(self._declaration, self._providers)

    def __pyasynq_lifespan__(self) -> tuple[object, AbstractAsyncContextManager[Any]]:
        """Return the app, and a new context manager of its lifespan."""
        return self._sender, self._sender._lifetime()  # noqa: SLF001 - of the app, which makes typed tasks

    @property
    def _providers(self) -> Providers:
        return self._sender._providers  # noqa: SLF001 - of the app, which makes typed tasks

    def _wanted(self, given: Mapping[str, object]) -> Mapping[str, Dependency]:
        """Return the dependencies that a direct call of the handler does not pass; they are injected."""
        dependencies = self._declaration.dependencies
        return dependencies and {name: one for name, one in dependencies.items() if name not in given}

    def _queue(self, queue: str | None) -> str:
        return check_name("queue", self._options.get("queue", DEFAULT_QUEUE) if queue is None else queue)

    def _decode(self, data: bytes | None) -> _R:
        # No result is stored for a handler that returns None.
        value: _R = self._declaration.result.decode(b"null" if data is None else data)
        return value

    async def enqueue_many(
        self,
        calls: Iterable[TypedCall[_P, _R] | Mapping[str, Any]]
        | AsyncIterable[TypedCall[_P, _R] | Mapping[str, Any]],
        *,
        on_error: OnError = "raise",
    ) -> list[EnqueueResult]:
        """Enqueue many calls in chunks, and return a result for each.

        A call is made by `task(...)`, which type checkers check, or it is a mapping of arguments. If its
        arguments do not fit the handler, the result of the call is `REFUSED`, with the error; the other calls
        are sent. If the caller is cancelled, some calls may already be enqueued.

        Raises:
            EnqueueManyError: calls were refused or may be lost, unless `on_error` is `"return"`.
            ArgumentsError: if `calls` is a single mapping, or text.
        """
        _check_calls(self.type, calls)
        check_on_error(on_error)
        refused: dict[int, EnqueueResult] = {}
        if isinstance(calls, AsyncIterable):
            results = await self._sender.enqueue_many(self._tasks_async(calls, refused), on_error="return")
        else:
            results = await self._sender.enqueue_many(self._tasks(calls, refused), on_error="return")
        return check_results(_merge(results, refused), on_error)

    def enqueue_many_sync(
        self, calls: Iterable[TypedCall[_P, _R] | Mapping[str, Any]], *, on_error: OnError = "raise"
    ) -> list[EnqueueResult]:
        """Enqueue many calls, blocking this thread; otherwise as `enqueue_many`."""
        _check_calls(self.type, calls)
        check_on_error(on_error)
        refused: dict[int, EnqueueResult] = {}
        results = self._sender.enqueue_many_sync(self._tasks(calls, refused), on_error="return")
        return check_results(_merge(results, refused), on_error)

    def _tasks(
        self, calls: Iterable[Task | Mapping[str, Any]], refused: dict[int, EnqueueResult]
    ) -> Iterator[Task]:
        for position, arguments in enumerate(calls):
            task = self._task_or_refusal(position, arguments, refused)
            if task is not None:
                yield task

    async def _tasks_async(
        self,
        calls: AsyncIterable[Task | Mapping[str, Any]],
        refused: dict[int, EnqueueResult],
    ) -> AsyncIterator[Task]:
        position = 0
        async for arguments in calls:
            task = self._task_or_refusal(position, arguments, refused)
            if task is not None:
                yield task
            position += 1

    def _task_or_refusal(
        self,
        position: int,
        arguments: Task | Mapping[str, Any],
        refused: dict[int, EnqueueResult],
    ) -> Task | None:
        try:
            if isinstance(arguments, Task):
                return self._check_own(arguments)
            if not isinstance(arguments, Mapping):
                raise ArgumentsError(
                    f"task {self.type!r}: call {position} is {describe_value(type(arguments))}: "
                    "give each call as a mapping of arguments, as in [{'name': value}, ...]",
                    None,
                )
            return self._task((), arguments)
        except ConfigurationError as error:
            refused[position] = EnqueueResult(EnqueueStatus.REFUSED, None, None, error)
            return None

    def _check_own(self, task: Task) -> Task:
        if task.type != self.type:
            raise ArgumentsError(
                f"task {self.type!r}: one of the calls is a task of type {task.type!r}; "
                "app.enqueue_many takes tasks of any types",
                None,
            )
        return task

    if not TYPE_CHECKING:  # hidden from type checkers, so that they still report unknown names

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{suggest_replacement(self, name)}",
                name=name,
                obj=self,
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type!r}>"


class CoroutineTask(TypedTask[_P, _R]):
    """A typed task whose handler is `async def`."""

    async def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Run the handler here, without Redis and without a worker.

        Dependencies that are not given are made for this call.
        """
        wanted = self._wanted(kwargs)
        if not wanted:
            result: _R = await self._declaration.function(*args, **kwargs)
            return result

        async def call(made: dict[str, Any]) -> Any:
            return await self._declaration.function(*args, **{**kwargs, **made})

        injected: _R = await self._providers.call(call, wanted)
        return injected


class PlainTask(TypedTask[_P, _R]):
    """A typed task whose handler is a plain `def`; workers run it in a thread."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Run the handler here, without Redis and without a worker.

        Dependencies that are not given are made for this call.
        """
        wanted = self._wanted(kwargs)
        if not wanted:
            result: _R = self._declaration.function(*args, **kwargs)
            return result

        def call(made: dict[str, Any]) -> Any:
            return self._declaration.function(*args, **{**kwargs, **made})

        injected: _R = self._providers.call_directly(call, wanted)
        return injected


def _check_calls(task_type: str, calls: object) -> None:
    if isinstance(calls, Mapping | str | bytes):
        raise ArgumentsError(
            f"task {task_type!r}: the calls are {describe_value(type(calls))}: give a list of mappings, "
            "as in [{'name': value}, ...], also for a single call",
            None,
        )


def _merge(results: list[EnqueueResult], refused: Mapping[int, EnqueueResult]) -> list[EnqueueResult]:
    if not refused:
        return results
    rest = iter(results)
    positions = range(len(results) + len(refused))
    return [refused[position] if position in refused else next(rest) for position in positions]
