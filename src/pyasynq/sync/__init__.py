"""The blocking twins of the asyncio API, for scripts, threads and web frameworks without an event loop."""

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyasynq.sync.client import CallNext, Client, ClientMiddleware
    from pyasynq.sync.inspector import Inspector
    from pyasynq.sync.rate import Semaphore

_MODULE_BY_NAME: Final = MappingProxyType(
    {
        "CallNext": "client",
        "Client": "client",
        "ClientMiddleware": "client",
        "Inspector": "inspector",
        "Semaphore": "rate",
    }
)

__all__ = ["CallNext", "Client", "ClientMiddleware", "Inspector", "Semaphore"]

# Type checkers see the imports above instead: with this function they would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used. Raises `AttributeError` for an unknown name."""
        if name not in _MODULE_BY_NAME:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        value = getattr(importlib.import_module(f".{_MODULE_BY_NAME[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return all names, including those not yet imported."""
    return sorted({*globals(), *__all__})
