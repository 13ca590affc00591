# Generated from src/pyasynq/operations/sweep.py by tools/unasync.py; change that file and run `make sync`.
"""The sweep: reads the state of all queues for viewers, and limits its own share of Redis' time.

A sweep runs only when a caller asks for a snapshot, so nothing is sent without a viewer. It lasts some
milliseconds for a hundred queues. The next sweep begins after at least two seconds, and after at least 50
times the duration of the last sweep. So one process takes at most 2 % of Redis' time, for any number of
queues. Until then, callers get the last snapshot.
"""

from __future__ import annotations

import time
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._broker import inspecting
from pyasynq._broker.queue_registry import queue_names
from pyasynq._redis.read_pairs import read_both_blocking
from pyasynq.errors import PyasynqError, RedisPermissionError, RedisReplyError, RedisUnavailableError
from pyasynq.operations.search_slots import SearchSlots
from pyasynq.operations.snapshot import (
    ACTIVITY_SPAN,
    NO_POISON,
    PoisonCount,
    QueueSnapshot,
    Snapshot,
    summarize_activity,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from pyasynq._broker.inspecting.vitals import QueueVitals, RedisHealth
    from pyasynq._redis.plan import Plan
    from pyasynq.info import QueueInfo, QueueInfos, SchedulerEntryInfo, ServerInfo
    from pyasynq.operations.sync._operator_inspector import OperatorInspector
    from pyasynq.operations.snapshot import Activity

INTERVAL: Final = 2.0
"""Shortest time between two sweeps, in seconds."""
LOAD_FACTOR: Final = 50
"""Minimum time until the next sweep, as a multiple of a sweep's duration: at most 2 % of Redis' time."""
_AT_ONCE: Final = 200
_GROUPS: Final = 2_000
"""Number of groups that a sweep examines, shared evenly by all queues; each queue has at least one."""
_MOST_GROUPS: Final = 50
"""Maximum number of groups that a sweep examines in one queue."""
_MOST_POISON: Final = 100
_POISON_SCAN: Final = 1_000
"""Maximum number of archived tasks that a sweep examines in one queue."""
_CRASHING_POSITIONS: Final = 50_000
"""Maximum number of archived tasks that a sweep reads in queues with counted poison tasks: up to 150 ms."""
_OTHER_POSITIONS: Final = 10_000
"""Maximum number of archived tasks that a sweep reads in the other queues: up to 30 ms."""
_KEPT: Final = timedelta(minutes=10)
_KEPT_GAP: Final = timedelta(minutes=1)


class _Archive(NamedTuple):
    """Figures of a queue's archive. If one of them changes, the poison tasks in it are counted again.

    Attributes:
        size: number of archived tasks.
        failed: number of attempts that failed.
        has_poisoned: whether the statistics count a poison task.
    """

    size: int
    failed: int
    has_poisoned: bool


_NOT_SEARCHED: Final = (_Archive(-1, -1, has_poisoned=False), NO_POISON)


class _Past(NamedTuple):
    """By queue: statistics of recent attempts by task type, and the number of poison tasks."""

    activity: Mapping[str, Mapping[str, Activity]]
    poison: Mapping[str, PoisonCount]


class _Signs(NamedTuple):
    """By queue: signs of stuck tasks, and the last ticks of schedules."""

    vitals: Mapping[str, QueueVitals]
    ticks: Mapping[str, Mapping[str, int]]


class _Fleet(NamedTuple):
    """Servers, entries of schedulers, the health of Redis, and whether a task type is declared `durable`."""

    servers: tuple[ServerInfo, ...]
    entries: tuple[SchedulerEntryInfo, ...]
    redis: tuple[RedisHealth, ...]
    wants_durability: bool


class Sweep:
    """Cache of snapshots of all queues and servers of one Redis, for all viewers of a process; thread-safe.

    Args:
        inspector: connection that reads from Redis.
        monotonic: monotonic clock in seconds, with which the duration of sweeps is measured.
    """

    def __init__(self, inspector: OperatorInspector, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._inspector = inspector
        self._monotonic = monotonic
        self._slot = SearchSlots(1)
        self._last: Snapshot | None = None
        self._next_at = 0.0
        self._earlier: deque[Snapshot] = deque()
        self._poison: dict[str, tuple[_Archive, PoisonCount]] = {}
        """By queue: figures of the archive when it was last searched, and the poison tasks found then."""

    def read(self) -> tuple[Snapshot, Snapshot | None]:
        """Return the newest snapshot, and an earlier one from up to ten minutes before, if there is one.

        Sweep first if the last snapshot is too old.

        Raises:
            RedisError: Redis cannot be reached.
        """
        snapshot = self._get_fresh()
        if snapshot is None:
            with self._slot.enter_blocking():
                # Another caller may have swept while this one waited.
                snapshot = self._get_fresh() or self._sweep()
        return snapshot, self._earlier[0] if self._earlier else None

    def _get_fresh(self) -> Snapshot | None:
        """Return the last snapshot; None if another sweep is due."""
        return self._last if self._monotonic() < self._next_at else None

    def _sweep(self) -> Snapshot:
        began = self._monotonic()
        try:
            snapshot = self._read(began)
        finally:
            # The rest before the next sweep also follows a failed sweep.
            ended = self._monotonic()
            self._next_at = ended + max(INTERVAL, LOAD_FACTOR * (ended - began))
        if self._last is not None:
            self._keep(self._last, snapshot)
        self._last = snapshot
        return snapshot

    def _keep(self, last: Snapshot, new: Snapshot) -> None:
        """Keep one snapshot a minute for ten minutes, with nothing but its servers."""
        if not self._earlier or last.at >= self._earlier[-1].at + _KEPT_GAP:
            self._earlier.append(Snapshot(last.at, last.seconds, servers=last.servers))
        while self._earlier and self._earlier[0].at < new.at - _KEPT:
            self._earlier.popleft()

    def _read(self, began: float) -> Snapshot:
        moment = self._inspector.now().to_datetime()
        # Modules that the second half imports are loaded while Redis describes the queues.
        (infos, past), (signs, fleet) = read_both_blocking(
            self._read_queues(moment), self._read_signs_and_fleet()
        )
        queues = {
            info.queue: QueueSnapshot(
                info,
                signs.vitals.get(info.queue),
                past.activity.get(info.queue, {}),
                past.poison.get(info.queue, NO_POISON),
                signs.ticks.get(info.queue, {}),
            )
            for info in infos
        }
        return Snapshot(
            moment,
            self._monotonic() - began,
            queues,
            infos.unreadable,
            fleet.servers,
            fleet.entries,
            fleet.redis,
            wants_durability=fleet.wants_durability,
        )

    def _read_queues(self, moment: datetime) -> tuple[QueueInfos, _Past]:
        """Return the counts of all queues, statistics of recent attempts by task type, and poison tasks."""
        infos = self._inspector.queue_infos()
        active = [info.queue for info in infos if info.processed_total]
        since = moment - ACTIVITY_SPAN
        series = self._inspector.attempt_series(*active, since=since, step=60) if active else []
        activity = summarize_activity(series, moment)
        return infos, _Past(activity, self._count_poison(infos, activity))

    def _read_signs_and_fleet(self) -> tuple[_Signs, _Fleet]:
        """Return signs of stuck tasks and ticks by queue; and servers, schedules and the health of Redis."""
        names = self._inspector.run(queue_names())
        found = self._read_vitals(names)
        fleet = self._read_fleet()
        ticks = {} if fleet.entries else self._read_ticks(names)
        return _Signs(found, ticks), fleet

    def _read_vitals(self, names: Sequence[str]) -> Mapping[str, QueueVitals]:
        """Return signs of stuck tasks by queue; queues that cannot be read are left out."""
        groups = _share(_GROUPS, len(names), _MOST_GROUPS)
        now = self._inspector.redis_now()
        vitals = inspecting.vitals
        found = self._run_all([vitals.read_vitals(name, groups=groups, now=now) for name in names])
        return {
            name: one for name, one in zip(names, found, strict=True) if isinstance(one, vitals.QueueVitals)
        }

    def _read_fleet(self) -> _Fleet:
        """Return servers, entries of schedulers, the health of Redis, and whether a type is durable."""
        vitals = inspecting.vitals
        records = self._run_all(
            self._inspector.run(vitals.find_server_records(self._inspector.redis_now()))
        )
        entries = self._inspector.scheduler_entries()
        health = self._run_all([vitals.read_redis_health(place) for place in self._inspector.places])
        return _Fleet(
            tuple(one for one in records if one is not None and not isinstance(one, Exception)),
            tuple(entries),
            tuple(one for one in health if isinstance(one, vitals.RedisHealth)),
            self._wants_durability(),
        )

    def _wants_durability(self) -> bool:
        """Return whether a published task type is declared as `durable`; False if types cannot be read."""
        try:
            return any(one.options.get("durable") for one in self._inspector.task_types())
        except (RedisPermissionError, RedisReplyError):
            return False

    def _run_all(self, plans: Sequence[Plan[Any]]) -> list[Any]:
        """Run plans, 200 in one pipeline; return a result or an error of Redis for each.

        Raises:
            RedisUnavailableError: no plan could reach Redis.
        """
        outcomes: list[Any] = []
        for first in range(0, len(plans), _AT_ONCE):
            outcomes += self._inspector.run_batch(plans[first : first + _AT_ONCE])
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, PyasynqError):
                raise outcome
        if outcomes and all(isinstance(outcome, RedisUnavailableError) for outcome in outcomes):
            raise outcomes[0]
        return outcomes

    def _read_ticks(self, names: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """Return the last ticks of schedules by queue; leave out queues whose ticks cannot be read."""
        found = self._run_all([inspecting.vitals.read_last_ticks(name) for name in names])
        return {name: one for name, one in zip(names, found, strict=True) if isinstance(one, dict)}

    def _count_poison(
        self, infos: Sequence[QueueInfo], activity: Mapping[str, Mapping[str, Activity]]
    ) -> Mapping[str, PoisonCount]:
        """Return the number of poison tasks by queue; search only archives that may have changed.

        Reading messages takes most of a sweep's time, so a sweep reads a limited number of archived tasks.
        The limit is higher for queues whose statistics count poison tasks. Other queues are searched as well:
        statistics can be switched off, and do not count imported tasks.
        """
        archives = {
            info.queue: _Archive(
                info.archived, info.failed_total, _has_poisoned(activity.get(info.queue, {}))
            )
            for info in infos
            if info.archived
        }
        known = {queue: self._poison.get(queue, _NOT_SEARCHED) for queue in archives}
        changed = {queue: archive for queue, archive in archives.items() if known[queue][0] != archive}
        crashing = [queue for queue, archive in changed.items() if archive.has_poisoned]
        others = [queue for queue, archive in changed.items() if not archive.has_poisoned]
        scans = {
            **dict.fromkeys(crashing, _share(_CRASHING_POSITIONS, len(crashing), _POISON_SCAN)),
            **dict.fromkeys(others, _share(_OTHER_POSITIONS, len(others), _POISON_SCAN)),
        }
        numbers = self._run_all(
            [
                inspecting.vitals.count_poison(queue, scan=scan, most=_MOST_POISON)
                for queue, scan in scans.items()
            ]
        )
        for (queue, scan), number in zip(scans.items(), numbers, strict=True):
            # After an error, keep the last number; the next sweep searches again.
            if not isinstance(number, Exception):
                is_whole = number < _MOST_POISON and scan >= archives[queue].size
                known[queue] = archives[queue], PoisonCount(number, is_whole=is_whole)
        self._poison = known
        return {queue: count for queue, (_, count) in known.items()}


def _share(positions: int, queues: int, most: int) -> int:
    """Return an equal share of these positions for each queue: at least 1, and at most `most`."""
    return min(most, max(1, positions // max(1, queues)))


def _has_poisoned(activity: Mapping[str, Activity]) -> bool:
    """Return whether the statistics of a queue count a poison task."""
    return any(one.recent.poisoned or one.before.poisoned for one in activity.values())
