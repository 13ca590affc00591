"""Watchdog that detects a blocked event loop from another thread, and reports the loop's stack."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final

from pyasynq._background.code_places import format_blocking_stack
from pyasynq._engine.run.attempt import RUNNING
from pyasynq.events import LoopBlocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq._clock import Clock
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.services.deadlines import Deadlines
    from pyasynq._engine.settings import EngineSettings
    from pyasynq.events import Events


class LoopWatch:
    """Watchdog: compares the time of the last deadline sweep, which runs on the loop, with the present.

    Created in the loop's thread. Another thread calls `check`, and the event is emitted in that thread,
    because a blocked loop cannot emit it.
    """

    def __init__(
        self,
        deadlines: Deadlines,
        settings: EngineSettings,
        clock: Clock,
        events: Events,
        attempts: Callable[[], Iterable[Attempt]],
    ) -> None:
        self._attempts = attempts
        self._loop = asyncio.get_running_loop()
        self._deadlines = deadlines
        self._settings = settings
        self._clock = clock
        self._events = events
        self._thread_id = threading.get_ident()
        self._reported = 0.0

    @property
    def blocked_seconds(self) -> float:
        """Seconds for which the event loop has been blocked; about zero while it runs."""
        if not self._deadlines.running:
            return 0.0
        since = self._deadlines.last_sweep + self._settings.sweep_interval
        return max(0.0, self._clock.monotonic() - since)

    def get_blocked_seconds(self) -> float:
        """Return `blocked_seconds`, for the server's record."""
        return self.blocked_seconds

    def check(self) -> bool:
        """Return whether the loop is blocked; emit an event when the block begins, then every ten seconds."""
        seconds = self.blocked_seconds
        if seconds < self._settings.loop_blocked_after:
            self._reported = 0.0
            return False
        if not self._reported or seconds >= self._reported + self._settings.loop_blocked_again:
            self._reported = seconds
            self._events.emit(
                LoopBlocked(seconds, format_blocking_stack(self._thread_id), self._describe_tasks())
            )
        return True

    def _describe_tasks(self) -> str:
        """Describe the task that blocks the loop; if unknown, all tasks that run on the loop."""
        running = [one for one in self._attempts() if one.phase is RUNNING and not one.threads]
        holder = asyncio.current_task(self._loop)
        # An attempt in its first step does not know its asyncio task yet, which has the task's id as name.
        held = [
            one
            for one in running
            if holder is not None
            and (one.task is holder or (one.task is None and one.id == holder.get_name()))
        ]
        if held:
            return f"{_describe_attempt(held[0])} holds it"
        if not running:
            return "no task runs on it"
        names = ", ".join(map(_describe_attempt, running[:_MOST_NAMES]))
        more = f" and {len(running) - _MOST_NAMES} more" if len(running) > _MOST_NAMES else ""
        return f"{names}{more} {'runs' if len(running) == 1 else 'run'} on it"


_MOST_NAMES: Final = 5


def _describe_attempt(attempt: Attempt) -> str:
    return f"task {attempt.id} ({attempt.message.type}, queue {attempt.queue})"
