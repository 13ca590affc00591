"""The names of all queues, which stand in `asynq:queues`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pyasynq._broker.stored import readable_names
from pyasynq._checks import checked_name
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import ALL_QUEUES
from pyasynq.errors import QueueNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

_KNOWN_SECONDS: Final = 60.0
_SWEEP_AT: Final = 1_000


class QueueRegistry:
    """Which queues are known to stand in `asynq:queues`.

    An entry is believed for 60 seconds, so a queue that another process removed is registered again.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known_until: dict[str, float] = {}
        self._sweep_at = _SWEEP_AT
        """At how many names those that are not believed any more are dropped."""

    def knows(self, queue: str) -> bool:
        """Was the queue registered within the last 60 seconds?"""
        return self._monotonic() < self._known_until.get(queue, 0.0)

    def remember(self, queue: str) -> None:
        """Note that Redis has just confirmed the registration."""
        now = self._monotonic()
        self._known_until[queue] = now + _KNOWN_SECONDS
        if len(self._known_until) >= self._sweep_at:
            # Programs may make up queue names; twice as many as now makes the sweep cost next to nothing.
            self._known_until = {name: until for name, until in self._known_until.items() if until > now}
            self._sweep_at = max(_SWEEP_AT, 2 * len(self._known_until))

    def forget(self, queue: str) -> None:
        """Register the queue again with the next task, whatever was known."""
        self._known_until.pop(queue, None)


def register_queue(queue: str, registry: QueueRegistry) -> Plan[None]:
    """Put the queue's name into `asynq:queues`, unless that was done a short while ago."""
    if not registry.knows(queue):
        yield CommandCall(("SADD", ALL_QUEUES, queue), ALL_QUEUES, Replay.SAFE)
        registry.remember(queue)


def queue_names() -> Plan[list[str]]:
    """Return the names of all queues, sorted."""
    names = yield CommandCall(("SMEMBERS", ALL_QUEUES), ALL_QUEUES, Replay.SAFE)
    return sorted(readable_names(names))


def require_queue(queue: str) -> Plan[None]:
    """Raise `QueueNotFoundError` for a queue that no task was ever enqueued to, or `InvalidOptionError`."""
    checked_name("queue", queue)
    if not (yield CommandCall(("SISMEMBER", ALL_QUEUES, queue), ALL_QUEUES, Replay.SAFE)):
        raise QueueNotFoundError(queue)
