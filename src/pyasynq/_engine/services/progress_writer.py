"""Writes down what handlers say about their progress."""

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
    """Writes the newest progress of each attempt that reported any, all in one go, twice a second at most.

    The first report after a time of silence is written at once. What an attempt said last and is not written
    when it ends goes with its outcome.
    """

    name = "progress writer"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._reported: dict[Attempt, None] = {}
        self._silent = False

    def report(self, attempt: Attempt) -> None:
        """Take note that an attempt has said something new."""
        self._reported[attempt] = None
        if self._silent:
            self._silent = False
            self.wake()

    async def round(self) -> float:
        """Write what has been reported."""
        reported, self._reported = self._reported, {}
        self._silent = not reported
        if self._silent:
            return math.inf
        for attempt in reported:
            # Before its progress is read: a report from another thread is then seen here or comes again.
            attempt.progress_queued = False
        running = [attempt for attempt in reported if attempt.phase is Phase.RUNNING]
        try:
            results = await self._parts.driver.run_batch([self._plan(attempt) for attempt in running])
        except Exception as error:  # noqa: BLE001 - reported by the round that raises it
            results = [error] * len(running)
        failures = [result for result in results if isinstance(result, Exception)]
        if failures:
            for attempt, result in zip(running, results, strict=True):
                # A report that Redis answers with an error is dropped; the next one is sent.
                if isinstance(result, Exception) and not isinstance(result, RedisReplyError):
                    attempt.progress_queued = True
                    self._reported[attempt] = None
            raise failures[0]
        return self._parts.settings.progress_interval

    def _plan(self, attempt: Attempt) -> Plan[bool]:
        # The heartbeat's thread may renew before this arrives.
        expect_renewals([attempt], self._parts.redis_time.now().ceiling, self._parts.settings.lease)
        return write_progress(
            attempt.queue,
            attempt.id,
            attempt.token,
            attempt.progress_json(),
            lease_score=attempt.lease_score,
        )
