"""Watchdog of a shutdown: ends the process when the shutdown takes too long."""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

LAST_WORDS_SECONDS: Final = 0.5
"""Seconds that the guard may take to report and to put tasks back before the process ends."""
_SWITCH_SECONDS: Final = 0.0005
"""Switch interval of the interpreter at the deadline, in seconds.

A computing thread keeps the GIL for this long. Python's default is ten times as long.
"""


class ExitGuard:
    """A thread that ends the process at a deadline. Used as a context manager by the owner of the process.

    The thread is started before it is needed: a signal handler may not start one.

    Args:
        expire: called from the thread at the deadline; reports hanging code and puts tasks back.
        code: the exit code of the process in that case.
    """

    def __init__(self, expire: Callable[[], object], code: int) -> None:
        self._expire = expire
        self._code = code
        # `put` of a SimpleQueue is reentrant, so it is safe in a signal handler.
        self._deadlines: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self.deadline = float("inf")
        """Monotonic time at which the process ends; written by `arm` in any thread, read by the shutdown."""

    def arm(self, seconds: float) -> None:
        """End the process after this many seconds, unless an earlier call set an earlier time.

        Safe in signal handlers and in any thread.
        """
        deadline = time.monotonic() + seconds
        if deadline < self.deadline:
            self.deadline = deadline
            self._deadlines.put(deadline)

    def __enter__(self) -> Self:
        """Start the thread."""
        threading.Thread(target=self._work, name="pyasynq-exit-guard", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disarm the guard."""
        self._deadlines.put(None)

    def _work(self) -> None:
        deadline = self._deadlines.get()
        while deadline is not None:
            try:
                deadline = self._deadlines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._end()

    def _end(self) -> None:
        sys.setswitchinterval(_SWITCH_SECONDS)
        # A hanging thread may block logging, and Redis may be silent: end the process in any case.
        threading.Thread(target=self._end_later, name="pyasynq-exit", daemon=True).start()
        try:
            self._expire()
        finally:
            end_process(self._code)

    def _end_later(self) -> None:
        time.sleep(LAST_WORDS_SECONDS)
        os._exit(self._code)


def end_process(code: int) -> None:
    """End the process even if threads still run."""
    try:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Exit even if flushing fails: tasks are back in their queues, and their first runs must not continue.
        os._exit(code)
