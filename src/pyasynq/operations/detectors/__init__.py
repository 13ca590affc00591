"""The sixteen detectors of attention: pure functions of two snapshots, one for each kind of problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from .backlog import find_backlogs, find_late_queues, find_past_due, find_stalled_groups, find_unserved_queues
from .failures import find_failure_spikes, find_full_archives, find_orphans, find_poison, find_retry_storms
from .fleet import (
    find_blocked_loops,
    find_dropped_servers,
    find_gone_schedulers,
    find_ignored_limits,
    find_long_pauses,
)
from .redis import find_redis_dangers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyasynq.operations.finding import AttentionFinding
    from pyasynq.operations.snapshot import Snapshot
    from pyasynq.operations.thresholds import Thresholds

Detect: TypeAlias = "Callable[[Snapshot, Snapshot | None, Thresholds], Iterable[AttentionFinding]]"


class Detector(NamedTuple):
    """A detector, with the highest severity that its findings can have.

    Attributes:
        detect: function that finds the problems of a snapshot; the earlier snapshot is None if there is none.
        most_severe: highest severity of its findings, from 1 to 5.
    """

    detect: Detect
    most_severe: int


DETECTORS: Final[Mapping[str, Detector]] = {
    "no_consumers": Detector(find_unserved_queues, 5),
    "pending_age": Detector(find_late_queues, 4),
    "depth_anomaly": Detector(find_backlogs, 3),
    "past_due": Detector(find_past_due, 4),
    "group_stall": Detector(find_stalled_groups, 3),
    "orphans": Detector(find_orphans, 4),
    "poison": Detector(find_poison, 3),
    "retry_storm": Detector(find_retry_storms, 4),
    "fail_spike": Detector(find_failure_spikes, 4),
    "archive_full": Detector(find_full_archives, 2),
    "paused_long": Detector(find_long_pauses, 2),
    "consumers_dropped": Detector(find_dropped_servers, 5),
    "loop_blocked": Detector(find_blocked_loops, 4),
    "limits_ignored": Detector(find_ignored_limits, 4),
    "scheduler_gone": Detector(find_gone_schedulers, 4),
    "redis_danger": Detector(find_redis_dangers, 5),
}
"""Every detector by its name."""
