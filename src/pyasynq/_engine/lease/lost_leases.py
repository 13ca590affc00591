"""Lost leases of a consumer; not logged if the holder settled the attempt through another consumer."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from pyasynq._broker.find_attempt import find_verdict
from pyasynq._broker.verdicts import is_leased
from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.run.attempt import Attempt

_log = logging.getLogger("pyasynq")

_LAST_LOOK_SECONDS: Final = 1.0
"""Seconds that the end of a consumer waits for answers; an attempt without one counts as lost."""


class LostLeases:
    """Asks Redis how a leased attempt ended before its lease is reported lost.

    Args:
        parts: of the consumer; its settle queue passes on the attempts from now on.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._emit = parts.settles.on_lost
        self._looks: set[asyncio.Task[None]] = set()
        parts.settles.on_lost = self._take

    async def finish(self) -> None:
        """Wait for outstanding answers, and report the attempts without one."""
        if self._looks:
            _, late = await asyncio.wait(self._looks, timeout=_LAST_LOOK_SECONDS)
            for look in late:
                look.cancel()
            if late:
                await asyncio.wait(late)

    def _take(self, attempt: Attempt) -> None:
        if not is_leased(attempt.token):
            self._emit(attempt)
            return
        look = asyncio.create_task(self._look(attempt), name="pyasynq lost lease")
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)

    async def _look(self, attempt: Attempt) -> None:
        is_settled = False
        try:
            now = self._parts.clock.redis_now()
            verdict = await self._parts.driver.run(
                find_verdict(attempt.queue, attempt.id, attempt.token, now=now)
            )
            is_settled = verdict is not None and verdict.by_holder
        except PyasynqError as error:
            _log.debug("the end of task %s is unknown: %s", visible(attempt.id), visible(error))
        finally:
            if is_settled:
                _log.debug("task %s was settled through another consumer", visible(attempt.id))
            else:
                self._emit(attempt)
