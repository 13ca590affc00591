"""Health check service: reports to the user's function whether Redis answers."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._checks import parse_seconds
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from pyasynq._engine.engine_parts import Parts


class HealthCheck(Service):
    """Pings Redis every `health_check_interval`; runs only if the configuration has a health check."""

    name = "health check"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.events)
        self._parts = parts
        interval = parse_seconds("health_check_interval", parts.config.health_check_interval)
        self.first_rest = self._interval = interval
        self.stop_limit = parse_seconds("cancel_timeout", parts.config.cancel_timeout)

    async def round(self) -> float:
        """Ping Redis, and pass None or the error to the user's function; if that raises, the round fails."""
        error: BaseException | None = None
        try:
            await self._parts.driver.run(_ping())
        except PyasynqError as failure:
            error = failure
        check = self._parts.config.health_check
        if check is not None:
            told = check(error)
            if inspect.isawaitable(told):
                await told
        return self._interval


def _ping() -> Plan[None]:
    yield CommandCall(("PING",), None, Replay.SAFE)
