"""Spans, metrics and log fields of OpenTelemetry for tasks on a real Redis."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as context_api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBasedTraceIdRatio
from opentelemetry.trace import SpanKind, StatusCode

from pyasynq import Snooze
from pyasynq.app import App
from pyasynq.context import TaskFieldsFilter, context
from pyasynq.contrib.otel import SCHEMA_URL, PyasynqInstrumentor, link_members, trace_app
from pyasynq.contrib.otel.early_sampling import DroppedSpan
from pyasynq.errors import DuplicateTaskError
from pyasynq.metrics import WorkerMetrics
from pyasynq.task import Task
from pyasynq.worker_config import WorkerConfig
from tests.run_async import run_async

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

BURST = WorkerConfig(burst=True, concurrency=10)


class Traces:
    """Providers that keep what they are given in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def app(self, url: str, **settings: Any) -> App:
        """Return a traced app."""
        app = App(url, worker=BURST)
        trace_app(app, tracer_provider=self.tracers, meter_provider=self.meters, **settings)
        return app

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the finished spans of a name."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def metrics(self) -> dict[str, Any]:
        """Return the data points of each metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        found = [
            one
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for one in scope.metrics
        ]
        return {one.name: list(one.data.data_points) for one in found}


@pytest.fixture
def traces() -> Traces:
    """Providers of the test."""
    return Traces()


def span_id(span: ReadableSpan) -> int:
    """Return the id of a span."""
    assert span.context is not None
    return int(span.context.span_id)


async def work(app: App) -> None:
    """Run all tasks of an app."""
    await app.server().run(app, signals=False)


@run_async
async def test_an_attempt_links_to_the_span_that_enqueued_its_task(redis_url: str, traces: Traces) -> None:
    """It has a trace of its own, and names and attributes of the conventions."""
    app = traces.app(redis_url)

    @app.task("email:send", queue="mail")
    async def send() -> None: ...

    handle = await send.enqueue()
    await work(app)
    [enqueued], [processed] = traces.named("enqueue mail"), traces.named("process mail")
    assert (SpanKind.PRODUCER, SpanKind.CONSUMER) == (enqueued.kind, processed.kind)
    assert [span_id(enqueued)] == [link.context.span_id for link in processed.links]
    assert processed.parent is None
    assert {
        "messaging.system": "asynq",
        "messaging.destination.name": "mail",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.message.id": handle.id,
        "messaging.asynq.task.type": "email:send",
    } == dict(enqueued.attributes or {})
    attributes = dict(processed.attributes or {})
    assert attributes.pop("messaging.asynq.task.waited_seconds") >= 0  # type: ignore[operator] # a number
    assert {
        "messaging.system": "asynq",
        "messaging.destination.name": "mail",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": handle.id,
        "messaging.asynq.task.type": "email:send",
        "messaging.asynq.task.retried": 0,
        "messaging.asynq.task.max_retry": 25,
        "messaging.asynq.task.outcome": "succeeded",
    } == attributes
    assert processed.instrumentation_scope is not None
    assert SCHEMA_URL == processed.instrumentation_scope.schema_url


@run_async
async def test_the_enqueue_may_be_the_parent_so_all_is_one_trace(redis_url: str, traces: Traces) -> None:
    """The trace also covers a task that a handler enqueues."""
    app = traces.app(redis_url, parent="creation")

    @app.task("second")
    async def second() -> None: ...

    @app.task("first")
    async def first() -> None:
        await second.enqueue()

    await first.enqueue()
    await work(app)
    spans = traces.exporter.get_finished_spans()
    assert 4 == len(spans)
    assert 1 == len({span.context.trace_id for span in spans if span.context})


@run_async
async def test_a_task_without_context_begins_a_trace(redis_url: str, traces: Traces) -> None:
    """Damaged trace headers count as none."""
    app = traces.app(redis_url)
    app.task("t")(lambda: None)
    plain = App(redis_url)
    async with plain:
        await plain.enqueue("t", b"{}")
        for value in ("", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 10_000):
            await plain.enqueue("t", b"{}", headers={"traceparent": value, "tracestate": value})
    await work(app)
    processed = traces.named("process default")
    assert 5 == len(processed)
    assert not any(span.links for span in processed)


@run_async
async def test_a_failure_marks_its_span_and_a_retry_has_another(redis_url: str, traces: Traces) -> None:
    """Both link to the same enqueue. A task that is put off has not failed."""
    app = traces.app(redis_url)

    tried_again = asyncio.Event()

    @app.task("fails", retry_delay=0)
    async def fails() -> None:
        if context().retried == 0:
            raise KeyError("x")
        tried_again.set()

    @app.task("later", queue="later")
    async def later() -> Snooze:
        return Snooze(1_000)

    await fails.enqueue()
    await later.enqueue()
    server = app.server(WorkerConfig())
    await server.start(app)
    await tried_again.wait()
    await server.shutdown()
    first, second = traces.named("process default")
    assert (StatusCode.ERROR, StatusCode.UNSET) == (first.status.status_code, second.status.status_code)
    assert first.attributes
    assert second.attributes
    assert ("KeyError", "failed") == (
        first.attributes["error.type"],
        first.attributes["messaging.asynq.task.outcome"],
    )
    assert 1 == second.attributes["messaging.asynq.task.retried"]
    assert first.links[0].context == second.links[0].context
    [put_off] = traces.named("process later")
    assert put_off.attributes
    assert "snoozed" == put_off.attributes["messaging.asynq.task.outcome"]
    assert StatusCode.UNSET == put_off.status.status_code


@run_async
async def test_a_timeout_is_its_error_type(redis_url: str, traces: Traces) -> None:
    """Not the name of the exception by which coroutines are cancelled."""
    app = traces.app(redis_url)

    @app.task("slow", timeout=1, max_retry=0)
    async def slow() -> None:
        await asyncio.sleep(60)

    await slow.enqueue()
    await work(app)
    [span] = traces.named("process default")
    assert span.attributes
    assert "timeout" == span.attributes["error.type"]


@pytest.mark.long
@run_async
async def test_ten_thousand_tasks_at_once_have_a_hundred_spans(redis_url: str, traces: Traces) -> None:
    """And one for the call, which the spans link to; the other tasks carry its context."""
    app = traces.app(redis_url)
    async with app:
        await app.enqueue_many(Task("t", b"{}") for _ in range(10_000))
        [call] = traces.named("enqueue batch")
        created = traces.named("create default")
        assert (100, 101) == (len(created), len(traces.exporter.get_finished_spans()))
        assert call.attributes
        assert 10_000 == call.attributes["messaging.batch.message_count"]
        assert {span_id(call)} == {link.context.span_id for span in created for link in span.links}
        traces.exporter.clear()
        await app.enqueue("last", b"{}")
        assert 1 == len(traces.named("enqueue default"))


def test_blocking_programs_are_traced_too(redis_url: str, traces: Traces) -> None:
    """One task, many, and one that is refused."""
    app = traces.app(redis_url)
    app.enqueue_sync("t", b"{}", unique=60)
    with pytest.raises(DuplicateTaskError):
        app.enqueue_sync("t", b"{}", unique=60)
    app.enqueue_many_sync([Task("t", b"{}", queue="many") for _ in range(3)])
    app.close_sync()
    good, refused = traces.named("enqueue default")
    assert (StatusCode.UNSET, StatusCode.ERROR) == (good.status.status_code, refused.status.status_code)
    assert refused.attributes
    assert "pyasynq.errors.DuplicateTaskError" == refused.attributes["error.type"]
    assert (3, 1) == (len(traces.named("create many")), len(traces.named("enqueue batch")))


@run_async
async def test_only_allowed_baggage_travels(redis_url: str, traces: Traces) -> None:
    """A key that is not named may hold a secret of another service."""
    app = traces.app(redis_url, baggage=["tenant"])
    seen: list[Any] = []

    @app.task("t")
    async def look() -> None:
        seen.extend((baggage.get_all(), context().headers))

    token = context_api.attach(baggage.set_baggage("secret", "x", baggage.set_baggage("tenant", "acme")))
    await look.enqueue()
    context_api.detach(token)
    await work(app)
    assert {"tenant": "acme"} == dict(seen[0])
    assert "tenant=acme" == seen[1]["baggage"]


@run_async
async def test_an_aggregated_task_leads_to_the_members_of_its_group(redis_url: str, traces: Traces) -> None:
    """Its span links to the aggregation, which links to the spans that enqueued the members."""
    app = traces.app(redis_url)
    processed = asyncio.Event()

    @app.aggregator(max_size=3)
    @link_members(tracer_provider=traces.tracers)
    async def aggregate(group: str, tasks: list[Task]) -> Task:
        return Task("all", b"{}")

    @app.task("all")
    async def run() -> None:
        processed.set()

    for _ in range(3):
        await app.enqueue("member", b"{}", group="g")
    server = app.server(WorkerConfig())
    await server.start(app)
    await processed.wait()
    await server.shutdown()
    [aggregated], [attempt] = traces.named("aggregate g"), traces.named("process default")
    members = {span_id(span) for span in traces.named("enqueue default")}
    assert members == {link.context.span_id for link in aggregated.links}
    assert [span_id(aggregated)] == [link.context.span_id for link in attempt.links]


def test_an_aggregation_links_to_128_members_at_most(traces: Traces) -> None:
    """An attribute tells how many there were."""

    @link_members(tracer_provider=traces.tracers)
    def aggregate(group: str, tasks: list[Task]) -> Task:
        return Task("all", b"{}")

    parents = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 201)]
    aggregate("g", [Task("member", headers={"traceparent": one}) for one in parents])
    [span] = traces.named("aggregate g")
    assert span.attributes
    assert (128, 200) == (len(span.links), span.attributes["messaging.batch.message_count"])


@run_async
async def test_log_records_carry_the_ids_of_trace_and_span(redis_url: str, traces: Traces) -> None:
    """The handler's records do, and the worker's own line about the outcome."""
    app = traces.app(redis_url)
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Keep()
    handler.addFilter(TaskFieldsFilter())
    loggers = [logging.getLogger(name) for name in ("mine", "pyasynq.outcomes")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)

    @app.task("t")
    async def say() -> None:
        logging.getLogger("mine").warning("hello")

    try:
        await say.enqueue()
        await work(app)
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
    [span] = traces.named("process default")
    assert span.context is not None
    expected = (f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}")
    assert {"mine", "pyasynq.outcomes"} == {record.name for record in records}
    assert {expected} == {(one.trace_id, one.span_id) for one in records}  # type: ignore[attr-defined] # extra


@run_async
async def test_metrics_follow_the_conventions(redis_url: str, traces: Traces) -> None:
    """One point for each queue, with the advised bounds."""
    app = traces.app(redis_url)
    app.task("t")(lambda: None)
    async with app:
        await app.enqueue_many(Task("t", b"{}") for _ in range(150))
    await work(app)
    found = traces.metrics()
    assert {
        "messaging.client.sent.messages",
        "messaging.client.operation.duration",
        "messaging.client.consumed.messages",
        "messaging.process.duration",
        "messaging.asynq.wait.duration",
    } == found.keys()
    [sent], [consumed] = found["messaging.client.sent.messages"], found["messaging.client.consumed.messages"]
    assert (150, 150) == (sent.value, consumed.value)
    [duration] = found["messaging.process.duration"]
    assert (150, 0.005, 10) == (duration.count, duration.explicit_bounds[0], duration.explicit_bounds[-1])


@run_async
async def test_the_instrumentor_traces_every_app_that_is_made(redis_url: str, traces: Traces) -> None:
    """Until it is told to stop; twice is once."""
    instrumentor = PyasynqInstrumentor()
    instrumentor.instrument(tracer_provider=traces.tracers)
    PyasynqInstrumentor().instrument(tracer_provider=traces.tracers)
    try:
        async with App(redis_url) as app:
            await app.enqueue("t", b"{}")
    finally:
        instrumentor.uninstrument()
    async with App(redis_url) as app:
        await app.enqueue("t", b"{}")
    assert 1 == len(traces.exporter.get_finished_spans())


@pytest.mark.parametrize("parent", [None, "creation"])
@run_async
async def test_an_unsampled_attempt_passes_on_that_it_is_not_sampled(
    redis_url: str, caplog: pytest.LogCaptureFixture, parent: str | None
) -> None:
    """No span is built for it. What it enqueues and logs has one trace id all the same."""
    exporter = InMemorySpanExporter()
    tracers = TracerProvider(sampler=ParentBasedTraceIdRatio(0.0))
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    app = App(redis_url, worker=BURST)
    trace_app(app, tracer_provider=tracers, parent=parent)  # type: ignore[arg-type] # of the parameters above
    seen: list[str] = []

    @app.task("second")
    async def second() -> None:
        seen.append(context().headers["traceparent"])

    @app.task("first")
    async def first() -> None:
        assert isinstance(trace.get_current_span(), DroppedSpan)
        logging.getLogger("mine").warning("hello")
        await second.enqueue()

    caplog.handler.addFilter(TaskFieldsFilter())
    await first.enqueue()
    await work(app)
    [record] = [one for one in caplog.records if one.name == "mine"]
    [header] = seen
    assert header.endswith("-00")
    # Ids of a trace that begins here and is dropped lead nowhere; those of a caller's are in its logs too.
    assert (header[3:35] if parent else None) == record.__dict__.get("trace_id")
    assert () == exporter.get_finished_spans()


@run_async
async def test_an_unsampled_attempt_is_measured(redis_url: str, traces: Traces) -> None:
    """Metrics count every attempt, whatever the sampler drops."""
    app = App(redis_url, worker=BURST)
    trace_app(app, tracer_provider=TracerProvider(sampler=ALWAYS_OFF), meter_provider=traces.meters)

    @app.task("t")
    async def fail() -> None:
        raise Snooze(60)

    await fail.enqueue()
    await work(app)
    assert [1] == [one.value for one in traces.metrics()["messaging.client.consumed.messages"]]
    assert [1] == [one.count for one in traces.metrics()["messaging.process.duration"]]


@run_async
async def test_metrics_name_the_trace_of_a_sampled_attempt(redis_url: str, traces: Traces) -> None:
    """As an exemplar of its run and of its wait."""
    app = traces.app(redis_url)

    @app.task("email:send", queue="mail")
    async def send() -> None: ...

    await send.enqueue()
    server, metrics = app.server(), WorkerMetrics()
    metrics.watch(server.events)
    await server.run(app, signals=False)
    [processed] = traces.named("process mail")
    assert processed.context is not None
    text = metrics.render("application/openmetrics-text")[1].decode()
    named = [line for line in text.splitlines() if f'trace_id="{processed.context.trace_id:032x}"' in line]
    assert ["run_seconds", "wait_seconds"] == [
        re.findall(r"run_seconds|wait_seconds", line)[0] for line in named
    ]


@run_async
async def test_metrics_name_no_trace_that_was_not_stored(redis_url: str) -> None:
    """The link would lead nowhere."""
    app = App(redis_url, worker=BURST)
    trace_app(app, parent="creation", tracer_provider=TracerProvider(sampler=ALWAYS_OFF))

    @app.task("email:send", queue="mail")
    async def send() -> None: ...

    await send.enqueue()
    server, metrics = app.server(), WorkerMetrics()
    metrics.watch(server.events)
    await server.run(app, signals=False)
    text = metrics.render("application/openmetrics-text")[1].decode()
    assert 'pyasynq_task_run_seconds_count{queue="mail",type="email:send"} 1' in text
    assert "trace_id" not in text
