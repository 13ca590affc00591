"""Collector for the registry of prometheus-client, for programs that expose metrics with it already."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from prometheus_client import samples as prometheus_samples
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from pyasynq.metrics.families import MetricType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from pyasynq.metrics.text import Exemplar, Samples


class HasSamples(Protocol):
    """Protocol of the metrics of a worker, a supervisor or a client."""

    def samples(self) -> list[Samples]:
        """Return the values of all metrics."""


class RegistryCollector(Collector):
    """Collector that passes pyasynq metrics to a registry: `REGISTRY.register(RegistryCollector(metrics))`.

    Args:
        source: `WorkerMetrics`, `FleetMetrics` or `EnqueueMetrics`.
    """

    def __init__(self, source: HasSamples) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        """Yield all families that have values."""
        for samples in self._source.samples():
            yield _build_family(samples)

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registry does not ask for values when the collector is registered."""
        return []


def _build_family(samples: Samples) -> Metric:
    family, values, exemplars = samples
    if family.kind is MetricType.HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, value in values.items():
            assert not isinstance(value, int | float)  # noqa: S101 - the value of a histogram
            *counts, total = value
            bounds = (*map(repr, family.bounds), "+Inf")
            known = exemplars.get(labels, {})
            buckets = [
                (bound, count) if (one := known.get(at)) is None else (bound, count, _build_exemplar(one))
                for at, (bound, count) in enumerate(zip(bounds, accumulate(counts), strict=True))
            ]
            histogram.add_metric(labels, buckets, total)
        return histogram
    make = CounterMetricFamily if family.kind is MetricType.COUNTER else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, value in values.items():
        assert isinstance(value, int | float)  # noqa: S101 - the value of a counter or gauge
        metric.add_metric(labels, value)
    return metric


def _build_exemplar(exemplar: Exemplar) -> prometheus_samples.Exemplar:
    ids = {"trace_id": exemplar.trace_id, "span_id": exemplar.span_id}
    return prometheus_samples.Exemplar(ids, exemplar.value, exemplar.time)
