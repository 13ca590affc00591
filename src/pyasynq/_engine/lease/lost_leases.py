"""Reports of a consumer's lost leases.

A lease is not reported as lost if the holder has extended or settled the attempt through another consumer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from pyasynq._broker.find_attempt import FoundAttempt, find_attempt
from pyasynq._broker.verdicts import Verdict, is_leased
from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.run.attempt import Attempt

_log = logging.getLogger("pyasynq")

_LAST_LOOK_SECONDS: Final = 1.0
"""Timeout in seconds for Redis' answers when a consumer is closed; then the leases count as lost."""


class LostLeases:
    """Handler of lost leases: asks Redis how the attempt ended, and only then reports a loss.

    Args:
        parts: parts of the consumer; its settle queue reports lost attempts to this object from now on.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._emit = parts.settles.on_lost
        self._looks: set[asyncio.Task[None]] = set()
        parts.settles.on_lost = self._handle

    async def finish(self) -> None:
        """Wait for Redis' outstanding answers; report attempts without an answer as lost."""
        if self._looks:
            _, late = await asyncio.wait(self._looks, timeout=_LAST_LOOK_SECONDS)
            for look in late:
                look.cancel()
            if late:
                await asyncio.wait(late)

    def _handle(self, attempt: Attempt) -> None:
        if not is_leased(attempt.token):
            self._emit(attempt)
            return
        look = asyncio.create_task(self._check(attempt), name="pyasynq lost lease")
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)

    async def _check(self, attempt: Attempt) -> None:
        is_known = False
        try:
            now = self._parts.clock.redis_now()
            lease_end = attempt.lease_end
            found = await self._parts.driver.run(
                find_attempt(attempt.queue, attempt.id, token=attempt.token, lease_end=lease_end, now=now)
            )
            if isinstance(found, FoundAttempt):
                # Only an extension through another consumer can have moved the end of the lease.
                is_known = found.lease_score > lease_end
            else:
                is_known = found is not None and found is not Verdict.LOST
        except PyasynqError as error:
            _log.debug("the end of task %s is unknown: %s", visible(attempt.id), visible(error))
        finally:
            if is_known:
                _log.debug("task %s is held or was settled through another consumer", visible(attempt.id))
            else:
                self._emit(attempt)
