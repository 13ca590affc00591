"""Orders of a worker to a child process: a handler by its name, and the task."""

from __future__ import annotations

import importlib
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pyasynq.task import Task


@dataclass(frozen=True, slots=True)
class Program:
    """A handler that a child process finds by the name `MODULE:FUNCTION`.

    Attributes:
        owner: name of the handler in errors.
        function: the handler as it was declared.
        is_handler: whether an object found under the name is this handler.
        settings: returns the worker's settings that the child needs to run it; JSON.
    """

    owner: str
    function: Callable[..., Any]
    is_handler: Callable[[object], bool]
    settings: Callable[[], Mapping[str, Any]]

    def reference(self) -> str:
        """Return the handler's name, `MODULE:FUNCTION`.

        Raises:
            ConfigurationError: if the handler has no such name, or the name refers to something else.
        """
        function = self.function
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        if isinstance(function, partial) or module is None or name is None or "<" in name:
            shown = name or type(function).__qualname__
            raise ConfigurationError(
                f"{self.owner} has executor='process', but {shown} has no name by which another process "
                "could find it: declare a function at the top level of a module"
            )
        if module == "__main__":
            raise ConfigurationError(
                f"{self.owner} has executor='process', but its module is '__main__', which another "
                f"process cannot import: move {name!r} to another module, or run the worker by "
                "`pyasynq worker MODULE:APP`"
            )
        if not self.is_handler(_look_up(module, name)):
            raise ConfigurationError(
                f"{self.owner} has executor='process', but a child process would not find it at "
                f"{module}:{name}, which is something else: let the declared function keep its name,  "
                "and wrap nothing around its declaration"
            )
        return f"{module}:{name}"


call_in_child: ContextVar[Callable[[Program, Task], Awaitable[Any]]] = ContextVar("pyasynq.call_in_child")
"""Function that runs a task in a child process of the server whose handler is running.

Unset if that server has no child processes.
"""


def find_handler(reference: str) -> object:
    """Import the module of a reference, and return the object of that name; raises the import's errors."""
    module, _, name = reference.partition(":")
    importlib.import_module(module)
    found = _look_up(module, name)
    if found is None:
        raise ImportError(f"module {module!r} has no {name!r} in a child process", name=module)
    return found


def _look_up(module: str, name: str) -> object:
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
