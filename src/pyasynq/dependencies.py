"""Typed dependencies of handlers: `pool: Pool = depends(get_pool, per="worker")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast, overload

from pyasynq.errors._configuration import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

_T = TypeVar("_T")

Life: TypeAlias = Literal["attempt", "worker"]
"""Lifetime of a dependency: one attempt of a task, or a whole worker process."""
_LIVES: Final = ("attempt", "worker")


class Dependency(NamedTuple):
    """Default value that marks a handler's parameter as a dependency (dependency injection).

    Attributes:
        provider: function that makes the value.
        per: its lifetime: `"attempt"` or `"worker"`.
    """

    provider: Callable[..., Any]
    per: Life


@overload
def depends(provider: Callable[..., AbstractAsyncContextManager[_T]], *, per: Life = "attempt") -> _T: ...


@overload
def depends(provider: Callable[..., AbstractContextManager[_T]], *, per: Life = "attempt") -> _T: ...


@overload
def depends(provider: Callable[..., AsyncIterator[_T]], *, per: Life = "attempt") -> _T: ...


@overload
def depends(provider: Callable[..., Iterator[_T]], *, per: Life = "attempt") -> _T: ...


@overload
def depends(provider: Callable[..., Awaitable[_T]], *, per: Life = "attempt") -> _T: ...


@overload
def depends(provider: Callable[..., _T], *, per: Life = "attempt") -> _T: ...


def depends(provider: Callable[..., Any], *, per: Life = "attempt") -> Any:
    """Declare a handler's parameter as a dependency, which the worker makes and passes (injection).

    The parameter does not belong to the payload. Type checkers see the type that the provider makes.

    Args:
        provider: a function, a coroutine function, a generator with one `yield`, or a function that returns
            a context manager, as its annotation says (`AbstractContextManager`), or one of contextlib.
            Its parameters are dependencies too, or annotated as `TaskContext`.
        per: `"attempt"` to make it for each attempt, and to close it at the attempt's end. `"worker"` to make
            it once in each worker process, at its first use, and to close it when the worker ends.

    Raises:
        InvalidOptionError: for a provider that cannot be called, or another value of `per`.
    """
    if not callable(provider):
        raise InvalidOptionError("provider", type(provider), "must be a function; give it without calling it")
    if per not in _LIVES:
        raise InvalidOptionError("per", per, "must be 'attempt' or 'worker'")
    return cast("Any", Dependency(provider, per))
