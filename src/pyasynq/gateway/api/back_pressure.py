"""Back-pressure: refuses new tasks of a type while `max_pending` or more of its tasks wait in the queue."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.errors import QueueNotFoundError
from pyasynq.web.api.problem import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.gateway.configurations import TaskConfiguration
    from pyasynq.operations import Operator

_FRESH_SECONDS: Final = 1.0
"""Seconds for which a reading of the number of waiting tasks is used."""


class _Reading:
    """Number of waiting tasks of a type: as last read from Redis, plus the tasks admitted here since then."""

    def __init__(self, count: int, at: float) -> None:
        self.count = count
        self.at = at


class BackPressure:
    """Refuses new tasks of a type while too many of its tasks wait. Belongs to one event loop.

    The number of waiting tasks is read from Redis at most once a second for each type that has `max_pending`.
    In between, an instance counts the tasks that it admits itself. So the tasks that other instances admit
    within a second may exceed the limit.

    Args:
        operator: reads the queues.
        monotonic: clock of the readings, in seconds.
    """

    def __init__(self, operator: Operator, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._operator = operator
        self._monotonic = monotonic
        self._readings: dict[str, _Reading] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        """Locks by task type, held during a reading; concurrent requests share the reading."""

    async def admit(self, configuration: TaskConfiguration) -> None:
        """Count a new task as waiting, unless its type has too many waiting tasks.

        Raises:
            ProblemError: too many tasks of the type wait.
            RedisError: the number of waiting tasks cannot be read.
        """
        if configuration.max_pending is None:
            return
        reading = await self._read(configuration.name)
        if reading.count >= configuration.max_pending:
            detail = f"The queue {visible(configuration.name)} is full: max_pending tasks wait in it."
            headers = {"Retry-After": "1"}
            remedy = "Send it again after Retry-After."
            raise ProblemError(429, "queue_full", detail, remedy, headers=headers)
        reading.count += 1

    async def _read(self, name: str) -> _Reading:
        reading = self._find_fresh(name)
        if reading is not None:
            return reading
        async with self._locks.setdefault(name, asyncio.Lock()):
            reading = self._find_fresh(name)
            if reading is None:
                now = self._monotonic()
                reading = self._readings[name] = _Reading(await self._count(name), now)
        return reading

    def _find_fresh(self, name: str) -> _Reading | None:
        reading = self._readings.get(name)
        return reading if reading is not None and self._monotonic() - reading.at < _FRESH_SECONDS else None

    async def _count(self, name: str) -> int:
        try:
            return (await self._operator.queue(name)).pending
        except QueueNotFoundError:
            return 0
