"""Abandoned attempts: they outlive their server, inside a program that continues."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from pyasynq._engine.lease.renewal import Renewal, RenewalResult
from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.lease.stuck_rule import OverdueRule
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._redis.driver import BlockingDriver

_log = logging.getLogger("pyasynq")


class AbandonedLeases:
    """Thread that renews the leases of abandoned attempts until they end.

    Without this thread other servers would run the tasks a second time in parallel. The outcomes of the
    attempts are not written, because the server is gone. When an attempt ends, its lease lapses, and another
    server recovers its task. An attempt past the overdue limit loses its lease, as in the server.
    """

    def __init__(
        self,
        attempts: Iterable[Attempt],
        parts: Parts,
        rule: OverdueRule,
        driver: BlockingDriver,
    ) -> None:
        self._attempts = list(attempts)
        self._driver = driver
        self._clock = parts.clock
        self._interval = parts.settings.heartbeat_interval
        self._rule = rule
        self._renewal = Renewal(driver, parts.settings, parts.clock, parts.redis_time)

    def keep(self) -> None:
        """Start the thread, which closes the driver at its end."""
        threading.Thread(target=self._work, name="pyasynq-abandoned-leases", daemon=True).start()

    def _work(self) -> None:
        while self._attempts:
            now = self._clock.monotonic()
            self._attempts = [one for one in self._attempts if self._is_held(one, now)]
            try:
                # This thread cannot cancel a handler, so cancel requests are ignored.
                found = self._renewal.renew(self._attempts)
            except PyasynqError as failure:
                found = RenewalResult([], [], failure)
            if found.error is not None:
                _log.warning("leases of abandoned tasks could not be renewed: %s", visible(found.error))
            self._attempts = [one for one in self._attempts if one not in found.lost]
            time.sleep(self._interval)
        self._driver.close()

    def _is_held(self, attempt: Attempt, now: float) -> bool:
        if self._rule.is_hopeless(attempt, now):
            return False
        on_loop = attempt.task is not None and not attempt.home.loop.is_closed()
        return attempt.threads > 0 or on_loop
