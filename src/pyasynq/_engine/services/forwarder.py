"""Forwarder service: moves scheduled and retry tasks to pending when they are due."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasynq._background.service import Service
from pyasynq._broker.delayed import forward
from pyasynq._checks import parse_seconds
from pyasynq._engine.queue_failures import QueueFailures
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._broker.delayed import Forwarded
    from pyasynq._broker.queue_readings import QueueReading
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._redis.key_watcher import Watcher


@dataclass(slots=True, eq=False)
class _Delayed:
    """Known state of the scheduled and retry tasks of one queue.

    Attributes:
        keys: keys of the sorted sets.
        is_watched: whether Redis reports the next change of both keys.
        next_due: Unix time at which the next task is due; infinity for none.
        due_at: `next_due` as monotonic time; in the past if the queue is to be asked now.
        reading: the queue's last processed `QueueReading`, or the error of reading it.
    """

    keys: tuple[str, str]
    is_watched: bool = False
    next_due: float = math.inf
    due_at: float = math.inf
    reading: QueueReading | Exception | None = None


class Forwarder(Service):
    """Calls Redis for queues in which a task is due, or whose delayed tasks have changed.

    It knows the due time of the next task from its last call, and from the reading of all queues. Redis
    reports changes. If a reading shows another due time, a report was lost: the queue is watched again.

    Args:
        queues: returns the names of the queues that it works on.
        changed: keys of delayed tasks whose changes Redis has reported; all forwarders take from it.
    """

    name = "forwarder"

    def __init__(
        self, parts: Parts, queues: Callable[[], Sequence[str]], watcher: Watcher, changed: set[str]
    ) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._queues = queues
        self._changed = changed
        self._failures = QueueFailures(self, parts.clock)
        self._watcher = watcher
        self._longest = parse_seconds("delayed_task_check_interval", parts.config.delayed_task_check_interval)
        self._last_call = float("-inf")
        self._delayed: dict[str, _Delayed] = {}

    async def round(self) -> float:
        """Forward the due tasks of the queues."""
        parts = self._parts
        gap = self._last_call + parts.settings.forward_gap - parts.clock.monotonic()
        if gap > 0:
            # Many tasks that are scheduled in a row cause one round.
            return gap
        queues = self._queues()
        self._delayed = {name: self._delayed.get(name) or _make_delayed(name) for name in queues}
        ready = self._failures.ready(queues)
        self._note_changes()
        self._note_readings()
        await self._watch(ready)
        now = parts.clock.monotonic()
        await self._forward([name for name in ready if self._delayed[name].due_at <= now])
        return self._seconds_to_rest(ready)

    def _note_changes(self) -> None:
        if not self._changed:
            return
        for one in self._delayed.values():
            if not self._changed.isdisjoint(one.keys):
                self._changed.difference_update(one.keys)
                one.is_watched = False

    def _note_readings(self) -> None:
        """Update the due times from the latest `QueueReading` of each queue."""
        board, now = self._parts.board, self._parts.clock.monotonic()
        for name, one in self._delayed.items():
            reading = board.known[name].reading
            if reading is one.reading or reading is None:
                continue
            one.reading = reading
            if isinstance(reading, Exception):
                # The error may concern other keys, so ask the queue.
                one.due_at = now
                continue
            if reading.next_due != one.next_due and one.is_watched:
                self._watcher.forget(*one.keys)
                one.is_watched = False
            one.next_due = reading.next_due
            one.due_at = now + reading.next_due - reading.redis_now.timestamp

    async def _watch(self, ready: Sequence[str]) -> None:
        """Watch the unwatched queues; the reply to a new watch also shows whether tasks are delayed now."""
        unwatched = [self._delayed[name] for name in ready if not self._delayed[name].is_watched]
        if not unwatched or not await self._watcher.arm(*[key for one in unwatched for key in one.keys]):
            return
        now = self._parts.clock.monotonic()
        for one in unwatched:
            one.is_watched = True
            if any(map(self._watcher.exists, one.keys)):
                one.due_at = now
            else:
                one.next_due = one.due_at = math.inf

    async def _forward(self, queues: Sequence[str]) -> None:
        if not queues:
            return
        parts = self._parts
        results = await parts.driver.run_batch([forward(one, now=parts.clock.redis_now()) for one in queues])
        for name, result in self._failures.answers(queues, results):
            parts.redis_time.learn(result.redis_now)
            self._note_answer(self._delayed.get(name), result)
        # The gap applies only after a successful call; after a failure the back-off decides.
        self._last_call = parts.clock.monotonic()

    def _note_answer(self, one: _Delayed | None, result: Forwarded) -> None:
        if one is None:
            return
        one.next_due = math.inf if result.next_due is None else result.next_due
        one.due_at = self._parts.clock.monotonic() + one.next_due - result.redis_now.timestamp

    def _seconds_to_rest(self, ready: Sequence[str]) -> float:
        due_at = min([self._delayed[name].due_at for name in ready], default=math.inf)
        return max(0.0, min(self._longest, due_at - self._parts.clock.monotonic()))


def is_delayed_key(key: str) -> bool:
    """Return whether this is the key of the scheduled or the retried tasks of a queue."""
    return key.endswith((":scheduled", ":retry"))


def _make_delayed(queue: str) -> _Delayed:
    keys = queue_keys(queue)
    return _Delayed((keys.scheduled, keys.retry))
