"""Services of a scheduler: the ticker fires ticks, the heartbeat publishes the entries."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._background.calls import CallingService
from pyasynq._background.service import Service
from pyasynq._broker.delayed import forward
from pyasynq._broker.schedules import (
    clear_scheduler_entries,
    clear_scheduler_history,
    forget_entries,
    list_schedulers,
    write_scheduler_entries,
)
from pyasynq._checks import parse_seconds
from pyasynq._scheduler.firing import FiringOutcome
from pyasynq._wire.constants import STATISTICS_SECONDS
from pyasynq.errors import PyasynqError
from pyasynq.events import RoundFailed, TicksMissed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from pyasynq._background.calls import CallsInProgress
    from pyasynq._background.redis_time import RedisTime
    from pyasynq._clock import Clock
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq._scheduler.book import EntryBook
    from pyasynq._scheduler.entry import ScheduleEntry
    from pyasynq._scheduler.firing import Firing
    from pyasynq.config import SchedulerConfig
    from pyasynq.events import Events

_FIRED_AT_ONCE: Final = 10
"""Maximum number of entries that fire at the same time; the driver has as many connections."""

_RETRY_SECONDS: Final = 1.0
_IDLE_SECONDS: Final = 0.1
"""Shortest pause in seconds after a round that fired nothing, so that a bug cannot cause a busy loop."""

_FORWARD_SECONDS: Final = 5.0
_LEAST_FORWARD_SECONDS: Final = 0.25
"""Shortest pause of the forwarder in seconds, even if a task is due earlier."""
_FORGET_INTERVAL: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class SchedulerParts:
    """Parts shared by the services of one scheduler."""

    scheduler_id: str
    config: SchedulerConfig
    events: Events
    clock: Clock
    redis_time: RedisTime
    driver: AsyncDriver
    book: EntryBook
    calls: CallsInProgress

    async def begin(self, entries: list[ScheduleEntry]) -> Exception | None:
        """Continue entries after their stored ticks, as `EntryBook.begin` does; return an error, if any."""
        return await self.book.begin(entries, self.driver, self.redis_time, self.clock)


class Ticker(CallingService):
    """Fires the due ticks, and pauses until the next one.

    Args:
        parts: parts of the scheduler.
        firing: fires one tick.
        queues: returns the queues of the node that it works for; None for all queues.
    """

    name = "scheduler"

    def __init__(
        self, parts: SchedulerParts, firing: Firing, queues: Callable[[], Collection[str]] | None = None
    ) -> None:
        super().__init__(parts.events, parts.calls)
        self._parts = parts
        self._queues = queues
        self._firing = firing
        self._slots = asyncio.Semaphore(_FIRED_AT_ONCE)
        self._failed = False
        """Whether a tick of this round must be fired again."""
        self._unreachable = False
        """Whether a tick of this round failed because Redis could not be reached."""

    async def round(self) -> float:
        """Fire the due ticks: entries in parallel, the ticks of one entry in order."""
        entries = self._entries()
        # An entry whose ticks cannot be read does not delay the others.
        failure = await self._parts.begin([entry for entry in entries if not entry.timetable.begun])
        self._failed = self._unreachable = False
        now = self._now()
        due = [(entry, ticks) for entry in entries if (ticks := self._due(entry, now))]
        await asyncio.gather(*(self._fire(entry, ticks) for entry, ticks in due))
        if failure is not None:
            raise failure
        now = self._now()
        rests = [
            (entry.timetable.next - now).total_seconds() for entry in self._entries() if entry.timetable.next
        ]
        # A pause after a failure: the failed tick is still due, and would be retried at once.
        least = _RETRY_SECONDS if self._failed else 0.0 if due else _IDLE_SECONDS
        return min((rest if rest > 0 else least for rest in rests), default=math.inf)

    def _entries(self) -> list[ScheduleEntry]:
        if self._queues is None:
            return list(self._parts.book)
        queues = self._queues()
        return [entry for entry in self._parts.book if entry.queue in queues]

    def _due(self, entry: ScheduleEntry, now: datetime) -> list[datetime]:
        due = entry.timetable.due(now)
        if due.missed is not None:
            self.events.emit(TicksMissed(entry.id, entry.spec, entry.task.type, due.missed))
        return due.ticks

    async def _fire(self, entry: ScheduleEntry, ticks: list[datetime]) -> None:
        async with self._slots:
            for tick in ticks:
                if entry.id not in self._parts.book.ids:
                    return
                # Once Redis was unreachable in this round, fire no more ticks: each would wait for the
                # timeout.
                fired = (
                    FiringOutcome.UNREACHABLE if self._unreachable else await self._firing.fire(entry, tick)
                )
                if fired is not FiringOutcome.DONE:
                    self._failed = True
                    self._unreachable = fired is FiringOutcome.UNREACHABLE
                    return

    def _now(self) -> datetime:
        return self._parts.redis_time.now().to_datetime()


class DueForwarder(Service):
    """Moves due tasks of some queues to pending, as the forwarders of workers do."""

    name = "forwarder"

    def __init__(self, parts: SchedulerParts) -> None:
        super().__init__(parts.events)
        self._parts = parts

    async def round(self) -> float:
        """Forward the due tasks of all queues; pause until the next one is due, 5 seconds at most."""
        parts = self._parts
        queues = parts.config.forward_queues
        results = await parts.driver.run_batch([forward(one, now=parts.clock.redis_now()) for one in queues])
        rest = _FORWARD_SECONDS
        failure: Exception | None = None
        for result in results:
            if isinstance(result, Exception):
                failure = failure or result
                continue
            parts.redis_time.learn(result.redis_now)
            if result.next_due is not None:
                rest = min(rest, max(_LEAST_FORWARD_SECONDS, result.next_due - result.redis_now.timestamp))
        if failure is not None:
            raise failure
        return rest


class EntriesHeartbeat(CallingService):
    """Publishes the entries for dashboards, reads which ticks other schedulers fired, deletes old ticks."""

    name = "scheduler heartbeat"

    def __init__(self, parts: SchedulerParts, ticker: Service) -> None:
        super().__init__(parts.events, parts.calls)
        self._parts = parts
        self._ticker = ticker
        self._interval = parse_seconds("heartbeat_interval", parts.config.heartbeat_interval)
        self._ttl = math.ceil(2 * self._interval)
        self._forget_at = -math.inf

    async def round(self) -> float:
        """Write the records of all entries, which expire after two intervals, and wake the ticker.

        Delete the histories of removed entries, and once a day the ticks that no scheduler needs.
        """
        parts, self.asked_at = self._parts, time.monotonic()
        entries = list(parts.book)
        failure = await parts.begin(entries)
        # The estimate of Redis' time was just corrected; the ticker may have computed its pause by a wrong
        # one.
        self._ticker.wake()
        records = [entry.record() for entry in entries]
        now = parts.clock.redis_now()
        await parts.driver.run(write_scheduler_entries(parts.scheduler_id, records, ttl=self._ttl, now=now))
        for entry_id in list(parts.book.removed):
            await parts.driver.run(clear_scheduler_history(entry_id))
            parts.book.removed.discard(entry_id)
        await self._forget()
        if failure is not None:
            raise failure
        return self._interval

    async def _forget(self) -> None:
        """Delete the ticks of entries that no scheduler has any more, once a day."""
        parts = self._parts
        if parts.clock.monotonic() < self._forget_at:
            return
        running = await parts.driver.run(list_schedulers(parts.clock.redis_now()))
        keep = {entry.id for scheduler in running for entry in scheduler.entries} | set(parts.book.ids)
        before = parts.redis_time.now().seconds - STATISTICS_SECONDS
        for queue in {entry.queue for entry in parts.book}:
            await parts.driver.run(forget_entries(queue, before=before, keep=keep))
        self._forget_at = parts.clock.monotonic() + _FORGET_INTERVAL

    async def leave(self) -> None:
        """Remove the entries, so that dashboards do not show a scheduler that is gone."""
        try:
            await self._parts.driver.run(clear_scheduler_entries(self._parts.scheduler_id))
        except PyasynqError as error:
            self.events.emit(RoundFailed(self.name, error, math.inf))
