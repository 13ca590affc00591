"""TERM and INT shut a server down, TSTP makes it take no more tasks; a second INT ends at once."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from types import FrameType, TracebackType

EXIT_ABORTED = 130
"""What a shell reports for a program that INT has ended."""


class Stoppable(Protocol):
    """What signals do to a server; both are safe in a signal handler."""

    def request_shutdown(self) -> None:
        """Shut down in good order."""

    def request_stop(self) -> None:
        """Take no more tasks."""


class SignalWatch:
    """Takes the signals while the server runs, and gives them back after it.

    The handlers are Python's, not the event loop's: they run even while a handler blocks the loop, so
    that a second INT always ends the process. As process 1 of a container it is they that make TERM and
    INT work at all, since the kernel ignores signals without a handler there.
    """

    def __init__(self, server: Stoppable, *, owns_process: bool, enabled: bool = True) -> None:
        self._server = server
        self._owns_process = owns_process
        # Only the main thread may set signal handlers.
        self._enabled = enabled and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}
        self._interrupts = 0

    def __enter__(self) -> Self:
        """Take the signals."""
        if self._enabled:
            self._take(signal.SIGTERM, self._terminate)
            self._take(signal.SIGINT, self._interrupt)
            if hasattr(signal, "SIGTSTP"):
                self._take(signal.SIGTSTP, self._stop)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the signals back to who had them."""
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before.clear()

    def _take(self, number: int, handler: Any) -> None:
        self._before[number] = signal.signal(number, handler)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._server.request_shutdown()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._interrupts += 1
        if self._interrupts == 1:
            self._server.request_shutdown()
        elif self._owns_process:
            os._exit(EXIT_ABORTED)
        else:
            raise KeyboardInterrupt

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._server.request_stop()
