"""The sixteen detectors of attention: pure functions of two snapshots, one for each kind of problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

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

Detector: TypeAlias = "Callable[[Snapshot, Snapshot | None, Thresholds], Iterable[AttentionFinding]]"

DETECTORS: Final[Mapping[str, Detector]] = {
    "no_consumers": find_unserved_queues,
    "pending_age": find_late_queues,
    "depth_anomaly": find_backlogs,
    "past_due": find_past_due,
    "group_stall": find_stalled_groups,
    "orphans": find_orphans,
    "poison": find_poison,
    "retry_storm": find_retry_storms,
    "fail_spike": find_failure_spikes,
    "archive_full": find_full_archives,
    "paused_long": find_long_pauses,
    "consumers_dropped": find_dropped_servers,
    "loop_blocked": find_blocked_loops,
    "limits_ignored": find_ignored_limits,
    "scheduler_gone": find_gone_schedulers,
    "redis_danger": find_redis_dangers,
}
"""Every detector by its name."""
