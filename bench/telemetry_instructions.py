"""Instructions that statistics, metrics and traces add to a task, counted by callgrind.

Run it by `python -m bench.telemetry_instructions`; it needs valgrind.

The parts of the work are run in loops, without Redis and without services, so the counts do not depend on
what else the machine does. Counts of whole drains do depend on it: on a busy machine, more periodic work is
counted for each task.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from pyasynq._engine.handlers.middleware import wrap_route
from pyasynq._engine.handlers.routes import Route
from pyasynq._engine.tally import Cell
from pyasynq.contrib.otel import WorkerTracing
from pyasynq.events import Events, ExchangeEnded, TaskFinished
from pyasynq.metrics import WorkerMetrics
from pyasynq.task import Task
from pyasynq.testing import task_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TIMES: Final = 5_000
DRAIN: Final = 106_200
"""Instructions of an empty task in a drain on an idle machine, as reference of the percentages."""
_TOTAL: Final = re.compile(rb"^totals: (\d+)$", re.MULTILINE)


class _Ended:
    """Placeholder for an ended attempt, with the attributes that are measured."""

    started = time.monotonic()
    waited = 0.5
    cause = None


async def do_nothing(_task: Task) -> None:
    """Do nothing: the handler of the measured task."""


async def pass_on(task: Task, call_next: Callable[[Task], Awaitable[Any]]) -> Any:
    """Call the next function only: the minimal cost of any middleware."""
    return await call_next(task)


def make_tracing(ratio: float) -> WorkerTracing:
    """Return middleware that samples this share of the attempts."""
    provider = TracerProvider(sampler=TraceIdRatioBased(ratio))
    provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
    return WorkerTracing(tracer_provider=provider)


def make_calls(*middleware: Any) -> Callable[[], None]:
    """Return a function that repeatedly calls a handler inside middleware."""
    call: Any = wrap_route(Route(do_nothing), middleware).call
    task = Task("t", b"{}")

    async def repeat() -> None:
        for _ in range(TIMES):
            await call(task)

    def run() -> None:
        with task_context():
            asyncio.run(repeat())

    return run


def count_successes() -> None:
    """Count as the runner does; measure one attempt in 32."""
    cell = Cell()
    cells = {"t": cell}
    for _ in range(TIMES):
        one = cells["t"]
        one.succeeded += 1
        if one.succeeded >= one.measure_at:
            one.measure(_Ended(), time.monotonic())


def make_events() -> tuple[Callable[[], None], Callable[[], None]]:
    """Return functions that query whether metrics want each success, and that report exchanges with Redis."""
    events = Events()
    WorkerMetrics().watch(events)

    def ask() -> None:
        for _ in range(TIMES):
            events.wants_routine(TaskFinished)

    def exchange() -> None:
        for _ in range(TIMES):
            events.emit(ExchangeEnded(0.001, 50, 2))

    return ask, exchange


def make_parts() -> dict[str, Callable[[], None]]:
    """Return the functions whose instructions are counted, by name."""
    ask, exchange = make_events()
    return {
        "a handler alone": make_calls(),
        "in middleware that does nothing": make_calls(pass_on),
        "traced, none sampled": make_calls(make_tracing(0.0)),
        "traced, 1 % sampled": make_calls(make_tracing(0.01)),
        "counting a success": count_successes,
        "asking whether metrics want it": ask,
        "an exchange, for some 50 tasks": exchange,
    }


def run_parts() -> None:
    """Run all parts under callgrind, which writes its counts at each `getppid`."""
    parts = make_parts()
    for part in parts.values():
        part()
        os.getppid()
        part()
        os.getppid()
    os._exit(0)


def main() -> None:
    """Print the instructions of each part."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "counts")
        callgrind = ("valgrind", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={out}")
        command = (*callgrind, sys.executable, "-m", "bench.telemetry_instructions", "parts")
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        for at, name in enumerate(make_parts()):
            total = int(_TOTAL.findall(Path(f"{out}.{2 * at + 2}").read_bytes())[-1])
            print(f"{name:36}{total / TIMES:9,.0f} instructions {total / TIMES / DRAIN:6.1%}")


if __name__ == "__main__":
    if sys.argv[1:] == ["parts"]:
        run_parts()
    main()
