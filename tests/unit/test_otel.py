"""Entry point, imports and propagation of tracing, without Redis."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider

from pyasynq.contrib.otel import PyasynqInstrumentor
from pyasynq.contrib.otel.propagation import extract, find_link, inject


def test_the_entry_point_is_what_opentelemetry_instrument_loads() -> None:
    """It needs an object with a method `instrument`, and of packages the API alone."""
    [found] = entry_points(group="opentelemetry_instrumentor", name="pyasynq")
    assert PyasynqInstrumentor is found.load()


def test_nothing_of_it_is_loaded_unless_it_is_used() -> None:
    """A worker without traces imports neither our module nor theirs."""
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"  # redis-py loads it wherever it is installed
        "import pyasynq.cli.worker, pyasynq.server, pyasynq.app, pyasynq.sync\n"
        "print([name for name in sys.modules if name.startswith('pyasynq.contrib')])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "[]" == done.stdout.strip()


def test_a_context_survives_its_way_through_headers() -> None:
    """Trace, sampling and state; other headers stay, and stale ones are replaced."""
    span = TracerProvider().get_tracer("x").start_span("x")
    context = trace.set_span_in_context(span, Context())
    headers = inject({"mine": "1", "TraceParent": "stale", "baggage": "secret=1"}, context, ())
    assert {"mine", "traceparent"} == headers.keys()
    assert headers["traceparent"].endswith("-01")
    link = find_link(extract(headers, ()))
    assert link is not None
    assert span.get_span_context().trace_id == link.context.trace_id
    assert link.context.is_remote
    assert link.context.trace_flags.sampled


@pytest.mark.parametrize("allowed", [(), ("a",), ("a", "c")])
def test_only_allowed_keys_of_baggage_go_out_and_come_in(allowed: tuple[str, ...]) -> None:
    """Keys that are not allowed are dropped from incoming and outgoing headers."""
    context = baggage.set_baggage("b", "2", baggage.set_baggage("a", "1", Context()))
    sent = inject({}, context, allowed)
    assert ("a=1" if allowed else None) == sent.get("baggage")
    received = extract({"baggage": "a=1,b=2,c=3"}, allowed)
    assert set(allowed) == baggage.get_all(received).keys()


@pytest.mark.parametrize(
    "value", ["", "x", "00-0-0-00", "ff-" + "1" * 32 + "-" + "1" * 16 + "-01", "0" * 9_000]
)
def test_damaged_headers_give_no_context(value: str) -> None:
    """Anybody may have written them."""
    assert find_link(extract({"traceparent": value, "tracestate": value, "baggage": value}, ("a",))) is None
