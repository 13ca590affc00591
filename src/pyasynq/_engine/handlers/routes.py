"""Routes: the interface of the engine to `Mux`, `App`, or one function for all tasks."""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from pyasynq._checks import check_function, check_whole, parse_seconds
from pyasynq.context import current_task
from pyasynq.errors import ConfigurationError, InvalidOptionError, ResultTooLargeError, describe_value
from pyasynq.retry import check_retry_delay, default_retry_delay, make_retry_delay
from pyasynq.task import Task, make_unchecked_task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from pyasynq._engine.executor.order import Program
    from pyasynq._wire.messages import TaskMessage
    from pyasynq.config import ServerConfig
    from pyasynq.control import ControlFlow
    from pyasynq.hooks import Hooks
    from pyasynq.options import Duration
    from pyasynq.retry import RetryDelay
    from pyasynq.task_types import TaskTypeInfo

    HandlerResult: TypeAlias = bytes | str | None
    HandlerReturn: TypeAlias = HandlerResult | ControlFlow
    Handler: TypeAlias = Callable[[Task], Awaitable[HandlerReturn] | HandlerReturn]

Executor: TypeAlias = Literal["process"]
"""Where a handler runs: `"process"` is a child process; without it the handler runs in the worker."""

_log = logging.getLogger("pyasynq")
_LONGEST_DELAY = 100 * 365 * 86_400.0
"""Maximum retry delay in seconds: Redis and datetimes support no time much later."""


@dataclass(frozen=True, slots=True)
class HandlerRules:
    """Rules of one handler; None means the server's setting.

    Attributes:
        retry_delay: delay before the next attempt: a function or a constant.
        is_failure: returns False for errors that are retried without using up a retry.
        crash_limit: number of worker crashes at which a task is archived.
        executor: "process" to run the handler in a child process.

    Raises:
        InvalidOptionError: for an invalid rule.
    """

    retry_delay: RetryDelay | Duration | None = None
    is_failure: Callable[[BaseException], bool] | None = None
    crash_limit: int | None = None
    executor: Executor | None = None

    def __post_init__(self) -> None:
        """Check each rule, and turn a constant delay into a function."""
        if self.retry_delay is not None:
            check_retry_delay(self.retry_delay)
            object.__setattr__(self, "retry_delay", make_retry_delay(self.retry_delay))
        if self.is_failure is not None:
            check_function("is_failure", self.is_failure)
        if self.crash_limit is not None:
            check_whole("crash_limit", self.crash_limit, 0)
        if self.executor not in (None, "process"):
            remedy = "must be 'process', or None for the process of the worker"
            raise InvalidOptionError("executor", self.executor, remedy)


NO_RULES: Final = HandlerRules()


@dataclass(frozen=True, slots=True)
class Route:
    """Rules for running the tasks of one type.

    Attributes:
        call: takes the task; returns the result (bytes, text or None), a control value (Snooze, Retry,
            Archive or Cancel), or an awaitable of it.
        plain: whether `call` is not a coroutine function; it may block, so it runs in a thread.
        rules: the rules that the handler was declared with.
        program: the handler as a child process finds it; None if `call` does not use a child process.
    """

    call: Handler
    plain: bool = False
    rules: HandlerRules = NO_RULES
    program: Program | None = None


class AttemptRules:
    """`is_failure` and retry delay of one attempt: its route's, else the server's, else Asynq's default."""

    __slots__ = ("_config", "_route", "_task")

    def __init__(self, config: ServerConfig, route: Route | None, task: Task) -> None:
        self._config = config
        self._route = route
        self._task = task

    def is_failure(self, error: BaseException) -> bool:
        """Return the result of the user's function; True when it raises."""
        function = (self._route and self._route.rules.is_failure) or self._config.is_failure
        try:
            return bool(function(error))
        except BaseException:  # noqa: BLE001 - logged; the default applies
            _log.exception("is_failure raised for a task of type %r; it counts as a failure", self._task.type)
            return True

    def delay(self, retried: int, error: BaseException) -> float:
        """Return the user's delay in seconds.

        Asynq's default if the function raises or returns an invalid one.
        """
        own = self._route.rules.retry_delay if self._route else None
        function = make_retry_delay(self._config.retry_delay if own is None else own)
        try:
            return min(_LONGEST_DELAY, parse_seconds("retry_delay", function(retried, error, self._task)))
        except BaseException:  # noqa: BLE001 - logged; the default applies
            _log.exception("retry_delay failed for a task of type %r; the default is used", self._task.type)
            return default_retry_delay(retried, error, self._task)


@runtime_checkable
class Router(Protocol):
    """Finds the handler of a task type."""

    def route(self, task_type: str) -> Route | None:
        """Return the route of this type; None if it has no handler."""

    def routes(self) -> Iterable[Route]:
        """Return all routes."""

    def types(self) -> Iterable[str]:
        """Return the names that have handlers, to suggest one for a misspelt type."""


@runtime_checkable
class RouterSource(Protocol):
    """Owner of a router that is not one itself, such as an `App`."""

    def __pyasynq_router__(self) -> Router:
        """Return the router of its handlers."""


@runtime_checkable
class DescribesTypes(Protocol):
    """Router that can describe its task types, such as the one of an `App`."""

    def describe_types(self) -> Iterable[TaskTypeInfo]:
        """Return a description of each type."""


def describe_routes(router: Router) -> list[TaskTypeInfo]:
    """Return a description of each type that has a handler; none for a router of all types."""
    return list(router.describe_types()) if isinstance(router, DescribesTypes) else []


@runtime_checkable
class HasHooks(Protocol):
    """Router with hooks for the ends of attempts, such as the one of an `App`."""

    @property
    def hooks(self) -> Hooks:
        """The app's hooks."""


class OneRoute:
    """Router with one handler for all types."""

    def __init__(self, handler: Handler) -> None:
        self._route = Route(handler, plain=not is_coroutine_handler(handler))

    def route(self, task_type: str) -> Route:  # noqa: ARG002 - the same for all types
        """Return the only route."""
        return self._route

    def routes(self) -> Iterable[Route]:
        """Return the only route, in a list."""
        return (self._route,)

    def types(self) -> Iterable[str]:
        """Return nothing: any type has the handler."""
        return ()


class NoRoutes:
    """Router without handlers, for consumers, which run no handlers."""

    def route(self, task_type: str) -> None:
        """Return None, since a consumer has no handlers."""

    def routes(self) -> Iterable[Route]:
        """Return an empty tuple, since a consumer has no handlers."""
        return ()

    def types(self) -> Iterable[str]:
        """Return an empty tuple, since a consumer has no handlers."""
        return ()


def make_router(handler: RouterSource | Router | Handler) -> Router:
    """Return a router for the handler argument of a server.

    Raises:
        ConfigurationError: if the handler is not a router, has no router, and cannot be called.
    """
    if isinstance(handler, RouterSource):
        return handler.__pyasynq_router__()
    if isinstance(handler, Router):
        return handler
    if callable(handler):
        return OneRoute(handler)
    raise ConfigurationError(
        f"a server runs a Mux, an App or a function that takes a Task, not {describe_value(type(handler))}",
    )


def is_coroutine_handler(handler: Callable[..., Any]) -> bool:
    """Return whether a call of a handler returns a coroutine; also for objects with `async def __call__`."""
    while isinstance(handler, partial):
        handler = handler.func
    call = getattr(handler, "__call__", None)  # noqa: B004 - its kind matters, not whether it exists
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


async def await_fully(value: Any) -> Any:
    """Await a value until it is not awaitable, because an awaited value may be awaitable again.

    A plain wrapper around a coroutine function returns a coroutine; so does any callable that only delegates.
    """
    while inspect.isawaitable(value):
        value = await value
    return value


def result_bytes(result: object, task_type: str) -> bytes | None:
    """Return the bytes to store for a handler's result; log and drop an invalid result."""
    if isinstance(result, bytes):
        return result
    if isinstance(result, str):
        return result.encode("utf-8", "replace")
    drop_result(f"the handler of {task_type!r} returned {type(result).__name__}, not None, bytes or text")
    return None


def check_result_size(data: bytes, limit: int) -> None:
    """Raise `ResultTooLargeError` for a result of more bytes than the limit."""
    if len(data) > limit:
        raise ResultTooLargeError(len(data), limit)


def drop_result(reason: str) -> None:
    """Log that the current handler's result is not stored, and report it to callers that wait for it."""
    running = current_task.get(None)
    if running is not None:
        running.dropped_result = reason
    _log.error("%s; the task succeeded without a result", reason)


def received_task(message: TaskMessage) -> Task:
    """Return the task for handlers, with type, payload and headers unchanged from Redis."""
    headers = message.headers
    # Empty and absent payloads are the same bytes on the wire; Go reads both as nil.
    return make_unchecked_task(
        message.type, message.payload or None, {"headers": dict(headers)} if headers else {}
    )


@runtime_checkable
class Hosted(Protocol):
    """Handler that makes its own route and lifespan, such as a typed task of an app."""

    def __pyasynq_route__(self, settings: Mapping[str, Any]) -> Route:
        """Return the route by which a child process runs the handler's tasks.

        `settings` holds what the worker passes to the child process, such as the URL of Redis. The handler
        may adopt it.
        """

    def __pyasynq_lifespan__(self) -> tuple[object, AbstractAsyncContextManager[Any]]:
        """Return the app that owns the handler's lifespan, and a new context manager of that lifespan."""
