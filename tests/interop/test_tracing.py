"""One trace from a Go producer through a Python worker to a Go worker, under OpenTelemetry's own SDKs."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pyasynq.app import App
from pyasynq.contrib.otel import trace_app
from pyasynq.worker_config import WorkerConfig
from tests.interop.go_peer import build_program

if TYPE_CHECKING:
    from typing import Literal

    from opentelemetry.sdk.trace import ReadableSpan

SOURCE = Path(__file__).parent / "tracing"


@pytest.fixture(scope="session")
def tracing(programs: Path) -> Path:
    """The compiled peer."""
    return build_program(SOURCE, programs)


def run_go(program: Path, redis_url: str, word: str) -> list[str]:
    """Run the peer, and return the ids that it prints."""
    url = redis_url.replace("unix://", "redis-socket://", 1)
    done = subprocess.run([program, url, word], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.split()


@pytest.mark.parametrize("parent", ["creation", None])
def test_a_trace_goes_from_go_through_python_to_go(
    redis_url: str, tracing: Path, parent: Literal["creation"] | None
) -> None:
    """As parents all is one trace; by default an attempt links to what enqueued its task."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = App(redis_url, worker=WorkerConfig(burst=True))
    trace_app(app, parent=parent, tracer_provider=provider)

    @app.task("last", queue="go")
    async def last() -> None: ...

    @app.task("middle")
    async def middle() -> None:
        await last.enqueue()

    trace_id, request = run_go(tracing, redis_url, "produce")
    asyncio.run(app.server(WorkerConfig(burst=True, queues={"default": 1})).run(app, signals=False))
    last_trace, last_parent = run_go(tracing, redis_url, "consume")

    process, enqueue = find(exporter, "process default"), find(exporter, "enqueue go")
    assert process.context
    assert enqueue.context
    assert enqueue.parent
    assert [request] == [f"{link.context.span_id:016x}" for link in process.links]
    assert process.context.span_id == enqueue.parent.span_id
    assert f"{enqueue.context.trace_id:032x}" == last_trace
    assert f"{enqueue.context.span_id:016x}" == last_parent
    assert (last_trace == trace_id) is (parent == "creation")


def find(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    """Return the span of a name."""
    [span] = [one for one in exporter.get_finished_spans() if one.name == name]
    return span
