"""Snapshots of one Redis instance: queues, servers, schedules and the health of Redis at one time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq.telemetry import NO_ATTEMPTS, AttemptCounts, sum_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from pyasynq._broker.inspecting.vitals import QueueVitals, RedisHealth
    from pyasynq.info import QueueInfo, SchedulerEntryInfo, ServerInfo
    from pyasynq.telemetry import AttemptSeries

RECENT: Final = timedelta(minutes=10)
"""Age up to which attempts count as recent, for comparison with the 110 minutes before."""
ACTIVITY_SPAN: Final = timedelta(hours=2)
"""Age up to which attempts are read; one-minute counts in the statistics are kept for this long."""


class Activity(NamedTuple):
    """Attempts of one task type in a queue, from the statistics of pyasynq workers.

    Attributes:
        recent: counts of attempts of the last ten minutes.
        before: counts of attempts of the 110 minutes before these.
        seconds: seconds since the first of these ten minutes with an attempt; 0 if there is none.
    """

    recent: AttemptCounts = NO_ATTEMPTS
    before: AttemptCounts = NO_ATTEMPTS
    seconds: float = 0.0


class PoisonCount(NamedTuple):
    """Poison tasks that were found among the newest archived tasks of a queue.

    Attributes:
        number: number of poison tasks found, at most 100.
        is_whole: whether all archived tasks were examined, so that the number is exact.
    """

    number: int = 0
    is_whole: bool = True


NO_POISON: Final = PoisonCount()


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """State of one queue."""

    info: QueueInfo
    vitals: QueueVitals | None = None
    """Signs of stuck tasks; None if they could not be read."""
    activity: Mapping[str, Activity] = field(default_factory=dict)
    """Attempts by task type."""
    poison: PoisonCount = NO_POISON
    """Poison tasks among the newest archived tasks."""
    last_ticks: Mapping[str, int] = field(default_factory=dict)
    """Last tick of each schedule, in Unix seconds; read only while no scheduler runs."""

    @property
    def queue(self) -> str:
        """Name of the queue."""
        return self.info.queue

    @property
    def total(self) -> Activity:
        """Attempts of all task types together."""
        if not self.activity:
            return Activity()
        every = self.activity.values()
        return Activity(
            sum_counts(one.recent for one in every),
            sum_counts(one.before for one in every),
            max((one.seconds for one in every), default=0.0),
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of one Redis instance at one time, as read by one sweep."""

    at: datetime
    seconds: float
    """Duration of the sweep in seconds. The next sweep begins after at least 50 times this duration."""
    queues: Mapping[str, QueueSnapshot] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Queues that could not be read: the reason by queue name."""
    servers: tuple[ServerInfo, ...] = ()
    """Live servers, without the tasks they run."""
    entries: tuple[SchedulerEntryInfo, ...] = ()
    """Entries of running schedulers."""
    redis: tuple[RedisHealth, ...] = ()
    """Health of each primary, as far as the Redis user may call INFO."""
    wants_durability: bool = False
    """Whether a published task type is declared as `durable`."""

    def count_servers(self) -> dict[str, int]:
        """Return the number of servers that take tasks from each queue."""
        counts: dict[str, int] = {}
        for server in self.servers:
            if server.status == "active":
                for queue in server.queues:
                    counts[queue] = counts.get(queue, 0) + 1
        return counts


def summarize_activity(series: Iterable[AttemptSeries], now: datetime) -> dict[str, dict[str, Activity]]:
    """Count the attempts by queue and type; `now` divides them into recent and earlier ones."""
    found: dict[str, dict[str, Activity]] = {}
    since = now - RECENT
    for one in series:
        recent = [point for point in one.points if point.at > since]
        before = [point for point in one.points if point.at <= since]
        seconds = (now - recent[0].at).total_seconds() if recent else 0.0
        found.setdefault(one.queue, {})[one.type] = Activity(
            sum_counts(point.counts for point in recent),
            sum_counts(point.counts for point in before),
            seconds,
        )
    return found
