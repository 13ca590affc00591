"""Tells the user's function whether Redis answers."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._checks import seconds_of
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from pyasynq._engine.engine_parts import Parts


class HealthCheck(Service):
    """Pings every `health_check_interval`; runs only where there is a function to tell."""

    name = "health check"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.events)
        self._parts = parts
        interval = seconds_of("health_check_interval", parts.config.health_check_interval)
        self.first_rest = self._interval = interval
        self.stop_limit = seconds_of("cancel_timeout", parts.config.cancel_timeout)

    async def round(self) -> float:
        """Ping, and hand None or the error to the function; what the function raises is a failed round."""
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
