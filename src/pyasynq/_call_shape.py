"""Checks of a callable's signature at its declaration, so that errors appear before a task needs it."""

from __future__ import annotations

import inspect
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyasynq.errors import ConfigurationError, UnknownOptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")
_C = TypeVar("_C", bound=type)


def takes(function: object, arguments: int) -> bool:
    """Return whether a callable takes this many positional arguments; True if its signature is unknown."""
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type] # what is not callable raises
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def check_client_middleware(middleware: object) -> None:
    """Raise `ConfigurationError` unless the middleware takes two arguments: a task and the next call."""
    if not callable(middleware) or not takes(middleware, 2):
        raise ConfigurationError(
            f"client middleware is `async def m(task, call_next)`, and {describe_function(middleware)} does "
            "not take these two arguments"
        )


def describe_function(function: object) -> str:
    """Return a function's name for error messages."""
    return repr(getattr(function, "__qualname__", type(function).__qualname__))


def first_doc_line(function: object) -> str:
    """Return the first line of a function's docstring; empty without one."""
    while isinstance(function, partial):
        function = function.func
    return (inspect.getdoc(function) or "").partition("\n")[0]


def name_unknown_arguments(kind: _C, elsewhere: Callable[[str], str] = lambda _name: "") -> _C:
    """Let the constructor of a class suggest a name for an unknown keyword argument (class decorator).

    Its signature stays the same, also for type checkers. Other errors of a call are left unchanged.

    Args:
        kind: the class.
        elsewhere: returns what to write instead for the name of another object's setting, else "".
    """
    construct = cast("Any", kind).__init__

    @wraps(construct)
    def checked(self: object, *args: Any, **settings: Any) -> None:
        try:
            construct(self, *args, **settings)
        except TypeError:
            _check_settings(construct, kind.__qualname__, settings, elsewhere)
            raise

    kind.__init__ = checked  # type: ignore[misc] # wraps the same signature
    return kind


def _check_settings(
    construct: Callable[..., None], owner: str, settings: Mapping[str, Any], elsewhere: Callable[[str], str]
) -> None:
    known = [*inspect.signature(construct).parameters][1:]
    for name in settings:
        if name not in known:
            raise UnknownOptionError(name, known, owner=owner, remedy=elsewhere(name)) from None


def needs_function(method: _T) -> _T:
    """Refuse a method's call without arguments, as in `@app.on_error()`, with the remedy (decorator)."""
    call = cast("Any", method)

    @wraps(call)
    def checked(self: object, *functions: Any, **named: Any) -> Any:
        if not functions and not named:
            raise ConfigurationError(f"write @app.{call.__name__} above the hook, without parentheses")
        return call(self, *functions, **named)

    return cast("_T", checked)
