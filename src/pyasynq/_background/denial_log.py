"""Log lines for rights that Redis denies (ACL): a warning when a call is denied, an info at the end."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import duration
from pyasynq._visible_text import visible
from pyasynq.events import RoundFinished

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.errors import RedisPermissionError
    from pyasynq.events import Events

_log = logging.getLogger("pyasynq")

_SAY_AGAIN_SECONDS: Final = 60.0
"""Minimum seconds between two warnings about denied rights. In a denial, each right is named once."""
_QUIET_SECONDS: Final = 15.0
"""Seconds without a denied call until the denial counts as over: three times the longest back-off."""


class DenialLog:
    """Detects that Redis denies the user a right (ACL), and when the right is granted again.

    Used by the event loop only. A finished round of a service does not prove that the right is granted, since
    some rounds make no call. The denial is over when no call has been denied for longer than the back-off of
    a service.

    Args:
        events: events of the worker or scheduler.
        address: where Redis is.
        noun: prefix of the lines; empty for a worker.
    """

    def __init__(self, events: Events, address: str, noun: str) -> None:
        self._events = events
        self._address = address
        self._noun = noun
        self._stop_listening: Callable[[], None] | None = None
        self._began = 0.0
        self._denied_at = 0.0
        self._warned_at = 0.0
        self._over_at: float | None = None
        """Monotonic time at which a denied service finished a round after the last denial; None before."""
        self._told: set[str] = set()
        self._failed: set[str] = set()
        """Services that had a call denied."""

    def take(self, service: str, error: RedisPermissionError, consequence: str) -> None:
        """Record a denied call; warn unless this denial was reported.

        `consequence` is the text at the end of the warning.
        """
        now, reason = time.monotonic(), visible(error)
        if self._stop_listening is None:
            self._stop_listening = self._events.subscribe(RoundFinished, self._on_round_finished)
            self._began = now
            self._warn(reason + consequence, now)
            self._told = {reason}
        elif reason not in self._told and now >= self._warned_at + _SAY_AGAIN_SECONDS:
            self._warn(reason, now)
            self._told.add(reason)
        self._denied_at = now
        self._over_at = None
        if service:
            self._failed.add(service)

    def _warn(self, text: str, now: float) -> None:
        self._warned_at = now
        _log.warning("%sRedis at %s denies a right: %s", self._noun, visible(self._address), text)

    def _on_round_finished(self, event: RoundFinished) -> None:
        now = time.monotonic()
        if self._over_at is None and event.service in self._failed:
            self._over_at = now
        if now >= self._denied_at + _QUIET_SECONDS:
            self._end(now if self._over_at is None else self._over_at)

    def _end(self, over_at: float) -> None:
        assert self._stop_listening is not None  # noqa: S101 - it listens only while rights are denied
        self._stop_listening()
        self._stop_listening = None
        self._failed.clear()
        _log.info("%sRedis answers again after %s", self._noun, duration(over_at - self._began))
