"""What the events of servers and schedulers add to their metrics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pyasynq import events as happened
from pyasynq.context import CancelReason
from pyasynq.events import Events, Outcome
from pyasynq.metrics import FleetMetrics, RegistryCollector, WorkerMetrics
from pyasynq.metrics.families import RUN_SECONDS
from pyasynq.metrics.text import OPEN_METRICS
from pyasynq.telemetry import ATTEMPT_SECONDS, NO_ATTEMPTS, AttemptCounts, Histogram

BUCKETS = len(ATTEMPT_SECONDS) + 1


def durations(seconds: float, number: int) -> Histogram:
    """Return a histogram of equal durations."""
    counts = [0] * BUCKETS
    counts[next(at for at, bound in enumerate((*ATTEMPT_SECONDS, 1e9)) if seconds <= bound)] = number
    return Histogram(tuple(counts), seconds * number)


def measured(
    counts: AttemptCounts = NO_ATTEMPTS, *, running: int = 0, lateness: float = 0.0
) -> happened.WorkerMeasured:
    """Return a measurement of one queue and type."""
    return happened.WorkerMeasured("s", {"q": {"t": counts}}, {"q": running}, 10, 2.5, 4, lateness)


def watched() -> tuple[Events, WorkerMetrics]:
    """Return metrics, and the events that they follow."""
    events, metrics = Events(), WorkerMetrics()
    metrics.watch(events)
    metrics.watch_scheduler(events)
    return events, metrics


def lines(metrics: Any) -> set[str]:
    """Return the samples as text."""
    return {line for line in metrics.render()[1].decode().splitlines() if not line.startswith("#")}


def test_a_measurement_is_counted_by_outcome_with_its_durations() -> None:
    """Each measurement adds to the last; the buckets are coarser than those of the statistics."""
    events, metrics = watched()
    counts = AttemptCounts(
        succeeded=3,
        retried=2,
        timed_out=1,
        recovered=4,
        poisoned=1,
        run=durations(0.003, 5),
        wait=durations(15, 5),
    )
    events.emit(measured(counts))
    events.emit(measured(counts))
    found = lines(metrics)
    assert {
        'pyasynq_tasks_finished_total{queue="q",type="t",outcome="succeeded"} 6',
        'pyasynq_tasks_finished_total{queue="q",type="t",outcome="retried"} 4',
        'pyasynq_timeouts_total{queue="q"} 2',
        'pyasynq_recovered_total{queue="q"} 8',
        'pyasynq_poisoned_total{queue="q"} 2',
        'pyasynq_task_run_seconds_bucket{queue="q",type="t",le="0.005"} 10',
        'pyasynq_task_wait_seconds_bucket{queue="q",type="t",le="10.0"} 0',
        'pyasynq_task_wait_seconds_bucket{queue="q",type="t",le="20.0"} 10',
        'pyasynq_task_wait_seconds_sum{queue="q",type="t"} 150',
        "pyasynq_slots_busy_seconds_total 5",
        "pyasynq_slots 10",
        "pyasynq_unwritten_outcomes 4",
    } <= found
    assert not any('outcome="archived"' in line for line in found)


def test_durations_beyond_the_bounds_are_in_the_last_bucket() -> None:
    """An hour is longer than the ten minutes that run times are told apart."""
    events, metrics = watched()
    events.emit(measured(AttemptCounts(succeeded=1, run=durations(3_600, 1))))
    found = lines(metrics)
    assert f'pyasynq_task_run_seconds_bucket{{queue="q",type="t",le="{RUN_SECONDS[-1]}"}} 0' in found
    assert 'pyasynq_task_run_seconds_bucket{queue="q",type="t",le="+Inf"} 1' in found


def test_counters_of_a_queue_begin_at_0() -> None:
    """An alert sees an increase only of what was there before."""
    events, metrics = watched()
    events.emit(measured())
    assert {
        'pyasynq_poisoned_total{queue="q"} 0',
        'pyasynq_lease_losses_total{queue="q"} 0',
        'pyasynq_archive_trimmed_total{queue="q"} 0',
        'pyasynq_cancelled_total{queue="q",reason="cancel"} 0',
        "pyasynq_settle_delays_total 0",
    } <= lines(metrics)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (happened.LeaseLost("q", "id"), 'pyasynq_lease_losses_total{queue="q"} 1'),
        (happened.ArchiveTrimmed("q", 7), 'pyasynq_archive_trimmed_total{queue="q"} 7'),
        (happened.EventsDropped("q", 3), 'pyasynq_events_dropped_total{queue="q"} 3'),
        (happened.GhostsDropped("q", 2), 'pyasynq_ghosts_total{queue="q"} 2'),
        (happened.SettleDelayed(5, ValueError()), "pyasynq_settle_delays_total 1"),
        (
            happened.RoundFailed("janitor", ValueError(), 1),
            'pyasynq_round_failures_total{service="janitor"} 1',
        ),
        (measured(lateness=0.3), 'pyasynq_loop_blocked_seconds_bucket{le="0.5"} 1'),
        (measured(running=2), 'pyasynq_tasks_running{queue="q"} 2'),
        (
            happened.TickFailed("e", "@daily", "t", datetime.now(UTC), ValueError(), retried=False),
            'pyasynq_scheduler_ticks_total{type="t",result="failed"} 1',
        ),
        (
            happened.TickPaused("e", "@daily", "t", datetime.now(UTC)),
            'pyasynq_scheduler_ticks_total{type="t",result="paused"} 1',
        ),
        (
            happened.TicksMissed("e", "@daily", "t", datetime.now(UTC)),
            'pyasynq_scheduler_ticks_total{type="t",result="missed"} 1',
        ),
        (
            happened.TickFired("e", "@daily", "t", "q", "id", datetime.now(UTC) - timedelta(seconds=100)),
            'pyasynq_scheduler_lag_seconds_bucket{le="60.0"} 0',
        ),
    ],
)
def test_each_event_has_its_metric(event: tuple[object, ...], line: str) -> None:
    """The metric grows by the number in the event."""
    events, metrics = watched()
    events.emit(event)
    assert line in lines(metrics)


def test_exchanges_are_counted_once() -> None:
    """They are collected, and go to the store with the next measurement alone."""
    events, metrics = watched()
    for outcomes in (0, 50, 3):
        events.emit(happened.ExchangeEnded(0.25, outcomes, 2))
    for _ in range(2):
        events.emit(measured())
    assert {
        'pyasynq_redis_roundtrip_seconds_bucket{le="0.2"} 0',
        'pyasynq_redis_roundtrip_seconds_bucket{le="0.5"} 3',
        'pyasynq_batch_size_bucket{le="50.0"} 2',
        "pyasynq_redis_roundtrip_seconds_count 3",
        "pyasynq_redis_roundtrip_seconds_sum 0.75",
        "pyasynq_batch_size_count 2",
        "pyasynq_batch_size_sum 53",
    } <= lines(metrics)


def test_successes_are_not_events_for_metrics() -> None:
    """The server counts them itself; an event for each would cost a drain several percent."""
    events, _ = watched()
    assert events.wants(happened.TaskFinished)
    assert not events.wants_routine(happened.TaskFinished)


def finished(reason: CancelReason | None) -> happened.TaskFinished:
    """Return the end of an attempt."""
    return happened.TaskFinished("q", "id", "t", 0, 3, Outcome.RETRIED, 1.0, ValueError(), reason=reason)


def test_cancellations_are_counted_by_reason_and_timeouts_apart() -> None:
    """Successes are not told at all: an event for each of them would cost more."""
    events, metrics = watched()
    for reason in (None, *CancelReason):
        events.emit(finished(reason))
    found = {line for line in lines(metrics) if line.startswith("pyasynq_cancelled_total")}
    reasons = ("cancel", "shutdown", "lease lost")
    assert {f'pyasynq_cancelled_total{{queue="q",reason="{reason}"}} 1' for reason in reasons} == found
    assert not events.wants_routine(happened.TaskFinished)


def test_histograms_may_be_kept_for_queues_alone() -> None:
    """Outcomes are still counted by type."""
    events, metrics = Events(), WorkerMetrics(type_histograms=False)
    metrics.watch(events)
    events.emit(measured(AttemptCounts(succeeded=1, run=durations(1, 1))))
    found = lines(metrics)
    assert 'pyasynq_task_run_seconds_count{queue="q"} 1' in found
    assert 'pyasynq_tasks_finished_total{queue="q",type="t",outcome="succeeded"} 1' in found


def test_a_fleet_counts_processes_and_deaths() -> None:
    """Living processes are counted by state."""
    fleet = FleetMetrics()
    assert {"pyasynq_worker_deaths_total 0"} == lines(fleet)
    fleet.note_processes(["active", "active", "starting"])
    fleet.note_processes(["active"], died=True)
    assert {
        'pyasynq_worker_processes{state="active"} 1',
        'pyasynq_worker_processes{state="starting"} 0',
        "pyasynq_worker_deaths_total 1",
    } == lines(fleet)


def test_a_trace_is_the_exemplar_of_its_run_and_its_wait() -> None:
    """A scrape in OpenMetrics leads from a slow bucket to a trace; prometheus-client's own shows it, too."""
    events, metrics = watched()
    events.emit(measured(AttemptCounts(succeeded=2, run=durations(0.3, 2), wait=durations(15, 2))))
    events.emit(happened.AttemptTraced("q", "t", 0.31, 14.0, "a" * 32, "b" * 16))
    events.emit(happened.AttemptTraced("q", "t", 0.32, None, "c" * 32, "d" * 16))
    registry = CollectorRegistry()
    registry.register(RegistryCollector(metrics))
    theirs = openmetrics.generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    for text in (metrics.render(OPEN_METRICS)[1].decode(), theirs):
        found = {
            (sample.name, sample.labels["le"]): (sample.exemplar.value, sample.exemplar.labels["trace_id"])
            for family in text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
            for sample in family.samples
            if sample.exemplar
        }
        assert {
            ("pyasynq_task_run_seconds_bucket", "0.5"): (0.32, "c" * 32),
            ("pyasynq_task_wait_seconds_bucket", "20.0"): (14.0, "a" * 32),
        } == found


def test_a_registry_of_prometheus_client_shows_the_same() -> None:
    """Except for the order of labels and the fractions of whole numbers."""
    events, metrics = watched()
    events.emit(measured(AttemptCounts(succeeded=2, run=durations(0.3, 2)), running=1))
    registry = CollectorRegistry()
    registry.register(RegistryCollector(metrics))
    text = generate_latest(registry).decode()
    assert 'pyasynq_tasks_finished_total{outcome="succeeded",queue="q",type="t"} 2.0' in text
    assert 'pyasynq_task_run_seconds_bucket{le="0.5",queue="q",type="t"} 2.0' in text
    assert "pyasynq_slots 10.0" in text
