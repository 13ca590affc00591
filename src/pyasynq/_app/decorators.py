"""Types of the decorators that make typed tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pyasynq._app.typed_task import CoroutineTask, PlainTask, TypedTask
    from pyasynq.control import Control

_P = ParamSpec("_P")
_R = TypeVar("_R")
TypedTaskT = TypeVar("TypedTaskT", bound="TypedTask[..., Any]")


class TaskDecorator(Protocol):
    """Decorator that `@app.task(...)` with arguments returns."""

    @overload
    def __call__(  # type: ignore[overload-overlap] # a coroutine function is also a function; the first match wins
        self, function: Callable[_P, Coroutine[Any, Any, _R | Control]], /
    ) -> CoroutineTask[_P, _R]: ...

    @overload
    def __call__(self, function: Callable[_P, _R | Control], /) -> PlainTask[_P, _R]: ...


class CronDecorator(Protocol):
    """Decorator that `@app.cron(...)` returns, for a typed task or a function."""

    @overload
    def __call__(self, target: TypedTaskT, /) -> TypedTaskT: ...

    @overload
    def __call__(  # type: ignore[overload-overlap] # a coroutine function is also a function; the first match wins
        self, target: Callable[_P, Coroutine[Any, Any, _R | Control]], /
    ) -> CoroutineTask[_P, _R]: ...

    @overload
    def __call__(self, target: Callable[_P, _R | Control], /) -> PlainTask[_P, _R]: ...
