"""Links from the task that an aggregator makes to the tasks of its group."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.trace import SpanKind

from pyasynq.contrib.otel import conventions as names
from pyasynq.contrib.otel.propagation import extract, find_link, inject
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from opentelemetry.trace import Span, Tracer, TracerProvider

    from pyasynq.options import EnqueueOptions

    Aggregator: TypeAlias = Callable[[str, list[Task]], Any]

MAX_LINKS: Final = 128
"""Maximum number of group members that a span links to; an attribute holds the full number."""


def link_members(*, tracer_provider: TracerProvider | None = None) -> Callable[[Aggregator], Aggregator]:
    """Trace an aggregator: `@app.aggregator` above `@link_members()`.

    Its PRODUCER span links to the spans that enqueued the tasks of the group, 128 at most. The task that it
    makes carries the span's context.

    Args:
        tracer_provider: None for the global one.
    """
    tracer = names.get_tracer(tracer_provider)

    def decorate(aggregator: Aggregator) -> Aggregator:
        if inspect.iscoroutinefunction(aggregator):

            @functools.wraps(aggregator)
            async def aggregate_async(group: str, tasks: list[Task]) -> Task | None:
                with _start_span(tracer, group, tasks) as span:
                    return _add_context(await aggregator(group, tasks), span)

            return aggregate_async

        @functools.wraps(aggregator)
        def aggregate(group: str, tasks: list[Task]) -> Task | None:
            with _start_span(tracer, group, tasks) as span:
                return _add_context(aggregator(group, tasks), span)

        return aggregate

    return decorate


def _start_span(tracer: Tracer, group: str, tasks: Sequence[Task]) -> AbstractContextManager[Span]:
    links = [link for task in tasks[:MAX_LINKS] if (link := find_link(extract(task.headers, ()))) is not None]
    attributes: dict[str, Any] = {
        names.SYSTEM: names.SYSTEM_NAME,
        names.OPERATION_NAME: "create",
        names.OPERATION_TYPE: "create",
        names.GROUP: group,
        names.BATCH_COUNT: len(tasks),
    }
    return tracer.start_as_current_span(
        f"aggregate {group}", kind=SpanKind.PRODUCER, attributes=attributes, links=links
    )


def _add_context(task: Task | None, span: Span) -> Task | None:
    if task is None:
        return None
    headers = inject(task.headers, trace.set_span_in_context(span), ())
    options: EnqueueOptions = {**task.options, "headers": headers}
    return Task(task.type, task.payload, **options)
