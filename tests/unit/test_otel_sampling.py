"""Sampling decisions that are made before a span, compared with those of OpenTelemetry's SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_OFF,
    DEFAULT_ON,
    ParentBased,
    ParentBasedTraceIdRatio,
    TraceIdRatioBased,
)
from opentelemetry.trace import (
    NonRecordingSpan,
    NoOpTracerProvider,
    SpanContext,
    TraceFlags,
    get_current_span,
    get_tracer,
    set_span_in_context,
)

from pyasynq.contrib.otel.early_sampling import EarlySampling
from pyasynq.contrib.otel.propagation import extract, get_span_context
from pyasynq.testing import task_context

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.sampling import Sampler
    from opentelemetry.trace import Tracer

LOW, HIGH = (1 << 100) + 5, (1 << 100) + (1 << 63)
"""Trace ids that a ratio of a tenth samples and drops."""


class ChosenIds(IdGenerator):
    """Id generator that begins every trace with the same id."""

    def __init__(self, trace_id: int) -> None:
        self._trace_id = trace_id

    def generate_trace_id(self) -> int:
        """Return the id of the trace."""
        return self._trace_id

    def generate_span_id(self) -> int:
        """Return the id of any span."""
        return 7


def make_tracer(sampler: Sampler, trace_id: int = LOW) -> Tracer:
    """Return a tracer of the SDK that makes roots with this trace id."""
    return TracerProvider(sampler=sampler, id_generator=ChosenIds(trace_id)).get_tracer("x")


def make_parent(trace_id: int, *, is_sampled: bool) -> SpanContext:
    """Return the span context of an enqueue in another process."""
    return SpanContext(trace_id, 9, is_remote=True, trace_flags=TraceFlags(int(is_sampled)))


KNOWN = [
    ALWAYS_OFF,
    DEFAULT_OFF,
    TraceIdRatioBased(0.1),
    TraceIdRatioBased(0.0),
    TraceIdRatioBased(1.0),
    TraceIdRatioBased(1e-9),
    ParentBasedTraceIdRatio(0.1),
    ParentBased(TraceIdRatioBased(0.1), remote_parent_not_sampled=ALWAYS_ON),
    ParentBased(TraceIdRatioBased(0.1), remote_parent_sampled=ALWAYS_OFF),
]
PARENTS = [
    make_parent(LOW, is_sampled=False),
    make_parent(HIGH, is_sampled=False),
    make_parent(LOW, is_sampled=True),
    make_parent(HIGH, is_sampled=True),
]


by_sampler = pytest.mark.parametrize("sampler", KNOWN, ids=lambda one: one.get_description())


def find(sampler: Sampler) -> EarlySampling:
    """Return the early decisions of a sampler."""
    early = EarlySampling.find(make_tracer(sampler))
    assert early is not None
    return early


@by_sampler
@pytest.mark.parametrize("parent", PARENTS, ids=str)
def test_a_child_is_dropped_only_if_the_sampler_drops_it(sampler: Sampler, parent: SpanContext) -> None:
    """A child that is not dropped here is left to the sampler, which may still drop it."""
    context = set_span_in_context(NonRecordingSpan(parent), Context())
    span = make_tracer(sampler).start_span("x", context=context)
    if find(sampler).drops_child(parent):
        assert not span.is_recording()
    elif not isinstance(sampler, ParentBased):
        assert span.is_recording()


@by_sampler
def test_the_sampler_decides_the_same_about_the_trace_id_of_a_root(sampler: Sampler) -> None:
    """This process and the later ones then make the same decision."""
    early = find(sampler)
    drawn = {early.draw() for _ in range(200)} - {0}
    is_always = "{1.0}" in sampler.get_description()
    dropped = set() if is_always else {early.make_dropped_id() for _ in range(20)}
    for trace_id, is_sampled in [(one, True) for one in drawn] + [(one, False) for one in dropped]:
        span = early.tracer_for(trace_id).start_span("x", context=Context())
        assert is_sampled is span.is_recording()
        assert trace_id == span.get_span_context().trace_id
        assert LOW >> 64 == trace_id >> 64, "the high bits are the generator's"


def test_a_ratio_of_roots_is_sampled() -> None:
    """All of them at 1, none at 0."""
    early = {ratio: find(TraceIdRatioBased(ratio)) for ratio in (0.0, 0.25, 1.0)}
    shares = {ratio: sum(one.draw() != 0 for _ in range(4_000)) / 4_000 for ratio, one in early.items()}
    assert (0.0, 1.0) == (shares[0.0], shares[1.0])
    assert shares[0.25] == pytest.approx(0.25, abs=0.05)


def test_children_of_unsampled_spans_are_dropped_without_the_usual_sampler() -> None:
    """Otherwise the comparison above would hold for a decision that is never made."""
    early = find(ParentBasedTraceIdRatio(0.1))
    assert early.drops_child(make_parent(LOW, is_sampled=False))
    assert not early.drops_child(make_parent(HIGH, is_sampled=True))


class _Stubborn(TraceIdRatioBased):
    """Sampler of a user with the description of another one."""


@pytest.mark.parametrize(
    "tracer",
    [
        make_tracer(ALWAYS_ON),
        make_tracer(DEFAULT_ON),
        make_tracer(_Stubborn(0.1)),
        make_tracer(ParentBased(_Stubborn(0.1))),
        NoOpTracerProvider().get_tracer("x"),
        get_tracer("x"),
    ],
    ids=["always on", "parent, else on", "own", "own root", "no SDK", "not set"],
)
def test_other_samplers_are_asked_each_time(tracer: Tracer) -> None:
    """They may decide by anything, or they drop nothing."""
    assert EarlySampling.find(tracer) is None


def test_attempts_that_are_dropped_have_ids_of_their_own() -> None:
    """They share one span, which looks for the attempt that runs."""
    span = get_current_span(find(ALWAYS_OFF).root)
    seen = []
    for _ in range(2):
        with task_context():
            assert span.get_span_context() is span.get_span_context()
            seen.append(span.get_span_context())
    assert seen[0].is_valid
    assert not seen[0].trace_flags.sampled
    assert seen[0].trace_id != seen[1].trace_id
    assert not span.is_recording()
    assert not span.get_span_context().is_valid, "no attempt runs here"


@pytest.mark.parametrize("flags", ["00", "01", "03"])
def test_the_usual_header_is_read_as_by_the_propagator(flags: str) -> None:
    """It is read by a shorter way than one with other headers besides it."""
    header = f"00-{HIGH:032x}-{9:016x}-{flags}"
    short = get_span_context(extract({"traceparent": header}, ()))
    long = get_span_context(extract({"Traceparent": header, "other": ""}, ()))
    assert long == short
    assert short.is_remote
