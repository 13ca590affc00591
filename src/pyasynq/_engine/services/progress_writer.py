"""Progress writer service: stores the progress reports of handlers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._broker.results import write_progress
from pyasynq._engine.run.attempt import Phase, expect_renewals
from pyasynq.errors import RedisReplyError

if TYPE_CHECKING:
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._redis.plan import Plan


class ProgressWriter(Service):
    """Writes the newest report of each attempt, all in one pipeline, at most twice a second.

    The first report after a silence is written at once. The last report of an attempt that has ended is
    written with its outcome.
    """

    name = "progress writer"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._reported: dict[Attempt, None] = {}
        self._silent = False

    def report(self, attempt: Attempt) -> None:
        """Record that an attempt has a new report."""
        self._reported[attempt] = None
        if self._silent:
            self._silent = False
            self.wake()

    async def round(self) -> float:
        """Write the newest report of each running attempt that has a new one."""
        reported, self._reported = self._reported, {}
        self._silent = not reported
        if self._silent:
            return math.inf
        for attempt in reported:
            # Cleared before the progress is read: a report from another thread is then read here or queued
            # again.
            attempt.progress_queued = False
        running = [attempt for attempt in reported if attempt.phase is Phase.RUNNING]
        try:
            results = await self._parts.driver.run_batch([self._plan(attempt) for attempt in running])
        except Exception as error:  # noqa: BLE001 - raised below
            results = [error] * len(running)
        failures = [result for result in results if isinstance(result, Exception)]
        if failures:
            for attempt, result in zip(running, results, strict=True):
                # A report that Redis refuses is dropped; the next one is sent.
                if isinstance(result, Exception) and not isinstance(result, RedisReplyError):
                    attempt.progress_queued = True
                    self._reported[attempt] = None
            raise failures[0]
        return self._parts.settings.progress_interval

    def _plan(self, attempt: Attempt) -> Plan[bool]:
        # The heartbeat's thread may renew the lease before this call reaches Redis.
        expect_renewals([attempt], self._parts.redis_time.now().ceiling, self._parts.settings.lease)
        return write_progress(
            attempt.queue,
            attempt.id,
            attempt.token,
            attempt.progress_json(),
            lease_score=attempt.lease_score,
        )
