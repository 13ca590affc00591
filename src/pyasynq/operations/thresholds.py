"""Thresholds of the attention detectors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of the attention detectors; times are in seconds.

    An objective that `Operator.set_wait_objective` has set for a queue overrides `wait_objective`.
    """

    wait_objective: float = 300.0
    """Longest time, in seconds, that the next task of a queue may be pending (service level objective)."""
    unserved_after: float = 30.0
    """Maximum seconds for which tasks may be pending in a queue without a server."""
    backlog_least: int = 1_000
    """Minimum number of pending tasks for a backlog; queues with fewer are not reported."""
    drain_after: float = 3_600.0
    """Maximum seconds that the pending tasks may take at the rate of the last ten minutes."""
    storm_least: int = 100
    """Minimum number of retried attempts in ten minutes for a retry storm."""
    spike_least: int = 20
    """Minimum number of failed attempts in ten minutes for a failure spike of a task type."""
    spike_share: float = 0.2
    """Minimum share of failed attempts, from 0 to 1, for a failure spike of a task type."""
    spike_factor: float = 3.0
    """Minimum ratio of the share of failures in the last ten minutes to that in the 110 minutes before."""
    archive_size: int = 9_999
    """Number of tasks that an archive keeps; the default of Asynq."""
    archive_share: float = 0.9
    """Minimum share of `archive_size`, from 0 to 1, for an archive to count as nearly full."""
    paused_after: float = 3_600.0
    """Maximum seconds for which a queue with pending tasks may be paused without an end time."""
    dropped_share: float = 0.5
    """Servers of a queue count as dropped if at most this share (0 to 1) of their earlier number is left."""
    blocked_after: float = 5.0
    """Maximum seconds for which an event loop may be blocked."""
    ticks_within: float = 7 * 86_400.0
    """Maximum seconds since the last tick of a schedule for the schedule to count as in use."""
    memory_share: float = 0.8
    """Maximum share of `maxmemory`, from 0 to 1, that Redis may use."""
    replica_lag: float = 10.0
    """Seconds without an acknowledgement after which a replica counts as lagging."""


DEFAULT_THRESHOLDS = Thresholds()
