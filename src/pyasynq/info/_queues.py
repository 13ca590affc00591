"""Descriptions of queues, their groups and their days."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyasynq.limits import UNLIMITED

from ._sequence import TupleSequence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime, timedelta

    from pyasynq.limits import QueueLimits


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """State of a queue in Redis, at the time of the query."""

    queue: str
    pending: int
    active: int
    scheduled: int
    retry: int
    archived: int
    completed: int
    aggregating: int
    """Number of tasks that wait in groups."""
    groups: int
    processed: int
    """Number of attempts that ended today (UTC), failed ones included."""
    failed: int
    """Number of attempts that failed today (UTC)."""
    processed_total: int
    failed_total: int
    latency: timedelta
    """Time for which the oldest pending task has waited; zero if none waits."""
    paused: bool
    timestamp: datetime
    """Time at which Redis was asked, aware."""
    paused_until: datetime | None = None
    """Time at which the pause ends by itself; None if it does not."""
    aggregating_at: datetime | None = None
    """Time at which counting `aggregating` began, for queues with over 1,000 groups; None means `timestamp`.

    Each query counts some more groups: 5,000 with `queue_info`, 500 with `queue_infos`. Until all groups were
    counted once, the number is an estimate.
    """
    memory_usage: int | None = None
    """Bytes, estimated from a sample of the tasks; None unless it was asked for."""
    memory_at: datetime | None = None
    """Time at which `memory_usage` was estimated."""
    due: int = 0
    """Number of scheduled and retry tasks that are due but that no server has forwarded to pending yet."""
    limits: QueueLimits = UNLIMITED
    """Limits stored by `set_queue_limits`; limits that servers declare are in `ServerInfo.limits`."""

    @property
    def size(self) -> int:
        """Number of tasks in all states."""
        return self.unfinished + self.archived + self.completed

    @property
    def unfinished(self) -> int:
        """Number of tasks that still have to run, or are running."""
        return self.pending + self.active + self.scheduled + self.retry + self.aggregating


@dataclass(frozen=True, slots=True)
class QueueInfos(TupleSequence[QueueInfo]):
    """States of many queues in Redis: a sequence of `QueueInfo` in the order of the queues' names.

    A queue that could not be read is in `unreadable` instead, so that the others are still described.
    """

    infos: tuple[QueueInfo, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Name of a queue, and the error that reading it gave."""
    as_of: datetime | None = None
    """Time up to which the replicas that were read have all writes of their primaries; None if unknown.

    None if primaries were read.
    """
    missing_rights: tuple[str, ...] = ()
    """Rights that the user lacks to see everything, as ACL rules name them: `+info` for `as_of`."""

    @property
    def _items(self) -> tuple[QueueInfo, ...]:
        return self.infos


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group of tasks that wait to be aggregated into one task."""

    name: str
    size: int
    """Number of tasks, not counting tasks that are being aggregated right now."""


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of the groups of a queue, in the order in which Redis lists them."""

    groups: tuple[GroupInfo, ...]
    cursor: str
    """Argument `cursor` of the call for the next page; empty at the end."""
    total: int
    """Number of groups of the queue."""


@dataclass(frozen=True, slots=True)
class DailyStatistics:
    """Attempts of a queue on one day, in UTC. The numbers are kept for 90 days."""

    queue: str
    day: date
    processed: int
    """Number of attempts that ended, failed ones included."""
    failed: int
