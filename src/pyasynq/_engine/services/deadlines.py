"""Deadlines service: cancels attempts whose time or lease has ended, and reports overdue attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._engine.run.attempt import Phase
from pyasynq.errors import LeaseExpiredError
from pyasynq.events import AttemptOverdue

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.lease.stuck_rule import OverdueRule
    from pyasynq._engine.run.attempt import Attempt


class Deadlines(Service):
    """Checks all attempts four times a second (a sweep), which replaces a timer for each attempt."""

    name = "deadlines"

    def __init__(self, parts: Parts, rule: OverdueRule) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._rule = rule
        self.last_sweep = parts.clock.monotonic()
        """Monotonic time of the last sweep.

        Another thread reads it to see whether the event loop is blocked.
        """
        self.on_stuck: Callable[[], None] = lambda: None
        """Called when attempts that cannot be stopped make the worker useless."""

    async def round(self) -> float:
        """Cancel the running attempts whose timeout, deadline or lease has ended.

        Report cancelled attempts that go on running (overdue), and call `on_stuck` if they keep the worker
        from taking tasks.
        """
        now = self.last_sweep = self._parts.clock.monotonic()
        for attempt in self._parts.roster.snapshot():
            if attempt.phase is not Phase.RUNNING:
                continue
            if attempt.cause is None:
                self._check(attempt, now)
            else:
                self._report(attempt, now)
        if self._rule.is_stuck(self._parts.roster, now):
            self.on_stuck()
        return self._parts.settings.sweep_interval

    def _check(self, attempt: Attempt, now: float) -> None:
        if now >= attempt.deadline:
            attempt.cancel(attempt.build_timeout_error(), monotonic=now)
        elif not attempt.has_lease(now) and attempt.cancel(LeaseExpiredError(), monotonic=now):
            self._parts.settles.on_lost(attempt)

    def _report(self, attempt: Attempt, now: float) -> None:
        settings = self._parts.settings
        overdue = attempt.overdue_seconds(now)
        wait = settings.overdue_again if attempt.overdue_reported else settings.overdue_after
        if overdue >= attempt.overdue_reported + wait:
            attempt.overdue_reported = overdue
            self.events.emit(AttemptOverdue(attempt.queue, attempt.id, attempt.message.type, overdue))
