"""What the engine asks of whoever knows the handlers: `Mux`, `App`, or one function for everything."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from pyasynq.errors import ConfigurationError
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pyasynq._wire.messages import TaskMessage
    from pyasynq.control import ControlFlow
    from pyasynq.retry import RetryDelay

    HandlerResult: TypeAlias = bytes | str | None
    HandlerReturn: TypeAlias = HandlerResult | ControlFlow
    Handler: TypeAlias = Callable[[Task], Awaitable[HandlerReturn] | HandlerReturn]


@dataclass(frozen=True, slots=True)
class Route:
    """How tasks of one type are run; None means the server's setting.

    Attributes:
        call: takes the task; returns the result (bytes, text or None) or what becomes of the task (Snooze,
            Retry, Archive or Cancel), or an awaitable of it.
        plain: the call blocks, so it is made in a thread.
    """

    call: Handler
    plain: bool = False
    retry_delay: RetryDelay | None = None
    is_failure: Callable[[BaseException], bool] | None = None
    crash_limit: int | None = None


@runtime_checkable
class Router(Protocol):
    """Finds the handler of a task type."""

    def route(self, task_type: str) -> Route | None:
        """Return how to run tasks of this type, or None when there is no handler."""

    def routes(self) -> Iterable[Route]:
        """Return all routes that there are."""


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


class NoRoutes:
    """No handlers at all, for those who run tasks in their own way."""

    def route(self, task_type: str) -> None:
        """Return nothing."""

    def routes(self) -> Iterable[Route]:
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
        f"a server runs a Mux, an App or a function that takes a Task, and got {handler!r}",
    )


def is_coroutine_handler(handler: Callable[..., Any]) -> bool:
    """Return whether calling a handler gives a coroutine, also for objects with `async def __call__`."""
    while isinstance(handler, partial):
        handler = handler.func
    call = getattr(handler, "__call__", None)  # noqa: B004 - its kind matters, not whether it exists
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def received_task(message: TaskMessage) -> Task:
    """Return what handlers get: type, payload and headers as they stand in Redis, whoever wrote them."""
    task = Task.__new__(Task)
    task.type = message.type
    # Empty and absent payloads are the same bytes on the wire; Go reads both as nil.
    task.payload = message.payload or None
    headers = message.headers
    task.options = {"headers": dict(headers)} if headers else {}
    return task
