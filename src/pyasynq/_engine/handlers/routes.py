"""What the engine asks of whoever knows the handlers: `Mux`, `App`, or one function for everything."""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from pyasynq._checks import seconds_of
from pyasynq.context import current_task
from pyasynq.errors import ConfigurationError, InvalidOptionError, ResultTooLargeError, describe_value
from pyasynq.retry import default_retry_delay, retry_delay_of
from pyasynq.task import Task, checked_task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from pyasynq._engine.executor.order import Program
    from pyasynq._wire.messages import TaskMessage
    from pyasynq.config import ServerConfig
    from pyasynq.control import ControlFlow
    from pyasynq.retry import RetryDelay

    HandlerResult: TypeAlias = bytes | str | None
    HandlerReturn: TypeAlias = HandlerResult | ControlFlow
    Handler: TypeAlias = Callable[[Task], Awaitable[HandlerReturn] | HandlerReturn]

Executor: TypeAlias = Literal["process"]
"""Where a handler runs, if not in the worker's own process."""

_log = logging.getLogger("pyasynq")
_LONGEST_DELAY = 100 * 365 * 86_400.0
"""Seconds to which retry delays are cut: Redis and datetimes can hold no time much later."""


@dataclass(frozen=True, slots=True)
class Route:
    """How tasks of one type are run; None means the server's setting.

    Attributes:
        call: takes the task; returns the result (bytes, text or None) or what becomes of the task (Snooze,
            Retry, Archive or Cancel), or an awaitable of it.
        plain: the call blocks, so it is made in a thread.
        program: what a child process runs, when the call is one to a child process.
    """

    call: Handler
    plain: bool = False
    retry_delay: RetryDelay | None = None
    is_failure: Callable[[BaseException], bool] | None = None
    crash_limit: int | None = None
    program: Program | None = None


class AttemptRules:
    """`is_failure` and retry delay of one attempt: its route's, else the server's, else Asynq's default."""

    __slots__ = ("_config", "_route", "_task")

    def __init__(self, config: ServerConfig, route: Route | None, task: Task) -> None:
        self._config = config
        self._route = route
        self._task = task

    def is_failure(self, error: BaseException) -> bool:
        """Return what the user's function says; True when it raises."""
        function = (self._route and self._route.is_failure) or self._config.is_failure
        try:
            return bool(function(error))
        except BaseException:  # noqa: BLE001 - reported, and replaced by the default
            _log.exception("is_failure raised for a task of type %r; it counts as a failure", self._task.type)
            return True

    def delay(self, retried: int, error: BaseException) -> float:
        """Return the user's delay in seconds; Asynq's default if the function raises or returns nonsense."""
        function = (self._route and self._route.retry_delay) or retry_delay_of(self._config.retry_delay)
        try:
            return min(_LONGEST_DELAY, seconds_of("retry_delay", function(retried, error, self._task)))
        except BaseException:  # noqa: BLE001 - reported, and replaced by the default
            _log.exception("retry_delay failed for a task of type %r; the default is used", self._task.type)
            return default_retry_delay(retried, error, self._task)


@runtime_checkable
class Router(Protocol):
    """Finds the handler of a task type."""

    def route(self, task_type: str) -> Route | None:
        """Return how to run tasks of this type, or None when there is no handler."""

    def routes(self) -> Iterable[Route]:
        """Return all routes that there are."""

    def types(self) -> Iterable[str]:
        """Return the names that have handlers, to suggest one for a misspelt type."""


class OneRoute:
    """One handler for all types."""

    def __init__(self, handler: Handler) -> None:
        self._route = Route(handler, plain=not is_coroutine_handler(handler))

    def route(self, task_type: str) -> Route:  # noqa: ARG002 - all types are the same to it
        """Return the one route."""
        return self._route

    def routes(self) -> Iterable[Route]:
        """Return the one route."""
        return (self._route,)

    def types(self) -> Iterable[str]:
        """Return nothing: any type has the handler."""
        return ()


class NoRoutes:
    """No handlers at all, for those who run tasks in their own way."""

    def route(self, task_type: str) -> None:
        """Return nothing."""

    def routes(self) -> Iterable[Route]:
        """Return nothing."""
        return ()

    def types(self) -> Iterable[str]:
        """Return nothing."""
        return ()


def router_of(handler: Router | Handler) -> Router:
    """Return a router for whatever a server is given to run.

    Raises:
        ConfigurationError: when it is neither a router nor callable.
    """
    if isinstance(handler, Router):
        return handler
    if callable(handler):
        return OneRoute(handler)
    raise ConfigurationError(
        "a server runs a Mux, an App or a function that takes a Task, "
        f"and got {describe_value(type(handler))}",
    )


def is_coroutine_handler(handler: Callable[..., Any]) -> bool:
    """Return whether calling a handler gives a coroutine, also for objects with `async def __call__`."""
    while isinstance(handler, partial):
        handler = handler.func
    call = getattr(handler, "__call__", None)  # noqa: B004 - its kind matters, not whether it exists
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


async def awaited(value: Any) -> Any:
    """Await a value until it is not awaitable: a coroutine function may return a coroutine in turn.

    A plain wrapper around a coroutine function returns what must be awaited; so do all callables that only
    pass on what they call.
    """
    while inspect.isawaitable(value):
        value = await value
    return value


def check_executor(owner: str, executor: object) -> None:
    """Raise `InvalidOptionError` for what runs no handlers; None is the worker's own process."""
    if executor not in (None, "process"):
        remedy = f"must be 'process', or None for the process of the worker, for {owner}"
        raise InvalidOptionError("executor", executor, remedy)


def result_bytes(result: object, task_type: str) -> bytes | None:
    """Return what is stored of what a handler returned; reports and leaves out what is no result."""
    if isinstance(result, bytes):
        return result
    if isinstance(result, str):
        return result.encode("utf-8", "replace")
    drop_result(
        f"the handler of {task_type!r} returned {type(result).__name__}, and a result is None, bytes or text"
    )
    return None


def check_result_size(data: bytes, limit: int) -> None:
    """Raise `ResultTooLargeError` for a result of more bytes than the limit."""
    if len(data) > limit:
        raise ResultTooLargeError(len(data), limit)


def drop_result(reason: str) -> None:
    """Report that what the handler here returned is not stored, also to those who wait for it."""
    running = current_task.get(None)
    if running is not None:
        running.dropped_result = reason
    _log.error("%s; the task has succeeded without a result", reason)


def received_task(message: TaskMessage) -> Task:
    """Return what handlers get: type, payload and headers as they stand in Redis, whoever wrote them."""
    headers = message.headers
    # Empty and absent payloads are the same bytes on the wire; Go reads both as nil.
    return checked_task(message.type, message.payload or None, {"headers": dict(headers)} if headers else {})


@runtime_checkable
class Hosted(Protocol):
    """What stands at a handler's name when it is more than a function: a typed task of an app."""

    def hosted_route(self, settings: Mapping[str, Any]) -> Route:
        """Return how its tasks are run in this process, with the worker's settings."""

    def hosted_lifespan(self) -> tuple[object, AbstractAsyncContextManager[Any]]:
        """Return whose lifespan it needs, and a new one of it."""
