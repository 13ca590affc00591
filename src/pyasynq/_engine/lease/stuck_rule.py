"""When a worker is of no use any more, because handlers run on that nobody can stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._checks import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.settings import EngineSettings
    from pyasynq.config import ServerConfig


class OverdueRule:
    """One attempt far over its deadline, or all slots held by such that are over theirs: restart the worker.

    Renewing leases beside a blocked event loop would otherwise hold its tasks for ever.
    """

    __slots__ = ("_grace", "_limit", "_slots")

    def __init__(self, config: ServerConfig, settings: EngineSettings) -> None:
        self._slots = config.concurrency
        self._limit = seconds_of("overdue_limit", config.overdue_limit)
        self._grace = min(self._limit, settings.stuck_grace)

    def is_stuck(self, attempts: Iterable[Attempt], now: float) -> bool:
        """Return whether the worker should drain and be restarted."""
        overdue = [attempt for attempt in attempts if self.is_overdue(attempt, now)]
        return len(overdue) >= self._slots or any(self.is_hopeless(attempt, now) for attempt in overdue)

    def is_overdue(self, attempt: Attempt, now: float) -> bool:
        """Return whether an attempt has not ended although its time has long been over."""
        return attempt.overdue_seconds(now) >= self._grace

    def is_hopeless(self, attempt: Attempt, now: float) -> bool:
        """Return whether an attempt is so far over its time that its lease is given up."""
        return attempt.overdue_seconds(now) >= self._limit
