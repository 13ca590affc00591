"""Seeing from another thread that the event loop does not run, and where it is."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyasynq._server.waiting_place import thread_stack
from pyasynq.events import LoopBlocked

if TYPE_CHECKING:
    from pyasynq._clock import Clock
    from pyasynq._server.services.deadlines import Deadlines
    from pyasynq._server.settings import EngineSettings
    from pyasynq.events import Events


class LoopWatch:
    """Compares the time of the last deadline sweep, which runs on the loop, with the present.

    Made on the loop's thread; `look` is called from another one, and emits its event there: while the
    loop is blocked, nobody on it could.
    """

    def __init__(self, deadlines: Deadlines, settings: EngineSettings, clock: Clock, events: Events) -> None:
        self._deadlines = deadlines
        self._settings = settings
        self._clock = clock
        self._events = events
        self._thread_id = threading.get_ident()
        self._reported = 0.0

    @property
    def blocked_seconds(self) -> float:
        """How long ago the loop should have run; about zero while it does."""
        if not self._deadlines.running:
            return 0.0
        since = self._deadlines.last_sweep + self._settings.sweep_interval
        return max(0.0, self._clock.monotonic() - since)

    def look(self) -> bool:
        """Return whether the loop is blocked; report it when that is news, and every ten seconds."""
        seconds = self.blocked_seconds
        if seconds < self._settings.loop_blocked_after:
            self._reported = 0.0
            return False
        if not self._reported or seconds >= self._reported + self._settings.loop_blocked_again:
            self._reported = seconds
            self._events.emit(LoopBlocked(seconds, thread_stack(self._thread_id)))
        return True
