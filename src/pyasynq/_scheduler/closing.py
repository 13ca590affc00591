"""Time limits for the end of a scheduler whose hooks, middleware or provider hang."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Final, Self

from pyasynq._server.service import Service
from pyasynq.events import ServerWarning

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pyasynq._scheduler.calls import CallsInProgress
    from pyasynq.events import Events

CANCEL_SECONDS: Final = 0.25
"""How long a cancelled function may take to end, before it is left behind."""
EXIT_MARGIN_SECONDS: Final = 2.5
"""How much longer than its limit a shutdown may take before the process is ended."""

_log = logging.getLogger("pyasynq")


class BoundedService(Service):
    """A service that calls functions of users, so its last round may not end."""

    def __init__(self, events: Events, calls: CallsInProgress) -> None:
        super().__init__(events)
        self._calls = calls

    async def stop_within(self, seconds: float) -> bool:
        """Stop, and cancel the last round after this many seconds; say what hung.

        Returns whether the round ended by itself.
        """
        stopping = asyncio.ensure_future(self.stop())
        await asyncio.wait({stopping}, timeout=max(0.0, seconds))
        if stopping.done():
            stopping.result()
            return True
        report_hang(self.events, str(self._calls) or f"the service {self.name!r}")
        if self._task is not None:
            self._task.cancel()
        await asyncio.wait({stopping}, timeout=CANCEL_SECONDS)
        stopping.cancel()
        self._task = None
        return False


def report_hang(events: Events, what: str) -> None:
    """Say what a shutdown does not wait for any longer."""
    events.emit(ServerWarning("shutdown-hung", f"the shutdown waits no longer for {what}"))


class ExitGuard:
    """A thread that ends the process when a shutdown takes too long, even if the event loop is blocked.

    The thread is started before it is needed, because a signal handler may not start one.

    Args:
        describe: returns what hangs; called from the thread.
        code: the exit code of the process then.
    """

    def __init__(self, describe: Callable[[], str], code: int) -> None:
        self._describe = describe
        self._code = code
        # Putting into this kind of queue is safe in a signal handler.
        self._deadlines: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._is_armed = False

    def arm(self, seconds: float) -> None:
        """End the process after this many seconds. The first call counts. Safe in signal handlers."""
        if not self._is_armed:
            self._is_armed = True
            self._deadlines.put(time.monotonic() + seconds)

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
        if deadline is None:
            return
        try:
            self._deadlines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            self._end()

    def _end(self) -> None:
        # Logging may be blocked by what hangs.
        threading.Thread(target=self._end_later, name="pyasynq-exit", daemon=True).start()
        try:
            _log.error("the process ends although this hangs: %s", self._describe())
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(self._code)

    def _end_later(self) -> None:
        time.sleep(CANCEL_SECONDS)
        os._exit(self._code)
