"""Worker middleware that makes a span for each attempt, linked to the span that enqueued its task."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from random import getrandbits
from typing import TYPE_CHECKING, Any, Literal

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.trace import ProxyTracer, SpanKind, StatusCode

from pyasynq.context import context as get_task_context
from pyasynq.context import current_task, trace_fields
from pyasynq.contrib.otel import conventions as names
from pyasynq.contrib.otel.early_sampling import ID_BITS, EarlySampling
from pyasynq.contrib.otel.propagation import NO_CONTEXT, extract, find_link, format_ids, get_span_context
from pyasynq.control import Archive, Cancel, Retry, Snooze

if TYPE_CHECKING:
    from collections.abc import Collection

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from pyasynq._engine.handlers.middleware import AsyncHandler
    from pyasynq.context import TaskContext
    from pyasynq.task import Task

_WISHES: dict[type, str] = {Snooze: "snoozed", Retry: "retried", Archive: "archived", Cancel: "revoked"}


class WorkerTracing:
    """Traces attempts: `app.use(WorkerTracing())`, as the first middleware.

    Each attempt has a CONSUMER span `process QUEUE`. The span begins a new trace, and links to the span
    that enqueued the task: a task may run hours later, and more than once.

    Args:
        parent: `"creation"` makes the enqueue span the parent instead, so that both are one trace.
        tracer_provider: None for the global one.
        meter_provider: None for the global one.
        baggage: keys of the baggage that handlers see; none unless given.
        name: whether spans are named after the `"queue"` or the task `"type"`.
        body_size: whether spans contain the size of payloads.
    """

    def __init__(
        self,
        *,
        parent: Literal["creation"] | None = None,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        baggage: Collection[str] = (),
        name: Literal["queue", "type"] = "queue",
        body_size: bool = False,
    ) -> None:
        self._provider = tracer_provider
        self._tracer = names.get_tracer(tracer_provider)
        self._early: EarlySampling | None = None
        self._is_resolved = False
        """Whether `_early` is final, which it is only once the global tracer provider has been set."""
        meter = names.get_meter(meter_provider)
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Number of attempts that began."
        )
        self._duration, self._wait = (
            meter.create_histogram(
                name_of_metric, "s", text, explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS
            )
            for name_of_metric, text in (
                ("messaging.process.duration", "Time that attempts ran."),
                ("messaging.asynq.wait.duration", "Time that tasks were pending before their attempts."),
            )
        )
        self._is_child = parent == "creation"
        self._baggage = frozenset(baggage)
        self._by_type = name == "type"
        self._body_size = body_size
        self._attributes: dict[str, dict[str, Any]] = {}
        """Attributes that all spans and metrics of a queue share, by queue; an entry never changes."""

    async def __call__(self, task: Task, call_next: AsyncHandler) -> Any:
        """Run the handler within a span."""
        early = self._early if self._is_resolved else self._find_sampling()
        if early is None:
            return await self._trace(task, call_next, extract(task.headers, self._baggage))
        if self._is_child or self._baggage:
            creation = extract(task.headers, self._baggage)
            return await self._trace(task, call_next, creation, *self._decide(early, creation))
        # `early.draw` inlined, because it is most of the cost of a dropped attempt.
        if (low := getrandbits(ID_BITS)) < early.bound:
            return await self._trace(task, call_next, extract(task.headers, ()), early.make_id(low))
        # Measure only with a meter provider: until one is set, the instrument is a proxy without a real
        # instrument.
        if getattr(self._duration, "_real_instrument", early) is not None:
            return await self._trace(task, call_next, NO_CONTEXT, 0, early.root)
        token = context_api.attach(early.root)
        try:
            return await call_next(task)
        finally:
            context_api.detach(token)

    def _decide(self, early: EarlySampling, creation: Context) -> tuple[int, Context | None]:
        """Decide whether a span is sampled, before it is made (head sampling).

        Returns:
            The trace id of a sampled root span, otherwise 0; and the context of a dropped span, else None.
        """
        parent = get_span_context(creation)
        if not self._is_child or not parent.is_valid:
            trace_id = early.draw()
            return trace_id, None if trace_id else early.root
        return 0, early.child if early.drops_child(parent) else None

    async def _trace(
        self,
        task: Task,
        call_next: AsyncHandler,
        creation: Context,
        trace_id: int = 0,
        dropped: Context | None = None,
    ) -> Any:
        """Run the handler in a new span, or in the `dropped` context, and measure the attempt."""
        running = get_task_context()
        attributes = self._attributes.get(running.queue)
        if attributes is None:
            attributes = names.make_attributes(running.queue, "process", "process")
            self._attributes[running.queue] = attributes
        waited = running.waited
        self._consumed.add(1, attributes)
        if waited is not None:
            self._wait.record(waited, attributes)
        if dropped is None:
            span = self._start_span(task, running, creation, attributes, trace_id)
        else:
            span = trace.get_current_span(dropped)
            if self._is_child:
                trace_fields.set(lambda: format_ids(span.get_span_context()))
        # The baggage is passed on even if the creation is not the parent.
        token = context_api.attach(trace.set_span_in_context(span, creation))
        began = time.perf_counter()
        outcome = "succeeded"
        try:
            return await call_next(task)
        except BaseException as error:
            outcome = _WISHES.get(type(error), "failed")
            if outcome == "failed":
                attributes = {**attributes, names.ERROR_TYPE: _fail(span, error)}
            raise
        finally:
            span.set_attribute(names.OUTCOME, outcome)
            context_api.detach(token)
            span.end()
            seconds = time.perf_counter() - began
            self._duration.record(seconds, attributes)
            if (made := span.get_span_context()).trace_flags.sampled:
                ids = format_ids(made)
                attempt = current_task.get()
                attempt.home.report_trace(attempt, seconds, ids["trace_id"], ids["span_id"])

    def _find_sampling(self) -> EarlySampling | None:
        """Return the rules for early sampling, once the tracer provider is set."""
        if isinstance(self._tracer, ProxyTracer):
            self._tracer = names.get_tracer(self._provider)
        self._is_resolved = not isinstance(self._tracer, ProxyTracer)
        self._early = EarlySampling.find(self._tracer)
        return self._early

    def _start_span(
        self, task: Task, running: TaskContext, creation: Context, attributes: dict[str, Any], trace_id: int
    ) -> Span:
        """Start a span; if `trace_id` is not 0, the span has this trace id."""
        link = find_link(creation)
        tracer = self._tracer
        if trace_id and self._early is not None:
            tracer = self._early.tracer_for(trace_id)
        span = tracer.start_span(
            f"process {task.type if self._by_type else running.queue}",
            context=creation if self._is_child else NO_CONTEXT,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=() if link is None else (link,),
        )
        span_context = span.get_span_context()
        if span_context.is_valid:
            # All log records of this attempt get the ids of its span, including records of the engine.
            trace_fields.set(partial(format_ids, span_context))
        if span.is_recording():
            span.set_attributes(self._describe(task, running, running.waited))
            crashes = getattr(current_task.get(None), "crashes", 0)
            if crashes:
                span.add_event("recovered", {"messaging.asynq.task.crashes": crashes})
        return span

    def _describe(self, task: Task, running: TaskContext, waited: float | None) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            names.MESSAGE_ID: running.task_id,
            names.TASK_TYPE: task.type,
            names.RETRIED: running.retried,
            names.MAX_RETRY: running.max_retry,
        }
        if waited is not None:
            attributes[names.WAITED] = waited
        if self._body_size:
            attributes[names.BODY_SIZE] = len(task.payload or b"")
        return attributes


def _fail(span: Span, error: BaseException) -> str:
    """Mark a span as failed; return the value of `error.type`."""
    reason = get_task_context().cancelled.reason if isinstance(error, asyncio.CancelledError) else None
    kind = names.name_error(error) if reason is None else reason.value
    span.set_attribute(names.ERROR_TYPE, kind)
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, kind)
    return kind
