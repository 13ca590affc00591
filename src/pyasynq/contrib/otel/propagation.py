"""Trace context in the headers of tasks: W3C's `traceparent`, `tracestate`, `baggage`; as in Go programs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from opentelemetry import baggage
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_TRACE: Final = TraceContextTextMapPropagator()
_BAGGAGE: Final = W3CBaggagePropagator()
_HEADERS: Final = ("traceparent", "tracestate", "baggage")
_PLAIN: Final = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1
_LONGEST: Final = 8_192
"""Maximum number of characters of a header, since any program may write one; longer ones are ignored."""


NO_CONTEXT: Final = Context()
NO_SPAN: Final = get_current_span(NO_CONTEXT).get_span_context()
"""Invalid span context, which stands for a missing span."""


def inject(headers: Mapping[str, str], context: Context, allowed: Collection[str]) -> dict[str, str]:
    """Return headers with the trace context added, and with the entries of the baggage that are allowed."""
    carrier = {name: value for name, value in headers.items() if name.lower() not in _HEADERS}
    _TRACE.inject(carrier, context)
    if parent := carrier.get("traceparent"):
        # Only the flag "sampled": OpenTelemetry for Go refuses a context with the later flag "random".
        carrier["traceparent"] = f"{parent[:-2]}{int(parent[-2:], 16) & _SAMPLED:02x}"
    entries = {key: value for key, value in baggage.get_all(context).items() if key in allowed}
    if entries:
        chosen = Context()
        for key, value in entries.items():
            chosen = baggage.set_baggage(key, value, chosen)
        _BAGGAGE.inject(carrier, chosen)
    return carrier


def extract(headers: Mapping[str, str], allowed: Collection[str]) -> Context:
    """Return the trace context in headers; an empty context if there is none, or if it is damaged."""
    if not headers:
        return NO_CONTEXT
    if len(headers) == 1 and (plain := _PLAIN.fullmatch(headers.get("traceparent", ""))):
        # Fast path for the header that most W3C propagators write: a tenth of the time.
        trace_id, span_id, flags = (int(digits, 16) for digits in plain.groups())
        remote = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
        return set_span_in_context(NonRecordingSpan(remote), NO_CONTEXT) if remote.is_valid else NO_CONTEXT
    carrier = {
        name.lower(): value
        for name, value in headers.items()
        if name.lower() in _HEADERS and len(value) <= _LONGEST
    }
    context = _TRACE.extract(carrier, Context())
    if allowed and "baggage" in carrier:
        for key, value in baggage.get_all(_BAGGAGE.extract(carrier, Context())).items():
            if key in allowed:
                context = baggage.set_baggage(key, value, context)
    return context


def get_span_context(context: Context) -> SpanContext:
    """Return the span context of a context; an invalid span context if the context has no span."""
    return get_current_span(context).get_span_context()


def format_ids(context: SpanContext) -> dict[str, str]:
    """Return the fields that link log records to a span: its trace id and span id."""
    return {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}


def find_link(context: Context) -> Link | None:
    """Return a link to the span of a context; None if the context has no span."""
    span_context = get_span_context(context)
    return Link(span_context) if span_context.is_valid else None
