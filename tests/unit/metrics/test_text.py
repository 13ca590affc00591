"""Exposition of metrics, as the parsers of prometheus-client read it."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from pyasynq.metrics.families import FAMILIES, Family, MetricType, Origin
from pyasynq.metrics.text import OPEN_METRICS, PLAIN, Exemplar, Samples, render, wants_open_metrics

HOSTILE = 'a"b\\c\nd \N{RIGHT-TO-LEFT OVERRIDE}\ud800'
OPEN = "application/openmetrics-text; version=1.0.0"


def test_all_families_are_read_with_their_names_types_and_help_texts() -> None:
    """In both formats; the text format keeps `_total` in the names of counters."""
    values = [
        Samples(family, {("x",) * len(family.labels): (1.0,) * (len(family.bounds) + 2) or 1})
        if family.kind is MetricType.HISTOGRAM
        else Samples(family, {("x",) * len(family.labels): 5})
        for family in FAMILIES.values()
    ]
    for accept, parse in (("", parse_plain), (OPEN, parse_open)):
        read = {one.name: one for one in parse(render(values, accept)[1].decode())}
        for family in FAMILIES.values():
            name = family.name.removesuffix("_total") if family.kind is MetricType.COUNTER else family.name
            assert (family.kind.value, family.help) == (read[name].type, read[name].documentation)


def test_the_sample_names_of_the_text_format_are_those_of_asynq() -> None:
    """A counter's samples, and gauges that are called totals."""
    counter, gauge = FAMILIES["asynq_tasks_processed_total"], FAMILIES["asynq_tasks_enqueued_total"]
    text = render([Samples(counter, {("a",): 3}), Samples(gauge, {("a", "retry"): 2})])[1].decode()
    assert "# TYPE asynq_tasks_processed_total counter\n" in text
    assert 'asynq_tasks_processed_total{queue="a"} 3\n' in text
    assert "# TYPE asynq_tasks_enqueued_total gauge\n" in text
    assert 'asynq_tasks_enqueued_total{queue="a",state="retry"} 2\n' in text


@pytest.mark.parametrize(("accept", "parse"), [("", parse_plain), (OPEN, parse_open)])
def test_hostile_label_values_are_read_as_they_were(accept: str, parse: object) -> None:
    """Whatever they contain; half a surrogate pair is replaced."""
    body = render([Samples(FAMILIES["asynq_queue_size"], {(HOSTILE,): 1})], accept)[1]
    [family] = parse(body.decode())  # type: ignore[operator] # one of two functions
    assert HOSTILE.replace("\ud800", "?") == family.samples[0].labels["queue"]


def test_buckets_are_cumulative_and_end_with_infinity() -> None:
    """The last count has no bound."""
    family = Family("x_seconds", MetricType.HISTOGRAM, "Help.", ("queue",), Origin.WORKER, (0.5, 1.0))
    [read] = parse_plain(render([Samples(family, {("a",): (1, 0, 2, 7.5)})])[1].decode())
    found = {sample.labels.get("le", sample.name): sample.value for sample in read.samples}
    assert {"0.5": 1, "1.0": 1, "+Inf": 3, "x_seconds_count": 3, "x_seconds_sum": 7.5} == found


def test_a_bucket_has_its_exemplar_in_openmetrics_alone() -> None:
    """Prometheus' own format has no syntax for one."""
    family = Family("x_seconds", MetricType.HISTOGRAM, "Help.", ("queue",), Origin.WORKER, (0.5, 1.0))
    exemplar = Exemplar(0.75, 1_700_000_000.25, "1" * 32, "2" * 16)
    samples = Samples(family, {("a",): (1, 2, 0, 1.7), ("b",): (1, 0, 0, 0.1)}, {("a",): {1: exemplar}})
    [read] = parse_open(render([samples], OPEN)[1].decode())  # type: ignore[no-untyped-call]
    [found] = [sample for sample in read.samples if sample.exemplar]
    assert ({"queue": "a", "le": "1.0"}, 3) == (found.labels, found.value)
    assert {"trace_id": "1" * 32, "span_id": "2" * 16} == found.exemplar.labels
    assert (0.75, 1_700_000_000.25) == (found.exemplar.value, float(found.exemplar.timestamp))
    assert "trace_id" not in render([samples])[1].decode()


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (2.0, "2"), (0.25, "0.25"), (2**60, str(2**60)), (1e20, "1e+20")]
)
def test_whole_numbers_have_no_fraction(value: float, text: str) -> None:
    """A whole number is written as Go writes it."""
    body = render([Samples(FAMILIES["pyasynq_redis_up"], {(): value})])[1].decode()
    assert f"\npyasynq_redis_up {text}\n" in body


def test_an_empty_label_is_left_out() -> None:
    """Prometheus treats an empty label as a missing one."""
    body = render([Samples(FAMILIES["asynq_tasks_enqueued_total"], {("a", ""): 1})])[1].decode()
    assert 'asynq_tasks_enqueued_total{queue="a"} 1\n' in body


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4;q=0.3", False),
        ("application/openmetrics-text; version=1.0.0,application/openmetrics-text;version=0.0.1", True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=2.0.0", False),
        (";;,=", False),
    ],
)
def test_the_scraper_chooses_the_format(accept: str, is_open: bool) -> None:
    """By the header that Prometheus sends; anything else gets the text format."""
    assert is_open == wants_open_metrics(accept)
    assert (OPEN_METRICS if is_open else PLAIN) == render([], accept)[0]
