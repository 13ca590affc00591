"""Queue look service: polls the state of all queues, so that scripts are called only where they have work."""

from __future__ import annotations

import contextlib
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyasynq._background.service import Service
from pyasynq._backoff import Backoff
from pyasynq._broker.queue_readings import HEADS, QueueReader, QueueReading, decode_reading, read_time
from pyasynq._broker.queue_registry import queue_exists
from pyasynq._broker.registrar_async import AsyncRegistrar
from pyasynq._checks import parse_seconds
from pyasynq._clock import Instant
from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS
from pyasynq._engine.take.queue_state import Key
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import PyasynqError
from pyasynq.events import QueueChanged, QueuesAsked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.take.queue_board import ServedQueue
    from pyasynq._redis.key_watcher import Watcher
    from pyasynq._redis.plan import Plan

_REGISTER_SECONDS: Final = 60.0
"""Seconds between registrations of all queue names, in case a client died before it registered one."""
_RETRY_SECONDS: Final = 1.0
"""Seconds between two attempts to read unreachable queues."""


class QueueLook(Service):
    """Polls the state of all queues every three seconds; one such poll is a look.

    A look takes one pipeline while queues stay empty or stay in use. It is the fallback for lost reports of
    changed keys (CLIENT TRACKING): changes already reported cost nothing here. A queue that cannot be read
    does not fail the round unless all are unreachable: other services call their scripts for it, and report
    the error. The service also registers queues, and forgets removed ones when all their attempts have ended.

    Args:
        queues: returns the names of the queues to read.
        on_look: called with the node after a look in which any queue could be read.
        on_find: called when a look found a queue to ask or to watch.
    """

    name = "queue_look"

    def __init__(
        self,
        parts: Parts,
        queues: Callable[[], Sequence[str]],
        watcher: Watcher,
        *,
        on_look: Callable[[str], object],
        on_find: Callable[[], object],
    ) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._queues = queues
        self._watcher = watcher
        self._on_look = on_look
        self._on_find = on_find
        self._registrar = AsyncRegistrar(parts.driver)
        self._readers: dict[str, QueueReader] = {}
        self._used: set[str] = set()
        """Queues that had any key at the last look: all their commands go into the first pipeline."""
        longest = parse_seconds("delayed_task_check_interval", parts.config.delayed_task_check_interval)
        self._interval = parts.settings.look_interval
        if longest < DEFAULT_ENGINE_SETTINGS.look_interval:
            # The user has set a shorter interval for checks of delayed tasks, which a look includes.
            self._interval = min(self._interval, longest)
        self._next_look = self._register_at = parts.clock.monotonic()
        # The retry interval is short, so that a worker is ready soon after Redis is back.
        self._backoff = Backoff(longest=_RETRY_SECONDS)

    async def enter(self) -> None:
        """Read all queues before other services start, which then call no scripts for empty queues."""
        # The first round gets the same error, and reports it.
        with contextlib.suppress(PyasynqError):
            self.first_rest = await self.round()

    async def round(self) -> float:
        """Read all queues when a look is due; otherwise retry only new and unreachable ones."""
        parts = self._parts
        self._forget_removed()
        known, now = parts.board.known, parts.clock.monotonic()
        served = queues = [known[name] for name in self._queues()]
        if now >= self._next_look:
            self._next_look = now + self._interval
            self._readers = {one.name: self._readers[one.name] for one in queues if one.name in self._readers}
            self._used &= self._readers.keys()
        else:
            queues = [one for one in served if one.reading is None or not one.is_reachable]
        if queues:
            asked_at = time.monotonic()
            await self._look(queues, registers=queues is served and now >= self._register_at)
            self.asked_at = asked_at if any(queue.is_reachable for queue in queues) else None
        if served and not any(queue.is_reachable for queue in served):
            assert isinstance(served[0].reading, Exception)  # noqa: S101 - it is unreachable
            raise served[0].reading
        rest = self._next_look - parts.clock.monotonic()
        is_complete = all(queue.is_reachable for queue in served)
        return max(0.0, rest if is_complete else min(rest, _RETRY_SECONDS))

    def _forget_removed(self) -> None:
        """Forget removed queues whose attempts have all ended."""
        parts = self._parts
        for queue in parts.board.forget_removed(attempt.queue for attempt in parts.roster):
            self._watcher.forget(*queue.keys.values(), queue_keys(queue.name).scheduled)
            self.events.emit(QueueChanged(parts.server_id, queue.name, "ended"))

    async def _look(self, queues: Sequence[ServedQueue], *, registers: bool) -> None:
        board = self._parts.board
        is_found = self._watch_moved(queues)
        changes = [queue.state.changes for queue in queues]
        await self._read(queues, registers=registers)
        for queue, before in zip(queues, changes, strict=True):
            is_found |= self._note(queue, before)
        unreachable = board.unreachable()
        self.events.emit(QueuesAsked(self._parts.server_id, len(board.queues), unreachable))
        if any(queue.is_reachable for queue in queues):
            self._on_look(self.node)
        if is_found:
            self._on_find()

    def _watch_moved(self, queues: Sequence[ServedQueue]) -> bool:
        """Have queues that moved to this node watched again, as the old node reports nothing more.

        Return whether any queue has moved.
        """
        is_found = False
        for queue in queues:
            if queue.name not in self._readers:
                self._readers[queue.name] = QueueReader(queue.name)
                if queue.reading is not None:
                    self._watcher.forget(*queue.watched_keys)
                    self._parts.board.watch_lost(queue.keys[Key.PENDING])
                    is_found = True
        return is_found

    async def _read(self, queues: Sequence[ServedQueue], *, registers: bool) -> None:
        """Read queues, in one pipeline unless a queue has keys for the first time."""
        readers = self._readers
        used = [queue for queue in queues if queue.name in self._used]
        plans: list[Plan[Any]] = [readers[queue.name].exists() for queue in queues]
        plans += [plan for queue in used for plan in readers[queue.name].heads()]
        plans += [queue_exists(queue.name) for queue in queues] if registers else []
        clock, began = self._parts.clock, self._parts.clock.monotonic()
        # TIME comes last: after a long pipeline the first reply is already old when it is read.
        *replies, time = await self._parts.driver.run_batch([*plans, read_time(queues[0].name)])
        ended, tolerated = clock.monotonic(), self._parts.settings.tolerated_outage
        redis_now = self._learn(time)
        heads = iter(replies[len(queues) :])
        empty = QueueReading(redis_now)
        newly_used = []
        for queue, keys in zip(queues, replies[: len(queues)], strict=True):
            own_heads = list(islice(heads, HEADS)) if queue.name in self._used else []
            is_reachable = not isinstance(keys, Exception)
            queue.looked_at(began, ended, is_reachable=is_reachable, tolerated=tolerated)
            if isinstance(keys, Exception):
                queue.reading = keys
            elif own_heads:
                queue.reading = decode_reading(own_heads, redis_now)
            elif keys:
                newly_used.append(queue)
            else:
                queue.reading = empty
            if keys == 0:
                self._used.discard(queue.name)
        if registers:
            self._register_at = clock.monotonic() + _REGISTER_SECONDS
            answers = zip(queues, heads, strict=True)
            self._registrar.register([queue.name for queue, exists in answers if exists is True])
        if newly_used:
            await self._read_more(newly_used, redis_now)

    async def _read_more(self, queues: Sequence[ServedQueue], redis_now: Instant) -> None:
        plans = [plan for queue in queues for plan in self._readers[queue.name].heads()]
        replies = iter(await self._parts.driver.run_batch(plans))
        for queue in queues:
            queue.reading = decode_reading(list(islice(replies, HEADS)), redis_now)
        self._used.update(queue.name for queue in queues)

    def _learn(self, time: Any) -> Instant:
        """Correct the estimate of Redis' clock by the reply to TIME; return Redis' time at the look."""
        parts = self._parts
        given = parts.clock.redis_now()
        if given is not None or isinstance(time, Exception):
            return parts.redis_time.now() if given is None else given
        redis_now = Instant(int(time[0]), int(time[1]))
        parts.redis_time.learn(redis_now)
        return redis_now

    def _note(self, queue: ServedQueue, changes: int) -> bool:
        """Pass a queue's reading to the queue board; return whether the queue must be asked or watched."""
        if not queue.is_reachable or not queue.is_served:
            return False
        # A reachable queue that cannot be read may have tasks.
        has_tasks = not isinstance(queue.reading, QueueReading) or queue.reading.has_tasks
        if not has_tasks and self._parts.config.burst:
            # A burst ends when all queues have been asked.
            return False
        is_news = self._parts.board.looked(queue, has_tasks=has_tasks, changes=changes)
        if is_news and has_tasks:
            self._watcher.forget(*queue.watched_keys)
        return is_news

    async def leave(self) -> None:
        """Stop registering queues."""
        await self._registrar.close()
