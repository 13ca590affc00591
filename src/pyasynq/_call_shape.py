"""Checks of a callable's signature at its declaration, so that errors appear before a task needs it."""

from __future__ import annotations

import inspect
from functools import partial

from pyasynq.errors import ConfigurationError


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
