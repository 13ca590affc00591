"""Constants of the engine that users do not set. Tests shorten them."""

from __future__ import annotations

from dataclasses import dataclass

from pyasynq._wire.constants import LEASE_GRACE_SECONDS, LEASE_SECONDS, SERVER_RECORD_SECONDS


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Intervals and limits in seconds, sizes in bytes."""

    lease: int = LEASE_SECONDS
    heartbeat_interval: float = 5.0
    server_record_ttl: int = SERVER_RECORD_SECONDS
    syncer_interval: float = 5.0
    look_interval: float = 3.0
    """Interval in seconds of reading the state of all queues (a look), independent of Redis' reports."""
    own_slack: int = 5
    """Seconds from the end of a task's lease to its recovery, if a pyasynq worker had the task."""
    foreign_slack: int = LEASE_GRACE_SECONDS
    """Seconds from the end of a task's lease to its recovery, if a Go worker, which relies on it, had it."""
    unleased_grace: float = 10.0
    """Seconds for which an active task must be seen without a lease before it is recovered."""
    held_poll: float = 5.0
    """Longest interval in seconds between polls of a queue at its limit: stored limits may have changed."""
    sweep_interval: float = 0.25
    """Interval in seconds at which deadlines are checked."""
    watch_interval: float = 0.5
    """Interval in seconds at which the heartbeat's thread checks the event loop."""
    loop_blocked_after: float = 1.0
    loop_blocked_again: float = 10.0
    overdue_after: float = 1.0
    """Seconds past an attempt's deadline at which a handler that still runs is reported as overdue."""
    overdue_again: float = 60.0
    stuck_grace: float = 10.0
    """Grace period in seconds after the deadlines of handlers that hold all slots; then the worker ends."""
    shutdown_margin: float = 0.4
    """Seconds that services and the lifespan may take beyond the timeouts of a shutdown."""
    exit_margin: float = 0.7
    """Seconds that a shutdown may take beyond its timeouts; then the process exits, even if a step hangs."""
    silence_share: float = 0.1
    """Share of time in which a worker may run a suspect alone, so that a crash can be blamed on it."""
    silence_least: float = 1.0
    """Seconds of a suspect's first silence; at a share of 0.1 it begins 10 s after the last silence."""
    silence_longest: float = 10.0
    """Seconds of the longest silence; attempts that have run for longer are not waited for."""
    suspect_rest: float = 1.0
    """Seconds between two suspects that start while an attempt runs for longer than `silence_longest`."""
    keep_frames: bool = False
    """Whether handlers' errors keep their traceback after the attempt has been settled."""
    progress_interval: float = 0.5
    """Shortest interval in seconds between two writes of a task's progress."""
    unknown_pause: float = 5.0
    """Seconds for which a task without a handler here is left to other servers."""
    unknown_memory: float = 60.0
    """Seconds for which an idle server delays its calls to a queue with a task that it cannot handle."""
    unknown_head_start: float = 2.0
    """Delay in seconds of each call to a queue with a task that this server cannot handle.

    The delay is longer than an idle Go server's poll interval, 1.5 s.
    """
    forward_gap: float = 0.25
    """Shortest time in seconds between two rounds of the forwarder, so that many changes cause one round."""
    aggregation_interval: float = 7.0
    """Longest interval in seconds between checks of groups; shorter grace periods shorten it."""
    aggregations: int = 3
    """Number of groups aggregated at once."""
    aggregation_timeout: float = 1_800.0
    """Time limit of an aggregator in seconds: a coroutine is cancelled then, and a thread is overdue."""
    aggregation_first_rest: float = 1.0
    """Seconds of pause for a group after its first failure; further failures lengthen the pause."""
    aggregation_longest_rest: float = 60.0
    child_start_timeout: float = 60.0
    """Seconds until a child process must be able to call a handler; timeouts of tasks begin then."""
    max_clock_skew: float = 2.0
    event_buffer: int = 10_000
    """Largest number of events waiting to be published; more are dropped and counted."""
    events_at_once: int = 1_000
    publish_gap: float = 0.02
    """Seconds for which events are collected before they are published (write batching)."""
    event_error_bytes: int = 512
    error_message_bytes: int = 2_048
    trace_bytes: int = 16_384
    worker_payload_bytes: int = 4_096
    server_record_bytes: int = 1_048_576
    settle_bytes: int = 4_194_304
    prefetch_span: float = 0.02
    """Seconds within which a prefetched task should get a slot; this bounds how many are prefetched."""
    prefetch_patience: float = 0.05
    """Longest wait of a prefetched task for a slot, in seconds; then all waiting tasks are put back."""
    prefetch_bytes: int = 4_194_304
    """Total bytes of the messages of prefetched tasks above which no more tasks are prefetched."""

    @property
    def tolerated_outage(self) -> float:
        """Longest outage of Redis in seconds after which recovery goes on at once.

        A lease has at least 25 of its 30 s left when an outage begins, and a slack of 5 s after its end.
        So live workers have 10 s to renew their leases after an outage of 20 s.
        """
        return self.lease / 2 + self.own_slack


DEFAULT_ENGINE_SETTINGS = EngineSettings()
