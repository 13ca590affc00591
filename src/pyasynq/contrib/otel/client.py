"""Client middleware that makes a span for each enqueued task, and injects its context into the headers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, StatusCode

from pyasynq.context import current_batch
from pyasynq.contrib.otel import conventions as names
from pyasynq.contrib.otel.propagation import extract, inject
from pyasynq.options import DEFAULT_QUEUE
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Collection

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from pyasynq.client import CallNext
    from pyasynq.context import EnqueueBatch
    from pyasynq.options import EnqueueOptions
    from pyasynq.task import TaskInfo

MAX_CREATE_SPANS: Final = 100
"""Maximum number of tasks of one `enqueue_many` that have a span each; others carry the call's context."""


@dataclass(slots=True)
class _Batch:
    """A running call of `enqueue_many`: its span, and the number of tasks that it has enqueued so far."""

    span: Span
    tasks: int = 0


class ClientTracing:
    """Traces enqueues: `app.use_client(ClientTracing())`, as the last middleware.

    A single enqueue has a PRODUCER span `enqueue QUEUE`, whose context travels with the task. A call of
    `enqueue_many` has one CLIENT span, and each of its first hundred tasks a span `create QUEUE`.

    Args:
        tracer_provider: None for the global one.
        meter_provider: None for the global one.
        baggage: keys of the baggage that travel with the task; none unless given.
        max_create_spans: number of tasks of one `enqueue_many` that have a span each.
        body_size: whether spans contain the size of payloads.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        baggage: Collection[str] = (),
        max_create_spans: int = MAX_CREATE_SPANS,
        body_size: bool = False,
    ) -> None:
        self._tracer = names.get_tracer(tracer_provider)
        meter = names.get_meter(meter_provider)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Number of tasks that were enqueued."
        )
        self._duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Time that an enqueue took.",
            explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS,
        )
        self._baggage = frozenset(baggage)
        self._max_create_spans = max_create_spans
        self._body_size = body_size
        self._batches: dict[int, _Batch] = {}
        """Running calls of `enqueue_many`, by the `id()` of the client's object for the call."""

    async def __call__(self, task: Task, call_next: CallNext) -> TaskInfo:
        """Enqueue a task that carries the context of its span, or of the span of its `enqueue_many`."""
        batch = current_batch.get()
        if batch is None:
            return await self._enqueue(task, call_next, "enqueue", "send", ())
        kept = self._find_batch(batch)
        kept.tasks += 1
        if kept.tasks <= self._max_create_spans:
            link = Link(kept.span.get_span_context())
            return await self._enqueue(task, call_next, "create", "create", (link,))
        context = trace.set_span_in_context(kept.span)
        return await self._measure(self._add_context(task, context), call_next, "enqueue")

    async def _enqueue(
        self, task: Task, call_next: CallNext, operation: str, kind: str, links: tuple[Link, ...]
    ) -> TaskInfo:
        queue = task.options.get("queue", DEFAULT_QUEUE)
        attributes = {**names.make_attributes(queue, operation, kind), names.TASK_TYPE: task.type}
        if self._body_size:
            attributes[names.BODY_SIZE] = len(task.payload or b"")
        if group := task.options.get("group"):
            attributes[names.GROUP] = group
        span = self._tracer.start_span(
            f"{operation} {queue}", kind=SpanKind.PRODUCER, attributes=attributes, links=links
        )
        context = trace.set_span_in_context(span)
        token = context_api.attach(context)
        try:
            info = await self._measure(self._add_context(task, context), call_next, "enqueue")
        except BaseException as error:
            _fail(span, error)
            raise
        else:
            span.set_attribute(names.MESSAGE_ID, info.id)
            return info
        finally:
            context_api.detach(token)
            span.end()

    async def _measure(self, task: Task, call_next: CallNext, operation: str) -> TaskInfo:
        queue = task.options.get("queue", DEFAULT_QUEUE)
        attributes: dict[str, Any] = names.make_attributes(queue, operation, "send")
        began = time.perf_counter()
        try:
            return await call_next(task)
        except BaseException as error:
            attributes[names.ERROR_TYPE] = names.name_error(error)
            raise
        finally:
            self._sent.add(1, attributes)
            self._duration.record(time.perf_counter() - began, attributes)

    def _add_context(self, task: Task, context: context_api.Context) -> Task:
        headers = inject(task.headers, context, self._baggage)
        options: EnqueueOptions = {**task.options, "headers": headers}
        return Task(task.type, task.payload, **options)

    def _find_batch(self, batch: EnqueueBatch) -> _Batch:
        key = id(batch)
        kept = self._batches.get(key)
        if kept is None:
            attributes = {
                names.SYSTEM: names.SYSTEM_NAME,
                names.OPERATION_NAME: "enqueue",
                names.OPERATION_TYPE: "send",
            }
            span = self._tracer.start_span("enqueue batch", kind=SpanKind.CLIENT, attributes=attributes)
            kept = self._batches[key] = _Batch(span)
            batch.at_end.append(lambda: self._end_batch(key))
        return kept

    def _end_batch(self, key: int) -> None:
        kept = self._batches.pop(key)
        kept.span.set_attribute(names.BATCH_COUNT, kept.tasks)
        kept.span.end()


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute(names.ERROR_TYPE, names.name_error(error))
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, type(error).__name__)


async def join_trace(task: Task, call_next: CallNext) -> TaskInfo:
    """Continue the trace in a task's headers while it is enqueued, unless a span is already active.

    Middleware for programs that enqueue on behalf of others; add it before `ClientTracing`.
    """
    if not task.headers or trace.get_current_span().get_span_context().is_valid:
        return await call_next(task)
    token = context_api.attach(extract(task.headers, ()))
    try:
        return await call_next(task)
    finally:
        context_api.detach(token)
