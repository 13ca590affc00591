"""Entries of one scheduler, and the stored ticks they start from."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from pyasynq._broker.schedules import begin_entries
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import ScheduleNotFoundError
from pyasynq.events import FutureTickIgnored, TicksMissed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyasynq._background.redis_time import RedisTime
    from pyasynq._clock import Clock
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq._scheduler.entry import ScheduleEntry
    from pyasynq.events import Events


class EntryBook:
    """Entries by id, in the order of registration. Used by the scheduler's event loop only.

    Attributes:
        removed: ids whose history is to be cleared.
    """

    def __init__(self, events: Events) -> None:
        self.removed: set[str] = set()
        self._entries: dict[str, ScheduleEntry] = {}
        self._predecessors: dict[str, str] = {}
        """Old entries by the id of their replacement, which still has to inherit their ticks."""
        self._events = events

    def __iter__(self) -> Iterator[ScheduleEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def ids(self) -> Collection[str]:
        """The ids of all entries."""
        return self._entries.keys()

    def add(self, entry: ScheduleEntry) -> None:
        """Add an entry with a new id."""
        self._entries[entry.id] = entry
        self.removed.discard(entry.id)

    def remove(self, entry_id: str) -> None:
        """Remove an entry.

        Raises:
            ScheduleNotFoundError: when there is none with this id.
        """
        if entry_id not in self._entries:
            raise ScheduleNotFoundError(entry_id)
        del self._entries[entry_id]
        self._predecessors.pop(entry_id, None)
        self.removed.add(entry_id)

    def replace(
        self, leaving: Sequence[str], joining: Sequence[ScheduleEntry], predecessors: Mapping[str, str]
    ) -> None:
        """Remove entries and add others; raise `ScheduleNotFoundError` before anything changes.

        `predecessors` maps some of the new ids to the entries whose ticks they inherit.
        """
        for entry_id in leaving:
            if entry_id not in self._entries:
                raise ScheduleNotFoundError(entry_id)
        # If an old entry never began and replaced an older one itself, that one has the ticks.
        origins = {new: self._predecessors.get(old, old) for new, old in predecessors.items() if new != old}
        for entry_id in leaving:
            self.remove(entry_id)
        for entry in joining:
            self.add(entry)
        self._predecessors |= origins

    async def begin(
        self,
        entries: Sequence[ScheduleEntry],
        driver: AsyncDriver,
        redis_time: RedisTime,
        clock: Clock,
    ) -> Exception | None:
        """Read the stored ticks of entries, and continue their timetables; return an error, if any.

        For a new entry, Redis stores the time from which its ticks count. Redis' time corrects `redis_time`.

        Each cluster node is asked separately: its time would be stale after a wait for other nodes.
        """
        by_node: defaultdict[str, list[ScheduleEntry]] = defaultdict(list)
        for entry in entries:
            by_node[driver.find_node(queue_keys(entry.queue).pending)].append(entry)
        failures = await asyncio.gather(
            *(self._begin(some, driver, redis_time, clock) for some in by_node.values())
        )
        return next((failure for failure in failures if failure is not None), None)

    async def _begin(
        self,
        entries: Sequence[ScheduleEntry],
        driver: AsyncDriver,
        redis_time: RedisTime,
        clock: Clock,
    ) -> Exception | None:
        by_queue: defaultdict[str, list[ScheduleEntry]] = defaultdict(list)
        for entry in entries:
            by_queue[entry.queue].append(entry)
        plans = [
            begin_entries(
                queue,
                [entry.id for entry in some],
                predecessors=self._predecessors,
                now=clock.redis_now(),
            )
            for queue, some in by_queue.items()
        ]
        failure = None
        outcomes = await driver.run_batch(plans) if plans else []
        for outcome, some in zip(outcomes, by_queue.values(), strict=True):
            if isinstance(outcome, Exception):
                failure = outcome
                continue
            redis_time.learn(outcome.redis_now)
            now = redis_time.now().to_datetime()
            for entry, ticks in zip(some, outcome.ticks, strict=True):
                self._predecessors.pop(entry.id, None)
                learned = entry.timetable.begin(ticks, now)
                if learned.missed is not None:
                    self._events.emit(TicksMissed(entry.id, entry.spec, entry.task.type, learned.missed))
                if learned.ignored is not None:
                    self._events.emit(
                        FutureTickIgnored(entry.id, entry.spec, entry.task.type, learned.ignored)
                    )
        return failure
