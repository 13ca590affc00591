"""Signals of a server: TERM and INT shut down, TSTP stops taking tasks, a second INT aborts at once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Protocol, Self

from pyasynq._exit_codes import EXIT_ABORTED

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

_log = logging.getLogger("pyasynq")
_CHECK_SECONDS = 1.0


class Stoppable(Protocol):
    """Interface of a server to signals; both methods are safe in a signal handler."""

    def request_shutdown(self) -> None:
        """Shut down gracefully: running tasks may finish, within the time limits."""

    def request_stop(self) -> None:
        """Stop taking tasks (SIGTSTP); running tasks and the process go on."""


class SignalWatch:
    """Installs the signal handlers while the server runs, and restores the earlier ones after it.

    The handlers are Python's, not the event loop's: they run even while a task's handler blocks the loop.
    So a second INT always ends the process, or raises `KeyboardInterrupt` if the process belongs to another
    program. In process 1 of a container, TERM and INT work only because of these handlers: there the kernel
    ignores signals that have no handler.
    Once a second it checks whether other code has installed a handler, and installs its own again. If the
    process belongs to another program, that other handler is called as well.
    """

    def __init__(self, server: Stoppable, *, owns_process: bool, enabled: bool = True) -> None:
        self._server = server
        self._owns_process = owns_process
        # Only the main thread may set signal handlers.
        self._enabled = enabled and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}
        self._ours: dict[int, Callable[[int, FrameType | None], None]] = {}
        self._others: dict[int, Any] = {}
        """Handlers that other code installed while the server ran."""
        self._is_calling = False
        self._timer: asyncio.TimerHandle | None = None
        self._interrupts = 0

    def __enter__(self) -> Self:
        """Install the handlers. Called in a running event loop."""
        if self._enabled:
            self._install(signal.SIGTERM, self._terminate)
            self._install(signal.SIGINT, self._interrupt)
            if hasattr(signal, "SIGTSTP"):
                self._install(signal.SIGTSTP, self._stop)
            self._schedule_check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the earlier handlers."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._owns_process:
            self._before.update(self._others)
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before.clear()

    def _install(self, number: int, handler: Callable[[int, FrameType | None], None]) -> None:
        self._ours[number] = handler
        self._before[number] = signal.signal(number, handler)

    def _schedule_check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        """Install our handlers again where other code has replaced them."""
        for number, ours in self._ours.items():
            current = signal.getsignal(number)
            if current == ours:
                continue
            signal.signal(number, ours)
            if number in self._others and current == self._others[number]:
                continue  # logged before
            self._others[number] = current
            after = "" if self._owns_process else ", and the other one is called after it"
            _log.warning(
                "the handler of %s was replaced by %s, which would disable the shutdown; "
                "ours is installed again%s",
                signal.Signals(number).name,
                _name(current),
                after,
            )
        self._schedule_check()

    def _call_other(self, number: int, frame: FrameType | None) -> None:
        other = self._others.get(number)
        # The other handler may call the one that it replaced, which is ours.
        if self._owns_process or self._is_calling or not callable(other):
            return
        self._is_calling = True
        try:
            other(number, frame)
        finally:
            self._is_calling = False

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self._server.request_shutdown()
        self._call_other(number, frame)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            self._server.request_shutdown()
            self._call_other(number, frame)
        elif self._owns_process:
            os._exit(EXIT_ABORTED)
        else:
            raise KeyboardInterrupt

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._server.request_stop()
        self._call_other(number, frame)


def _name(handler: object) -> str:
    if handler is None:
        return "code that is not Python"
    if isinstance(handler, signal.Handlers):
        return handler.name
    module, name = getattr(handler, "__module__", None), getattr(handler, "__qualname__", None)
    return f"{module}.{name}" if module and name else type(handler).__qualname__
