"""Overdue rule (watchdog): decides when overdue handlers that cannot be stopped make a worker useless."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._checks import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.settings import EngineSettings
    from pyasynq.config import ServerConfig


class OverdueRule:
    """Restarts the worker if one attempt is far past its deadline, or if overdue attempts hold every slot.

    Otherwise a worker with a blocked event loop would renew its leases and hold its tasks indefinitely.
    """

    __slots__ = ("_grace", "_limit", "_slots")

    def __init__(self, config: ServerConfig, settings: EngineSettings) -> None:
        self._slots = config.concurrency
        self._limit = parse_seconds("overdue_limit", config.overdue_limit)
        self._grace = min(self._limit, settings.stuck_grace)

    def is_stuck(self, attempts: Iterable[Attempt], now: float) -> bool:
        """Return whether the worker should drain and be restarted."""
        overdue = [attempt for attempt in attempts if self.is_overdue(attempt, now)]
        return len(overdue) >= self._slots or any(self.is_hopeless(attempt, now) for attempt in overdue)

    def is_overdue(self, attempt: Attempt, now: float) -> bool:
        """Return whether an attempt runs long after its deadline."""
        return attempt.overdue_seconds(now) >= self._grace

    def is_hopeless(self, attempt: Attempt, now: float) -> bool:
        """Return whether an attempt is so far past its deadline that its lease is given up."""
        return attempt.overdue_seconds(now) >= self._limit
