"""The watchdog of a shutdown: ends the process when the shutdown takes too long, whatever hangs."""

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
"""How long the guard may take to tell and to put tasks back before the process ends."""
_SWITCH_SECONDS: Final = 0.0005
"""How long a thread that computes may keep the interpreter's lock then; usually ten times that."""


class ExitGuard:
    """A thread that ends the process at a deadline. Used as a context manager by what owns its process.

    The thread is started before it is needed: a signal handler may not start one.

    Args:
        expire: called from the thread at the deadline; says what hangs and puts tasks back.
        code: the exit code of the process then.
    """

    def __init__(self, expire: Callable[[], object], code: int) -> None:
        self._expire = expire
        self._code = code
        # Putting into this kind of queue is safe in a signal handler, whatever it interrupts.
        self._deadlines: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self.deadline = float("inf")
        """Monotonic time at which the process ends; written by `arm`, in any thread."""

    def arm(self, seconds: float) -> None:
        """End the process after this many seconds, unless an earlier call said an earlier time.

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
        """Let the process live."""
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
        # Logging may be blocked by what hangs, and Redis may be silent.
        threading.Thread(target=self._end_later, name="pyasynq-exit", daemon=True).start()
        try:
            self._expire()
        finally:
            end_process(self._code)

    def _end_later(self) -> None:
        time.sleep(LAST_WORDS_SECONDS)
        os._exit(self._code)


def end_process(code: int) -> None:
    """End the process although threads still run."""
    try:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Even if the streams fail: tasks are back in their queues, and their first runs must not go on.
        os._exit(code)
