"""Numbers of the engine that no user sets. Tests shorten them."""

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
    """How often all queues are looked at, whatever Redis reports."""
    own_slack: int = 5
    """How long after the end of its lease a task of a pyasynq worker is recovered."""
    foreign_slack: int = LEASE_GRACE_SECONDS
    """The same for the tasks of peers in Go, which count on it."""
    unleased_grace: float = 10.0
    """How long an active task must be seen without a lease before it is recovered."""
    held_poll: float = 5.0
    """How often a queue that a limit holds is asked at least: its stored limits may have changed."""
    sweep_interval: float = 0.25
    """How often deadlines are looked at."""
    watch_interval: float = 0.5
    """How often the heartbeat's thread looks at the event loop."""
    loop_blocked_after: float = 1.0
    loop_blocked_again: float = 10.0
    overdue_after: float = 1.0
    """How long after its deadline a handler that still runs is reported."""
    overdue_again: float = 60.0
    stuck_grace: float = 10.0
    """How long after their deadlines handlers may hold all slots."""
    shutdown_margin: float = 0.4
    """How long services and the lifespan may outlast the timeouts of a shutdown before they are given up."""
    exit_margin: float = 0.7
    """Seconds that a shutdown may take beyond its timeouts; then the process ends, even if a step hangs."""
    silence_share: float = 0.1
    """Share of a worker's time in which it may let nothing run alongside a suspect."""
    silence_least: float = 1.0
    """How long the first silence for a suspect may last, so it begins 10 s after the last one."""
    silence_longest: float = 10.0
    """How long any silence may last; attempts of this age are not waited for."""
    suspect_rest: float = 1.0
    """How long after one suspect the next one starts alongside such an attempt."""
    keep_frames: bool = False
    """Whether what handlers have raised keeps its traceback after the attempt has been settled."""
    progress_interval: float = 0.5
    """How often the progress of a task is written at most."""
    unknown_pause: float = 5.0
    """How long a task that this server has no handler for is left to others."""
    unknown_memory: float = 60.0
    """How long an idle server lets others be first at a queue in which it has met such a task."""
    unknown_courtesy: float = 2.0
    """By how much it does; an idle server in Go looks every 1.5 seconds at least."""
    forward_gap: float = 0.25
    """Changes of delayed tasks that come closer together cause one round."""
    aggregation_interval: float = 7.0
    """How often groups are looked at, at least; more often when their grace periods are shorter."""
    aggregations: int = 3
    """How many groups are aggregated at once."""
    aggregation_timeout: float = 1_800.0
    """How long an aggregator may take: a coroutine is cancelled then, and a thread is overdue."""
    aggregation_first_rest: float = 1.0
    """How long a group is left alone after the first failure; ever longer after those that follow."""
    aggregation_longest_rest: float = 60.0
    child_start_timeout: float = 60.0
    """How long a child process may take before it can call a handler; time-outs of tasks begin then."""
    max_clock_skew: float = 2.0
    event_buffer: int = 10_000
    """How many events wait to be published, at most; more are dropped and counted."""
    events_at_once: int = 1_000
    publish_gap: float = 0.02
    """How long events are collected before they are published."""
    event_error_bytes: int = 512
    error_message_bytes: int = 2_048
    trace_bytes: int = 16_384
    worker_payload_bytes: int = 4_096
    server_record_bytes: int = 1_048_576
    settle_bytes: int = 4_194_304
    prefetch_span: float = 0.02
    """Tasks that wait for a slot are so few that each is likely to get one in this time."""
    prefetch_patience: float = 0.05
    """How long a task waits for a slot at most; then all that wait are put back."""
    prefetch_bytes: int = 4_194_304
    """While the messages of tasks that wait for a slot are larger, no more are taken ahead."""


DEFAULT_ENGINE_SETTINGS = EngineSettings()
