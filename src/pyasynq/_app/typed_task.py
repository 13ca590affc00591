"""Typed tasks: the objects that `@app.task` returns."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast

from pyasynq._app.handles import (
    Acting,
    BlockingEnqueuedTask,
    BlockingTaskHandle,
    EnqueuedTask,
    TaskHandle,
)
from pyasynq._app.other_libraries import our_word
from pyasynq._app.routes import route_of
from pyasynq._broker.enqueueing.chunks import check_on_error, check_results
from pyasynq._checks import check_name
from pyasynq._engine.executor.order import Program
from pyasynq.callbacks import CALLBACK_ARGUMENTS, Callback
from pyasynq.errors import ArgumentsError, ConfigurationError, describe_value
from pyasynq.options import DEFAULT_QUEUE, DEFAULT_TIMEOUT_SECONDS, merge_options, resolve_options
from pyasynq.task import EnqueueResult, EnqueueStatus, Task, TaskInfo, make_unchecked_task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from contextlib import AbstractAsyncContextManager
    from typing import Self, Unpack

    from pyasynq._app.declaration import Declaration
    from pyasynq._app.providers import Providers
    from pyasynq._broker.enqueueing.chunks import OnError
    from pyasynq._engine.handlers.routes import Route
    from pyasynq.dependencies import Dependency
    from pyasynq.options import EnqueueOptions

_P = ParamSpec("_P")
_R = TypeVar("_R")


class TaskSender(Acting, Protocol):
    """The app, as typed tasks use it to enqueue."""

    url: str
    """Redis' URL; reading it raises `ConfigurationError` if none is configured."""

    def _lifetime(self) -> AbstractAsyncContextManager[Any]:
        """Return the context manager that surrounds all tasks of a process."""

    @property
    def _providers(self) -> Providers:
        """Providers of the handlers' dependencies."""

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
    """A handler that can be enqueued by its own arguments, checked by type checkers and at run time.

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
            ConfigurationError: for an annotation that names what its module does not define.
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
        """Return a copy whose tasks have these options; they win over those of the declaration.

        Raises:
            UnknownOptionError: for a misspelt option.
            InvalidOptionError: for an invalid value.
        """
        resolve_options(options)
        return type(self)(self._sender, self._declaration, merge_options(self._options, options))

    def with_options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return a copy whose tasks also have these options: `options`, under the name that `Task` uses."""
        return self.options(**options)

    def with_headers(self, headers: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Return a copy whose tasks have these headers besides those that they had.

        A header given here replaces an earlier one of the same name: `deliver.with_headers(tenant="acme")`,
        or a mapping for names that are not identifiers.

        Raises:
            InvalidOptionError: for headers that are not text, or too large.
        """
        return self.options(headers={**(headers or {}), **more})

    def task(self, *args: _P.args, **kwargs: _P.kwargs) -> Task:
        """Return a `Task` of this call: for `app.enqueue_many`, schedulers and clients. Nothing is sent.

        Raises:
            ArgumentsError: for arguments that the handler does not take.
            PayloadEncodingError: for an argument that JSON cannot carry; it names the argument.
        """
        return self._task(args, kwargs)

    def _task(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Task:
        return make_unchecked_task(
            self.type, self._declaration.arguments.encode(args, kwargs), self._options.copy()
        )

    async def enqueue(self, *args: _P.args, **kwargs: _P.kwargs) -> EnqueuedTask[_R]:
        """Enqueue a call of the handler.

        A caller that is cancelled while waiting may still have enqueued the task.

        Raises:
            ArgumentsError: for arguments that the handler does not take.
            PayloadEncodingError: for an argument that JSON cannot carry; it names the argument.
            TaskIDConflictError: when a task with the given `task_id` exists.
            DuplicateTaskError: when an equal `unique` task is unfinished, unless `on_duplicate` says
                otherwise; `handle.enqueued.enqueue_status` then tells what this call did.
            RedisError: when Redis cannot be reached within the time-out, or refuses.
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
            queue: where the task is; without it, where tasks made from here go.

        Raises:
            InvalidOptionError: for a blank id or queue.
        """
        return TaskHandle(self._sender, self._queue(queue), check_name("task_id", task_id), self._decode)

    def handle_sync(self, task_id: str, *, queue: str | None = None) -> BlockingTaskHandle[_R]:
        """Return a handle that waits by blocking its thread; otherwise as `handle`."""
        return BlockingTaskHandle(
            self._sender, self._queue(queue), check_name("task_id", task_id), self._decode
        )

    def _program(self) -> Program | None:
        """Return the program of child processes for tasks of this type; None if they run in the worker."""
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
        """Return how this child process of a worker runs the task; it enqueues to the Redis of its worker."""
        if "url" in settings:
            self._sender.url = settings["url"]
        return route_of(self._declaration, self._providers)

    def __pyasynq_lifespan__(self) -> tuple[object, AbstractAsyncContextManager[Any]]:
        """Return the app, and a new lifespan of it."""
        return self._sender, self._sender._lifetime()  # noqa: SLF001 - of the app, which makes typed tasks

    @property
    def _providers(self) -> Providers:
        return self._sender._providers  # noqa: SLF001 - of the app, which makes typed tasks

    def _wanted(self, given: Mapping[str, object]) -> Mapping[str, Dependency]:
        """Return the dependencies to inject into a direct call of the handler, which does not pass them."""
        dependencies = self._declaration.dependencies
        return dependencies and {name: one for name, one in dependencies.items() if name not in given}

    def _queue(self, queue: str | None) -> str:
        return check_name("queue", self._options.get("queue", DEFAULT_QUEUE) if queue is None else queue)

    def _decode(self, data: bytes | None) -> _R:
        # What returns None stores nothing.
        value: _R = self._declaration.result.decode(b"null" if data is None else data)
        return value

    async def enqueue_many(
        self,
        calls: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
        *,
        on_error: OnError = "raise",
    ) -> list[EnqueueResult]:
        """Enqueue many calls, each given as a mapping of arguments, in chunks; return a result for each.

        A call whose arguments do not fit is `REFUSED`, with the error in its result; the others are sent. A
        caller that is cancelled may have enqueued some.

        Raises:
            EnqueueManyError: calls were refused or may be lost, unless `on_error` is `"return"`.
            ArgumentsError: when all there is instead of calls is one mapping, or text.
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
        self, calls: Iterable[Mapping[str, Any]], *, on_error: OnError = "raise"
    ) -> list[EnqueueResult]:
        """Enqueue many calls, blocking this thread; otherwise as `enqueue_many`."""
        _check_calls(self.type, calls)
        check_on_error(on_error)
        refused: dict[int, EnqueueResult] = {}
        results = self._sender.enqueue_many_sync(self._tasks(calls, refused), on_error="return")
        return check_results(_merge(results, refused), on_error)

    def _tasks(self, calls: Iterable[Mapping[str, Any]], refused: dict[int, EnqueueResult]) -> Iterator[Task]:
        for position, arguments in enumerate(calls):
            task = self._task_or_refusal(position, arguments, refused)
            if task is not None:
                yield task

    async def _tasks_async(
        self,
        calls: AsyncIterable[Mapping[str, Any]],
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
        arguments: Mapping[str, Any],
        refused: dict[int, EnqueueResult],
    ) -> Task | None:
        try:
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

    if not TYPE_CHECKING:  # a type checker is to report such names, as it does without this

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{our_word(self, name)}",
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
        async with self._providers.for_attempt(wanted) as made:
            injected: _R = await self._declaration.function(*args, **{**kwargs, **made})
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
        with self._providers.for_call(wanted) as made:
            injected: _R = self._declaration.function(*args, **{**kwargs, **made})
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
