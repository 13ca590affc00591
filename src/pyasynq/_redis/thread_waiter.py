"""Waiting and starting threads, safe against exceptions raised by signal handlers.

`threading.Event`, `Condition`, `Semaphore` and `Thread.start` are Python code: an exception that a signal
handler raises in there may leave their inner lock held for ever. A plain lock has no such moment.
"""

from __future__ import annotations

import _thread
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ThreadWaiter:
    """A binary semaphore: lets one thread wait until any other wakes it.

    A wake-up may be lost when the waking thread is interrupted. So each wait has a timeout, after which the
    waiting thread checks its condition itself.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> bool:
        """Wait for a call of `wake`, at most this many seconds; return whether it was called."""
        return self._lock.acquire(timeout=seconds)

    def wake(self) -> None:
        """End the wait, or the next one if no thread waits now."""
        try:
            self._lock.release()
        except RuntimeError:  # a wake-up is already pending
            return


def start_thread(run: Callable[[], object], name: str) -> None:
    """Start a daemon thread of this name.

    `Thread.start` waits for the new thread, so it is called in a thread that no signal handler interrupts.

    Raises:
        RuntimeError: if the system, or an interpreter that is ending, starts no thread.
    """

    def start() -> None:
        try:
            threading.Thread(target=run, name=name, daemon=True).start()
        except RuntimeError:  # the system starts no second thread
            run()

    _thread.start_new_thread(start, ())
