"""Attempts that outlive their server, inside a program that goes on."""

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
    """Renews the leases of such attempts, from a daemon thread, until they end, or the program does.

    Without it their tasks would be run again beside them. What they come to is not written: nobody is left
    to do it. Their leases lapse then, and other servers recover the tasks. One that is over its time by the
    overdue limit loses its lease as it would have in the server.
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
        """Begin; the driver is closed at the end."""
        threading.Thread(target=self._work, name="pyasynq-abandoned-leases", daemon=True).start()

    def _work(self) -> None:
        while self._attempts:
            now = self._clock.monotonic()
            self._attempts = [one for one in self._attempts if self._is_held(one, now)]
            try:
                # A request to cancel cannot be obeyed: nothing can stop what runs here.
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
