"""Metrics of workers: counted from their events, and summed over the processes of a supervisor."""

from __future__ import annotations

import time
from bisect import bisect_left
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from pyasynq import events as happened
from pyasynq.context import CancelReason
from pyasynq.metrics.families import FAMILIES, RUN_SECONDS, WAIT_SECONDS
from pyasynq.metrics.store import MAX_QUEUES, MAX_TYPES, MetricStore
from pyasynq.metrics.text import Exemplar, render
from pyasynq.telemetry import ATTEMPT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq.events import Events
    from pyasynq.metrics.text import Samples
    from pyasynq.supervisor import MetricRow
    from pyasynq.telemetry import AttemptCounts, Histogram

_OUTCOMES: Final = ("succeeded", "retried", "archived", "snoozed", "revoked")
_BY_QUEUE: Final = {
    "recovered": "pyasynq_recovered_total",
    "poisoned": "pyasynq_poisoned_total",
    "timed_out": "pyasynq_timeouts_total",
}


_TICK_RESULTS: Final = {
    happened.TickFailed: "failed",
    happened.TickPaused: "paused",
    happened.TicksMissed: "missed",
}
_ZERO_AT_FIRST: Final = (
    *_BY_QUEUE.values(),
    "pyasynq_lease_losses_total",
    "pyasynq_archive_trimmed_total",
    "pyasynq_events_dropped_total",
    "pyasynq_ghosts_total",
)


class _Observations:
    """Buffer for the observations of a histogram without labels, flushed to the store once a second.

    Each exchange with Redis gives several observations; the store would lock and check labels for each.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._bounds = FAMILIES[name].bounds
        self._numbers: list[float] = [0] * (len(self._bounds) + 2)

    def add(self, value: float) -> None:
        """Add an observed value."""
        self._numbers[bisect_left(self._bounds, value)] += 1
        self._numbers[-1] += value

    def publish(self, store: MetricStore) -> None:
        """Flush the buffered values to the store."""
        numbers, self._numbers = self._numbers, [0] * len(self._numbers)
        store.add_histogram(self._name, (), numbers)


class WorkerMetrics:
    """Counts the events of a server, and of a scheduler.

        metrics = WorkerMetrics()
        metrics.watch(server.events)
        content_type, body = metrics.render()

    Args:
        max_types: number of task types with a label value of their own; all others are counted under
            `_other`.
        max_queues: number of queues with a label value of their own, likewise.
        type_histograms: whether histograms are kept for each task type, or for queues alone.
    """

    def __init__(
        self, *, max_types: int = MAX_TYPES, max_queues: int = MAX_QUEUES, type_histograms: bool = True
    ) -> None:
        self._store = MetricStore(max_types=max_types, max_queues=max_queues)
        self._type_histograms = type_histograms
        self._roundtrips = _Observations("pyasynq_redis_roundtrip_seconds")
        self._batch_sizes = _Observations("pyasynq_batch_size")
        self._queues: set[str] = set()
        """Queues whose counters exist; counters are made with the value 0, so that Prometheus sees growth."""

    def watch(self, events: Events) -> None:
        """Count the events of a server that has not been started yet."""
        self._store.add("pyasynq_settle_delays_total", (), 0)
        events.subscribe(happened.WorkerMeasured, self._measured)
        events.subscribe(happened.ExchangeEnded, self._exchange_ended)
        # The server itself counts successes; an event for each would cost more.
        events.subscribe(happened.TaskFinished, self._finished, routine=False)
        add = self._store.add
        events.subscribe(happened.LeaseLost, lambda event: add("pyasynq_lease_losses_total", (event.queue,)))
        events.subscribe(
            happened.ArchiveTrimmed,
            lambda event: add("pyasynq_archive_trimmed_total", (event.queue,), event.tasks),
        )
        events.subscribe(
            happened.EventsDropped,
            lambda event: add("pyasynq_events_dropped_total", (event.queue,), event.events),
        )
        events.subscribe(
            happened.GhostsDropped, lambda event: add("pyasynq_ghosts_total", (event.queue,), event.ids)
        )
        events.subscribe(happened.AttemptTraced, self._traced)
        events.subscribe(happened.SettleDelayed, lambda _: add("pyasynq_settle_delays_total"))
        events.subscribe(
            happened.RoundFailed, lambda event: add("pyasynq_round_failures_total", (event.service,))
        )

    def watch_scheduler(self, events: Events) -> None:
        """Count the events of a scheduler."""

        def count(event: happened.TickFailed | happened.TickPaused | happened.TicksMissed) -> None:
            result = _TICK_RESULTS[type(event)]
            self._store.add("pyasynq_scheduler_ticks_total", (event.task_type, result))

        events.subscribe(happened.TickFailed, count)
        events.subscribe(happened.TickPaused, count)
        events.subscribe(happened.TicksMissed, count)
        events.subscribe(happened.TickFired, self._fired)

    def take_rows(self) -> list[MetricRow]:
        """Return rows of the changes since the last call, for the supervisor's process; reset the changes."""
        return self._store.take_rows()

    def samples(self) -> list[Samples]:
        """Return the values of all metrics."""
        return self._store.samples()

    def render(self, accept: str = "") -> tuple[str, bytes]:
        """Return content type and body for a header `Accept`."""
        return render(self.samples(), accept)

    def _fired(self, event: happened.TickFired) -> None:
        self._store.add("pyasynq_scheduler_ticks_total", (event.task_type, "fired"))
        lag = (datetime.now(UTC) - event.tick).total_seconds()
        self._store.observe("pyasynq_scheduler_lag_seconds", max(0.0, lag))

    def _finished(self, event: happened.TaskFinished) -> None:
        if event.reason is not None and event.reason not in (CancelReason.TIMEOUT, CancelReason.DEADLINE):
            self._store.add("pyasynq_cancelled_total", (event.queue, event.reason.value))

    def _traced(self, event: happened.AttemptTraced) -> None:
        labels = (event.queue, event.task_type if self._type_histograms else "")
        for name, value in (
            ("pyasynq_task_run_seconds", event.seconds),
            ("pyasynq_task_wait_seconds", event.waited),
        ):
            if value is not None:
                exemplar = Exemplar(value, time.time(), event.trace_id, event.span_id)
                self._store.set_exemplar(name, labels, exemplar)

    def _exchange_ended(self, event: happened.ExchangeEnded) -> None:
        self._roundtrips.add(event.seconds)
        if event.outcomes:
            self._batch_sizes.add(event.outcomes)

    def _begin_queue(self, queue: str) -> None:
        self._queues.add(queue)
        for name in _ZERO_AT_FIRST:
            self._store.add(name, (queue,), 0)
        self._store.add("pyasynq_cancelled_total", (queue, CancelReason.CANCEL.value), 0)

    def _measured(self, event: happened.WorkerMeasured) -> None:
        for queue in event.running.keys() - self._queues:
            self._begin_queue(queue)
        for queue, types in event.counts.items():
            for task_type, counts in types.items():
                self._add_counts(queue, task_type, counts)
        store = self._store
        self._roundtrips.publish(store)
        self._batch_sizes.publish(store)
        store.set_gauges("pyasynq_tasks_running", {(name,): count for name, count in event.running.items()})
        store.set_gauges("pyasynq_slots", {(): event.slots})
        store.set_gauges("pyasynq_unwritten_outcomes", {(): event.unwritten})
        store.add("pyasynq_slots_busy_seconds_total", (), event.busy_seconds)
        store.observe("pyasynq_loop_blocked_seconds", event.lateness)

    def _add_counts(self, queue: str, task_type: str, counts: AttemptCounts) -> None:
        store = self._store
        for outcome in _OUTCOMES:
            if number := getattr(counts, outcome):
                store.add("pyasynq_tasks_finished_total", (queue, task_type, outcome), number)
        for field, name in _BY_QUEUE.items():
            if number := getattr(counts, field):
                store.add(name, (queue,), number)
        labels = (queue, task_type if self._type_histograms else "")
        for name, bounds, histogram in (
            ("pyasynq_task_run_seconds", RUN_SECONDS, counts.run),
            ("pyasynq_task_wait_seconds", WAIT_SECONDS, counts.wait),
        ):
            if histogram.total:
                store.add_histogram(name, labels, _rebucket(histogram, bounds))


class FleetMetrics:
    """Merged metrics of all processes of a supervisor; counters include processes that have ended.

    Args:
        max_types: as for `WorkerMetrics`.
        max_queues: as for `WorkerMetrics`.
    """

    def __init__(self, *, max_types: int = MAX_TYPES, max_queues: int = MAX_QUEUES) -> None:
        self._store = MetricStore(max_types=max_types, max_queues=max_queues)
        self._store.add("pyasynq_worker_deaths_total", (), 0)

    def add(self, source: str, rows: Iterable[MetricRow]) -> None:
        """Add the metrics reported by a process."""
        self._store.add_rows(source, rows)

    def drop(self, source: str) -> None:
        """Remove the gauges of a process that has ended; its counters stay."""
        self._store.drop_source(source)

    def note_processes(self, states: Iterable[str], *, died: bool = False) -> None:
        """Record the states of all processes, and whether one of them has just died."""
        counts: dict[tuple[str, ...], float] = {}
        for state in states:
            counts[state,] = counts.get((state,), 0) + 1
        self._store.set_gauges("pyasynq_worker_processes", counts)
        if died:
            self._store.add("pyasynq_worker_deaths_total")

    def samples(self) -> list[Samples]:
        """Return the values of all metrics."""
        return self._store.samples()

    def render(self, accept: str = "") -> tuple[str, bytes]:
        """Return content type and body for a header `Accept`."""
        return render(self.samples(), accept)


def _rebucket(histogram: Histogram, bounds: tuple[float, ...]) -> list[float]:
    """Return bucket counts for fewer bounds (a subset of the histogram's bounds), then the sum."""
    below = dict(zip(ATTEMPT_SECONDS, accumulate(histogram.counts), strict=False))
    counts: list[float] = []
    before = 0
    for bound in bounds:
        counts.append(below[bound] - before)
        before = below[bound]
    return [*counts, histogram.total - before, histogram.seconds]
