"""Calls of user functions in progress, and the services that make them, for the report of hanging code."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyasynq._background.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.events import Events


class CallsInProgress:
    """Hooks, middleware and providers that were called and have not returned.

    Written by the event loop, read by the exit guard's thread.
    """

    def __init__(self) -> None:
        self._calls: dict[object, tuple[str, float]] = {}

    @contextmanager
    def note(self, name: str) -> Iterator[None]:
        """Record a function as running while the block runs."""
        key = object()
        self._calls[key] = (name, time.monotonic())
        try:
            yield
        finally:
            del self._calls[key]

    def __bool__(self) -> bool:
        return bool(self._calls)

    def __str__(self) -> str:
        """Return names and ages, as in `the hook pre_enqueue (called 8.1 s ago)`."""
        now = time.monotonic()
        oldest = dict[str, float]()
        for name, called_at in list(self._calls.values()):
            oldest.setdefault(name, called_at)
        return ", ".join(f"{name} (called {now - at:.1f} s ago)" for name, at in oldest.items())


class CallingService(Service):
    """A service that calls user functions, so its last round may hang."""

    def __init__(self, events: Events, calls: CallsInProgress) -> None:
        super().__init__(events)
        self._calls = calls

    def describe(self) -> str:
        """Return the functions that have not returned; if there are none, describe the service."""
        return str(self._calls) or super().describe()
