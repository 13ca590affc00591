"""Cost of statistics, metrics and traces on a whole drain.

Run it by `python -m bench.telemetry_cost [TASKS] [ROUNDS]`.

One server in this process runs tasks whose handler does nothing, on an embedded server. The variants take
turns within each round, so that slow moments of the machine affect all of them; the medians are compared.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from pyasynq import sync
from pyasynq.app import App
from pyasynq.contrib.otel import trace_app
from pyasynq.embedded import EmbeddedServer
from pyasynq.metrics import WorkerMetrics
from pyasynq.task import Task
from pyasynq.worker_config import WorkerConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.server import Server

TASKS: Final = 40_000
ROUNDS: Final = 9
SAMPLED: Final = 0.01


def make_server(url: str, *, statistics_on: bool, traces: bool = False) -> Callable[[], tuple[App, Server]]:
    """Return a function that makes an app and its server."""

    def make() -> tuple[App, Server]:
        app = App(url)
        if traces:
            provider = TracerProvider(sampler=TraceIdRatioBased(SAMPLED))
            provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
            trace_app(app, tracer_provider=provider)

        @app.task("t")
        async def do_nothing() -> None: ...

        return app, app.server(WorkerConfig(burst=True, statistics=statistics_on))

    return make


def with_metrics(make: Callable[[], tuple[App, Server]]) -> Callable[[], tuple[App, Server]]:
    """Return a function that makes the same server with metrics."""

    def make_measured() -> tuple[App, Server]:
        app, server = make()
        WorkerMetrics().watch(server.events)
        return app, server

    return make_measured


def drain(url: str, make: Callable[[], tuple[App, Server]], tasks: int) -> tuple[float, float]:
    """Run one drain; return its wall-clock seconds, and this process' CPU seconds."""
    with sync.Client(url) as client:
        client.enqueue_many(Task("t", b"{}") for _ in range(tasks))
    app, server = make()
    gc.collect()
    began, used = time.perf_counter(), time.process_time()
    asyncio.run(server.run(app, signals=False))
    return time.perf_counter() - began, time.process_time() - used


def main(tasks: int = TASKS, rounds: int = ROUNDS) -> None:
    """Print the medians, and the cost of each variant relative to the first."""
    with EmbeddedServer() as redis:
        off = make_server(redis.url, statistics_on=False)
        variants = {
            "nothing": off,
            "statistics": make_server(redis.url, statistics_on=True),
            "metrics": with_metrics(off),
            "statistics and metrics": with_metrics(make_server(redis.url, statistics_on=True)),
            "traces, 1 % sampled": make_server(redis.url, statistics_on=False, traces=True),
        }
        for make in variants.values():
            drain(redis.url, make, 2_000)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
        for number in range(rounds):
            names = list(variants)
            for name in names if number % 2 else reversed(names):
                taken[name].append(drain(redis.url, variants[name], tasks))
    base = [statistics.median(one[at] for one in taken["nothing"]) for at in (0, 1)]
    for name, pairs in taken.items():
        wall, used = (statistics.median(one[at] for one in pairs) for at in (0, 1))
        print(
            f"{name:24}{tasks / wall:9,.0f} tasks/s {wall / base[0] - 1:+7.1%}"
            f"{used / tasks * 1e6:9.2f} µs of CPU a task {used / base[1] - 1:+7.1%}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
