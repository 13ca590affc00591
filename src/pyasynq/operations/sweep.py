"""The sweep: reads the state of all queues for viewers, and limits its own share of Redis' time.

A sweep runs only when a caller asks for a snapshot, so nothing is sent without a viewer. It lasts some
milliseconds for a hundred queues. The next one begins at the earliest after two seconds, and after 50 times
the duration of the last one: so one process takes at most 2 % of Redis' time, for any number of queues.
Callers in between get the last snapshot.
"""

from __future__ import annotations

import time
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pyasynq._broker.inspecting import vitals
from pyasynq.errors import PyasynqError, RedisPermissionError, RedisReplyError, RedisUnavailableError
from pyasynq.operations.selection import SearchSlots
from pyasynq.operations.snapshot import ACTIVITY_SPAN, QueueSnapshot, Snapshot, summarize_activity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyasynq._redis.plan import Plan
    from pyasynq.info import QueueInfo
    from pyasynq.operations.operator._door import Door

INTERVAL: Final = 2.0
"""Shortest time between two sweeps, in seconds."""
LOAD_FACTOR: Final = 50
"""Rest after a sweep as a multiple of its duration: it takes at most 2 % of Redis' time."""
_AT_ONCE: Final = 200
_MOST_POISON: Final = 100
_POISON_SCAN: Final = 1_000
_POISON_POSITIONS: Final = 50_000
"""Archived tasks that a sweep looks at in all queues: about an eighth of a second of Redis' time."""
_NOT_SEARCHED: Final = (-1, -1, 0)
_KEPT: Final = timedelta(minutes=10)
_KEPT_GAP: Final = timedelta(minutes=1)


class Sweep:
    """Cache of snapshots of all queues and servers of one Redis, for all viewers of a process; thread-safe.

    Args:
        door: connection that reads from Redis.
        monotonic: monotonic clock in seconds, with which the duration of sweeps is measured.
    """

    def __init__(self, door: Door, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._door = door
        self._monotonic = monotonic
        self._slot = SearchSlots(1)
        self._last: Snapshot | None = None
        self._next_at = 0.0
        self._earlier: deque[Snapshot] = deque()
        self._poison: dict[str, tuple[int, int, int]] = {}
        """Archived tasks, failed attempts and poison tasks of each queue at its last search."""

    async def read(self) -> tuple[Snapshot, Snapshot | None]:
        """Return the newest snapshot, and one from up to ten minutes before it if there is any.

        Sweep first if the last snapshot is too old.

        Raises:
            RedisError: Redis cannot be reached.
        """
        snapshot = self._get_fresh()
        if snapshot is None:
            with await self._slot.enter_async():
                # Another caller may have swept while this one waited.
                snapshot = self._get_fresh() or await self._sweep()
        return snapshot, self._earlier[0] if self._earlier else None

    def _get_fresh(self) -> Snapshot | None:
        """Return the last snapshot; None if it is too old."""
        return self._last if self._monotonic() < self._next_at else None

    async def _sweep(self) -> Snapshot:
        began = self._monotonic()
        try:
            snapshot = await self._read(began)
        finally:
            # A sweep that failed rests as well.
            ended = self._monotonic()
            self._next_at = ended + max(INTERVAL, LOAD_FACTOR * (ended - began))
        if self._last is not None:
            self._keep(self._last, snapshot)
        self._last = snapshot
        return snapshot

    def _keep(self, last: Snapshot, new: Snapshot) -> None:
        """Keep one snapshot of each minute for ten minutes, reduced to the servers."""
        if not self._earlier or last.at >= self._earlier[-1].at + _KEPT_GAP:
            self._earlier.append(Snapshot(last.at, last.seconds, servers=last.servers))
        while self._earlier and self._earlier[0].at < new.at - _KEPT:
            self._earlier.popleft()

    async def _read(self, began: float) -> Snapshot:
        now = self._door.now()
        infos = await self._door.queue_infos()
        names = [info.queue for info in infos]
        found = await self._run_all([vitals.read_vitals(name, now=self._door.redis_now()) for name in names])
        records = await self._run_all(
            await self._door.run(vitals.find_server_records(self._door.redis_now()))
        )
        entries = await self._door.scheduler_entries()
        active = [info.queue for info in infos if info.processed_total]
        moment = now.to_datetime()
        series = (
            await self._door.attempt_series(*active, since=moment - ACTIVITY_SPAN, step=60) if active else []
        )
        activity = summarize_activity(series, moment)
        ticks = {} if entries else await self._read_ticks(names)
        poison = await self._count_poison(infos)
        queues = {
            info.queue: QueueSnapshot(
                info,
                reading if isinstance(reading, vitals.QueueVitals) else None,
                activity.get(info.queue, {}),
                poison.get(info.queue, 0),
                ticks.get(info.queue, {}),
            )
            for info, reading in zip(infos, found, strict=True)
        }
        health = await self._run_all([vitals.read_redis_health(place) for place in self._door.places])
        return Snapshot(
            moment,
            self._monotonic() - began,
            queues,
            infos.unreadable,
            tuple(one for one in records if one is not None and not isinstance(one, Exception)),
            tuple(entries),
            tuple(one for one in health if isinstance(one, vitals.RedisHealth)),
            wants_durability=await self._wants_durability(),
        )

    async def _wants_durability(self) -> bool:
        """Return whether a published task type is declared as `durable`; False if they cannot be read."""
        try:
            return any(one.options.get("durable") for one in await self._door.task_types())
        except (RedisPermissionError, RedisReplyError):
            return False

    async def _run_all(self, plans: Sequence[Plan[Any]]) -> list[Any]:
        """Run plans, 200 in one pipeline; return a result or an error of Redis for each.

        Raises:
            RedisUnavailableError: no plan could reach Redis.
        """
        outcomes: list[Any] = []
        for first in range(0, len(plans), _AT_ONCE):
            outcomes += await self._door.run_batch(plans[first : first + _AT_ONCE])
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, PyasynqError):
                raise outcome
        if outcomes and all(isinstance(outcome, RedisUnavailableError) for outcome in outcomes):
            raise outcomes[0]
        return outcomes

    async def _read_ticks(self, names: Iterable[str]) -> Mapping[str, Mapping[str, int]]:
        """Return the last ticks of schedules by queue; those that cannot be read are left out."""
        queues = list(names)
        found = await self._run_all([vitals.read_last_ticks(name) for name in queues])
        return {name: one for name, one in zip(queues, found, strict=True) if isinstance(one, dict)}

    async def _count_poison(self, infos: Sequence[QueueInfo]) -> Mapping[str, int]:
        """Return the number of poison tasks by queue; search only archives that may have changed."""
        known = {info.queue: self._poison.get(info.queue, _NOT_SEARCHED) for info in infos if info.archived}
        changed = [
            info
            for info in infos
            if info.archived and known[info.queue][:2] != (info.archived, info.failed_total)
        ]
        scan = min(_POISON_SCAN, max(1, _POISON_POSITIONS // max(1, len(changed))))
        numbers = await self._run_all(
            [vitals.count_poison(info.queue, scan=scan, most=_MOST_POISON) for info in changed]
        )
        for info, number in zip(changed, numbers, strict=True):
            # After an error the last number stays, and the next sweep searches again.
            if not isinstance(number, Exception):
                known[info.queue] = (info.archived, info.failed_total, number)
        self._poison = known
        return {queue: number for queue, (_, _, number) in known.items()}
