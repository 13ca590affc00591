"""Thresholds of the attention detectors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of the attention detectors; times are in seconds.

    A queue's own `wait_objective`, set by `Operator.set_wait_objective`, overrides the one here.
    """

    wait_objective: float = 300.0
    """Longest time that the next task of a queue may be pending."""
    unserved_after: float = 30.0
    """Time for which tasks may be pending in a queue that no server takes from."""
    backlog_least: int = 1_000
    """Smallest number of pending tasks of a backlog."""
    drain_after: float = 3_600.0
    """Time that the pending tasks may take at the recent rate."""
    storm_least: int = 100
    """Smallest number of retried attempts, in ten minutes, of a retry storm."""
    spike_least: int = 20
    """Smallest number of failed attempts, in ten minutes, of a spike of failures."""
    spike_share: float = 0.2
    """Smallest share of failed attempts of a spike."""
    spike_factor: float = 3.0
    """Smallest factor between the share of failures now and before."""
    archive_size: int = 9_999
    """Number of tasks that an archive keeps; the default of Asynq."""
    archive_share: float = 0.9
    """Share of `archive_size` from which an archive counts as nearly full."""
    paused_after: float = 3_600.0
    """Time for which a queue with tasks may be paused."""
    dropped_share: float = 0.5
    """Share of the servers of ten minutes ago below which servers count as dropped."""
    blocked_after: float = 5.0
    """Time for which an event loop may be blocked."""
    ticks_within: float = 7 * 86_400.0
    """Time since its last tick within which a schedule counts as still in use."""
    memory_share: float = 0.8
    """Share of `maxmemory` that Redis may use."""
    replica_lag: float = 10.0
    """Seconds without an acknowledgement after which a replica counts as lagging."""


DEFAULT_THRESHOLDS = Thresholds()
