"""Whether a function can be called as it will be: asked where it is declared, not when a task needs it."""

from __future__ import annotations

import inspect

from pyasynq.errors import ConfigurationError


def takes(function: object, arguments: int) -> bool:
    """Return whether a callable takes this many positional arguments; True if it does not tell."""
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
    """Raise `ConfigurationError` unless this can be called with a task and the next call."""
    if not callable(middleware) or not takes(middleware, 2):
        raise ConfigurationError(
            f"client middleware is `async def m(task, call_next)`, and {name_of_function(middleware)} does "
            "not take these two arguments"
        )


def name_of_function(function: object) -> str:
    """Return how errors call a function."""
    return repr(getattr(function, "__qualname__", type(function).__qualname__))
