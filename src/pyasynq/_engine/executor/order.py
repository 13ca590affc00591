"""What a worker orders a child process to run: a handler by its name, and the task."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Program:
    """A handler as a child process finds it: by the name `MODULE:FUNCTION`.

    Attributes:
        owner: how errors name it.
        function: the handler as it was declared.
        stands_for: whether what is found at the name is this handler.
        settings: returns what the child must know of the worker to run it; JSON.
    """

    owner: str
    function: Callable[..., Any]
    stands_for: Callable[[object], bool]
    settings: Callable[[], Mapping[str, Any]]

    def reference(self) -> str:
        """Return the name.

        Raises:
            ConfigurationError: when there is none, or something else stands there.
        """
        function = self.function
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        if isinstance(function, partial) or module is None or name is None or "<" in name:
            shown = name or type(function).__qualname__
            raise ConfigurationError(
                f"{self.owner} has executor='process', and {shown} has no name that another process could "
                "find it by: declare a function at the top level of a module"
            )
        if module == "__main__":
            raise ConfigurationError(
                f"{self.owner} has executor='process', and its module is '__main__' here, which another "
                f"process cannot import: move {name!r} to a module of its own, or run the worker by "
                "`pyasynq worker MODULE:APP`"
            )
        if not self.stands_for(_look_up(module, name)):
            raise ConfigurationError(
                f"{self.owner} has executor='process', and a child process would not find it at "
                f"{module}:{name}, where something else stands: let the declared function keep its name, "
                "and wrap nothing around its declaration"
            )
        return f"{module}:{name}"


def find_handler(reference: str) -> object:
    """Import a module and return what stands at the name; raises what the import raises, and ImportError."""
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
