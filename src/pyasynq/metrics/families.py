"""Table of all metrics: name, type, labels and help text of each family.

Collectors fill these families, and docs/metrics.md is generated from the table.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from pyasynq.telemetry import ATTEMPT_SECONDS


class MetricType(enum.StrEnum):
    """Metric type of a family, as in Prometheus: counter, gauge or histogram."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Origin(enum.Enum):
    """Kind of process that measures a family."""

    ASYNQ = "`pyasynq metrics`, with the names of Asynq's exporter"
    QUEUES = "`pyasynq metrics`"
    WORKER = "a worker with `--metrics`"
    SUPERVISOR = "a worker with `--metrics` and `--processes`"
    SCHEDULER = "a worker with `--metrics` and `--with-scheduler`"
    CLIENT = "a program that enqueues, with `EnqueueMetrics`"
    SERVICE = "`pyasynq service`"


@dataclass(frozen=True, slots=True)
class Family:
    """Definition of one metric (metric family).

    Attributes:
        name: with the suffix `_total` of counters.
        kind: type of the metric.
        help: help text of the metric.
        labels: names of its labels.
        origin: kind of process that measures it.
        bounds: upper bounds of a histogram's buckets, without infinity.
        is_shared: whether all processes measure the same value. Their gauges are then merged by maximum
            instead of sum.
    """

    name: str
    kind: MetricType
    help: str
    labels: tuple[str, ...]
    origin: Origin
    bounds: tuple[float, ...] = ()
    is_shared: bool = False


RUN_SECONDS: Final = tuple(one for one in ATTEMPT_SECONDS if 0.005 <= one <= 600 and one not in {20, 120})
"""Bounds of histogram buckets for run times: 5 ms to 10 minutes, in seconds."""
WAIT_SECONDS: Final = tuple(one for one in ATTEMPT_SECONDS if 0.05 <= one <= 1_800 and one != 1_200)
"""Bounds of histogram buckets for wait times: 50 ms to 30 minutes, in seconds."""
_SHORT_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_REQUEST_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
_SIZES: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0)


def _gauge(name: str, text: str, *labels: str, origin: Origin = Origin.QUEUES) -> Family:
    return Family(name, MetricType.GAUGE, text, labels, origin)


def _counter(name: str, text: str, *labels: str, origin: Origin = Origin.WORKER) -> Family:
    return Family(name, MetricType.COUNTER, text, labels, origin)


def _histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Family:
    return Family(name, MetricType.HISTOGRAM, text, labels, Origin.WORKER, bounds)


_ASYNQ: Final = (
    _gauge(
        "asynq_tasks_enqueued_total",
        "Number of tasks enqueued; broken down by queue and state.",
        "queue",
        "state",
        origin=Origin.ASYNQ,
    ),
    _gauge("asynq_queue_size", "Number of tasks in a queue", "queue", origin=Origin.ASYNQ),
    _gauge(
        "asynq_queue_latency_seconds",
        "Number of seconds the oldest pending task is waiting in pending state to be processed.",
        "queue",
        origin=Origin.ASYNQ,
    ),
    _gauge(
        "asynq_queue_memory_usage_approx_bytes",
        "Number of memory used by a given queue (approximated number by sampling).",
        "queue",
        origin=Origin.ASYNQ,
    ),
    _counter(
        "asynq_tasks_processed_total",
        "Number of tasks processed (both succeeded and failed); broken down by queue",
        "queue",
        origin=Origin.ASYNQ,
    ),
    _counter(
        "asynq_tasks_failed_total",
        "Number of tasks failed; broken down by queue",
        "queue",
        origin=Origin.ASYNQ,
    ),
    _gauge("asynq_queue_paused_total", "Number of queues paused", "queue", origin=Origin.ASYNQ),
)
_QUEUES: Final = (
    _gauge("pyasynq_redis_up", "1 if Redis could be read for this answer, else 0."),
    _gauge("pyasynq_sweep_seconds", "Time that reading all queues took."),
    _gauge("pyasynq_sweep_age_seconds", "Age of the figures, which are read again only so often."),
    _gauge("pyasynq_unreadable_queues", "Number of queues that could not be read."),
    _gauge(
        "pyasynq_queue_tasks",
        "Number of tasks in a queue by state; also those that wait in groups.",
        "queue",
        "state",
    ),
    _gauge(
        "pyasynq_queue_due_tasks",
        "Number of scheduled and retry tasks that are due and not forwarded to pending.",
        "queue",
    ),
    _gauge("pyasynq_queue_groups", "Number of groups that have tasks.", "queue"),
    _gauge("pyasynq_queue_consumers", "Number of live servers that serve a queue and take tasks.", "queue"),
    _gauge(
        "pyasynq_queue_slots",
        "Number of tasks that the servers of a queue can run at once, shared with their other queues.",
        "queue",
    ),
    _gauge(
        "pyasynq_queue_load",
        "Active, pending and due tasks of a queue for each slot; without slots, the number of these tasks.",
        "queue",
    ),
    _gauge("pyasynq_queue_max_run", "Limit of tasks of a queue that run at once, if it has one.", "queue"),
    _gauge(
        "pyasynq_queue_wait_objective_seconds",
        "How long the next task of a queue may be pending; only with --attention.",
        "queue",
    ),
    _gauge("pyasynq_schedules", "Number of periodic tasks of running schedulers."),
    _gauge("pyasynq_schedules_overdue", "Number of periodic tasks whose tick is a minute late or more."),
    _gauge(
        "pyasynq_attention",
        "Highest severity, 1 to 5, of what needs attention and is not snoozed; only with --attention.",
        "detector",
        "queue",
    ),
    _gauge("pyasynq_servers", "Number of live servers.", "engine"),
    _gauge("pyasynq_redis_memory_used_bytes", "Memory that Redis uses."),
    _gauge("pyasynq_redis_memory_max_bytes", "Limit of Redis' memory; 0 for no limit."),
    _gauge("pyasynq_redis_may_evict", "1 if the eviction policy of Redis may delete tasks, else 0."),
    _counter("pyasynq_redis_evicted_keys_total", "Number of keys that Redis evicted.", origin=Origin.QUEUES),
)
_WORKERS: Final = (
    _counter(
        "pyasynq_tasks_finished_total",
        "Number of attempts that ended, by outcome: succeeded, retried, archived, snoozed, revoked.",
        "queue",
        "type",
        "outcome",
    ),
    _histogram("pyasynq_task_run_seconds", "Time that attempts ran.", RUN_SECONDS, "queue", "type"),
    _histogram(
        "pyasynq_task_wait_seconds",
        "Time that tasks were pending before their attempts.",
        WAIT_SECONDS,
        "queue",
        "type",
    ),
    _gauge("pyasynq_tasks_running", "Number of attempts that run.", "queue", origin=Origin.WORKER),
    _gauge("pyasynq_slots", "Number of attempts that can run at once.", origin=Origin.WORKER),
    _counter("pyasynq_slots_busy_seconds_total", "Sum of the seconds in which slots were busy."),
    _counter(
        "pyasynq_recovered_total",
        "Number of tasks that were put back because their worker died.",
        "queue",
    ),
    _counter(
        "pyasynq_poisoned_total",
        "Number of tasks that were archived because their workers died.",
        "queue",
    ),
    _counter("pyasynq_timeouts_total", "Number of attempts that reached their timeout or deadline.", "queue"),
    _counter(
        "pyasynq_cancelled_total",
        "Number of attempts that were cancelled, by reason: cancel, shutdown, lease lost.",
        "queue",
        "reason",
    ),
    _counter("pyasynq_lease_losses_total", "Number of attempts that lost their lease.", "queue"),
    _counter("pyasynq_archive_trimmed_total", "Number of tasks deleted from full archives.", "queue"),
    _counter("pyasynq_events_dropped_total", "Number of events that could not be published.", "queue"),
    _counter("pyasynq_ghosts_total", "Number of ids without a task that were removed from queues.", "queue"),
    _gauge(
        "pyasynq_unwritten_outcomes",
        "Number of outcomes that Redis has not confirmed, those in flight included.",
        origin=Origin.WORKER,
    ),
    _counter("pyasynq_settle_delays_total", "Number of times that outcomes could not be written at once."),
    _counter("pyasynq_round_failures_total", "Number of failed rounds of background services.", "service"),
    _histogram(
        "pyasynq_redis_roundtrip_seconds",
        "Time from sending outcomes and requests for tasks until Redis has answered all of them.",
        _SHORT_SECONDS,
    ),
    _histogram("pyasynq_batch_size", "Number of outcomes that were written together.", _SIZES),
    _histogram(
        "pyasynq_loop_blocked_seconds",
        "Delay of a timer of the event loop, measured each second.",
        _SHORT_SECONDS,
    ),
    _counter(
        "pyasynq_labels_capped_total",
        "Number of figures counted under _other because a label has too many values.",
        "label",
    ),
)
_SUPERVISOR: Final = (
    _gauge(
        "pyasynq_worker_processes",
        "Number of processes by state: starting, active, stopped, closed.",
        "state",
        origin=Origin.SUPERVISOR,
    ),
    _counter(
        "pyasynq_worker_deaths_total",
        "Number of processes that ended with an error or were killed.",
        origin=Origin.SUPERVISOR,
    ),
)
_OTHERS: Final = (
    _counter(
        "pyasynq_scheduler_ticks_total",
        "Number of ticks of periodic tasks, by result: fired, failed, missed, paused.",
        "type",
        "result",
        origin=Origin.SCHEDULER,
    ),
    Family(
        "pyasynq_scheduler_lag_seconds",
        MetricType.HISTOGRAM,
        "Time from a tick until its task was enqueued.",
        (),
        Origin.SCHEDULER,
        WAIT_SECONDS,
    ),
    _counter(
        "pyasynq_tasks_enqueued_total",
        "Number of tasks that this program enqueued, by result: enqueued, duplicate, failed.",
        "queue",
        "type",
        "result",
        origin=Origin.CLIENT,
    ),
)

_SERVICE: Final = (
    _counter(
        "pyasynq_service_requests_total",
        "Number of requests that were answered, by the pattern of their path.",
        "route",
        "method",
        "status",
        origin=Origin.SERVICE,
    ),
    Family(
        "pyasynq_service_request_seconds",
        MetricType.HISTOGRAM,
        "Time until requests were answered, waiting included.",
        ("route",),
        Origin.SERVICE,
        _REQUEST_SECONDS,
    ),
    _gauge(
        "pyasynq_service_parked_polls",
        "Number of lease requests that wait for tasks.",
        origin=Origin.SERVICE,
    ),
    _gauge(
        "pyasynq_service_leases_held",
        "Number of tasks that workers have leased through this process, and not settled through it.",
        origin=Origin.SERVICE,
    ),
    Family(
        "pyasynq_service_list_workers",
        MetricType.GAUGE,
        "Number of workers that listen to the lists of a task type of the kind `list`.",
        ("queue",),
        Origin.SERVICE,
        is_shared=True,
    ),
    _counter(
        "pyasynq_service_leases_total",
        "Number of tasks that were leased over HTTP.",
        "queue",
        origin=Origin.SERVICE,
    ),
    _counter(
        "pyasynq_service_leases_lapsed_total",
        "Number of tasks that this process put back because their lease had ended.",
        "queue",
        origin=Origin.SERVICE,
    ),
    _counter(
        "pyasynq_service_extends_total",
        "Number of leases that were extended.",
        "queue",
        origin=Origin.SERVICE,
    ),
    _counter(
        "pyasynq_service_settles_total",
        "Number of attempts that were settled, by act: complete, fail, snooze, release.",
        "queue",
        "act",
        origin=Origin.SERVICE,
    ),
    _counter(
        "pyasynq_service_acts_refused_total",
        "Number of acts on attempts that were refused, by the code of their problem, such as lease_lost.",
        "act",
        "reason",
        origin=Origin.SERVICE,
    ),
    _counter(
        "pyasynq_service_tasks_total",
        "Number of tasks that were sent to be enqueued, by outcome: enqueued, existing, conflict, failed.",
        "queue",
        "type",
        "outcome",
        origin=Origin.SERVICE,
    ),
    _counter(
        "pyasynq_service_deliveries_total",
        "Number of requests of tasks of the kind http, by class of status: 2xx and so on, or none.",
        "host",
        "status",
        origin=Origin.SERVICE,
    ),
    Family(
        "pyasynq_service_delivery_seconds",
        MetricType.HISTOGRAM,
        "Time until requests of tasks of the kind http were answered, or had failed without an answer.",
        ("host",),
        Origin.SERVICE,
        RUN_SECONDS,
    ),
    Family(
        "pyasynq_service_host_throttled",
        MetricType.GAUGE,
        "1 while a host of tasks of the kind http has asked to be left alone, by 429 or 503, else 0.",
        ("host",),
        Origin.SERVICE,
        is_shared=True,
    ),
    _gauge(
        "pyasynq_service_commands_running",
        "Number of commands that run now.",
        origin=Origin.SERVICE,
    ),
    _counter(
        "pyasynq_service_commands_total",
        "Number of commands that have ended, by outcome: done, retried, archived, snoozed, stopped.",
        "queue",
        "outcome",
        origin=Origin.SERVICE,
    ),
    Family(
        "pyasynq_service_command_seconds",
        MetricType.HISTOGRAM,
        "Run time of commands.",
        ("queue",),
        Origin.SERVICE,
        RUN_SECONDS,
    ),
    _counter(
        "pyasynq_service_command_cpu_seconds_total",
        "CPU time of commands with all their processes.",
        "queue",
        origin=Origin.SERVICE,
    ),
    _counter(
        "pyasynq_service_commands_killed_total",
        "Number of commands that were killed at a limit: time, memory, cpu, file_size.",
        "queue",
        "limit",
        origin=Origin.SERVICE,
    ),
    _gauge(
        "pyasynq_service_door_connections",
        "Number of connections at a door, by role: worker, client.",
        "door",
        "role",
        origin=Origin.SERVICE,
    ),
    _gauge(
        "pyasynq_service_door_jobs",
        "Number of jobs that workers at a door run.",
        "door",
        origin=Origin.SERVICE,
    ),
)

FAMILIES: Final = {one.name: one for one in (*_ASYNQ, *_QUEUES, *_WORKERS, *_SUPERVISOR, *_OTHERS, *_SERVICE)}
"""All families by name, in the order in which they are exposed."""
