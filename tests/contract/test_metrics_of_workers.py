"""What a server measures for metrics while it runs tasks on a real Redis."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families as parse

from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.events import WorkerDied, WorkerMeasured
from pyasynq.inspector import Inspector
from pyasynq.metrics import WorkerMetrics
from pyasynq.task import Task
from tests.contract.test_statistics import an_hour_ago
from tests.fix_consumer import consuming
from tests.fix_engine import QUICK, do_nothing, make_server, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq.server import Server
    from tests.factories import Tasks

BURST = ServerConfig(burst=True, concurrency=10)
TOTAL = "pyasynq_tasks_finished_total default t"


def with_metrics(url: str, config: ServerConfig = BURST) -> tuple[Server, WorkerMetrics]:
    """Return a server that nothing else subscribes to, and its metrics."""
    server = make_server(url, config)
    metrics = WorkerMetrics()
    metrics.watch(server.events)
    return server, metrics


def read(metrics: WorkerMetrics) -> dict[str, float]:
    """Return all samples by name and label values."""
    samples = [one for family in parse(metrics.render()[1].decode()) for one in family.samples]
    return {" ".join((one.name, *one.labels.values())): one.value for one in samples}


async def fail_if_told(task: Task) -> None:
    """Fail if the payload says so."""
    if task.payload == b"fail":
        raise ValueError("no")


@run_async
async def test_totals_are_the_tasks_that_ran(redis_url: str) -> None:
    """At the latest when the server has closed, with a duration for each of them."""
    server, metrics = with_metrics(redis_url)
    async with Client(redis_url) as client:
        await client.enqueue_many([Task("t") for _ in range(500)])
        await client.enqueue_many([Task("t", b"fail", max_retry=0) for _ in range(7)])
    await server.run(fail_if_told, signals=False)
    found = read(metrics)
    assert (500, 7) == (found[f"{TOTAL} succeeded"], found[f"{TOTAL} archived"])
    for name in ("run", "wait"):
        assert 507 == found[f"pyasynq_task_{name}_seconds_count default t"]
    assert (10, 0, 0) == (
        found["pyasynq_slots"],
        found["pyasynq_tasks_running default"],
        found["pyasynq_unwritten_outcomes"],
    )
    assert 507 == found["pyasynq_batch_size_sum"]
    assert found["pyasynq_redis_roundtrip_seconds_count"] >= 1


@run_async
async def test_metrics_need_no_statistics_and_write_nothing(redis_url: str) -> None:
    """They are counted in the same way."""
    server, metrics = with_metrics(redis_url, dataclasses.replace(BURST, statistics=False))
    async with Client(redis_url) as client:
        await client.enqueue("t")
    await server.run(do_nothing, signals=False)
    assert 1 == read(metrics)[f"{TOTAL} succeeded"]
    async with Inspector(redis_url) as inspector:
        assert [] == await inspector.attempt_series("default", since=an_hour_ago())


@run_async
async def test_statistics_and_metrics_each_have_every_attempt(redis_url: str) -> None:
    """Whichever of them takes the counts."""
    server, metrics = with_metrics(redis_url)
    server._settings = QUICK
    async with Client(redis_url) as client, Inspector(redis_url) as inspector:
        await client.enqueue_many([Task("t") for _ in range(300)])
        await server.run(do_nothing, signals=False)
        [series] = await inspector.attempt_series("default", since=an_hour_ago())
    assert (300, 300) == (series.total.succeeded, read(metrics)[f"{TOTAL} succeeded"])


@run_async
async def test_a_server_that_nothing_measures_has_no_service_for_it(redis_url: str) -> None:
    """And no counts, if it is told to keep no statistics."""
    server = make_server(redis_url, ServerConfig(statistics=False))
    await server.start(do_nothing)
    engine = server._engine
    assert engine is not None
    try:
        assert engine._parts.tally is None
        assert not {"metrics", "statistics"} & {service.name for service in engine._started}
    finally:
        await server.shutdown()


@run_async
async def test_running_attempts_and_busy_slots_are_measured(redis_url: str) -> None:
    """A long attempt counts while it runs, not only when it ends."""
    release = asyncio.Event()

    async def wait(_: Task) -> None:
        await release.wait()

    async with serving(redis_url, wait) as running:
        await running.client.enqueue("t", task_id="a")
        first = await running.recorder.wait(WorkerMeasured, lambda event: event.running["default"] == 1)
        second = await running.recorder.wait(WorkerMeasured, new=True)
        release.set()
        await running.finished("a")
    assert (10, True) == (first.slots, second.busy_seconds > 0.5)
    measured = running.recorder.of(WorkerMeasured)
    [series] = [event.counts["default"]["t"] for event in measured if event.counts]
    busy = sum(event.busy_seconds for event in measured)
    assert abs(busy - series.run.seconds) < 0.01


@run_async
async def test_a_task_that_a_supervisor_took_back_is_counted(redis_url: str) -> None:
    """By the process that is told of it, in metrics and statistics; without any hook."""
    async with serving(redis_url, do_nothing) as running:
        for archived in (False, True, True):
            event = WorkerDied("default", "id", "t", 0, 3, 1, "server", archived)
            running.server.request_hooks(event)
        await running.recorder.wait(WorkerMeasured, lambda event: bool(event.counts))
    found = [event.counts["default"]["t"] for event in running.recorder.of(WorkerMeasured) if event.counts]
    assert (1, 2) == (sum(one.recovered for one in found), sum(one.poisoned for one in found))
    async with Inspector(redis_url) as inspector:
        [series] = await inspector.attempt_series("default", since=an_hour_ago())
    assert (1, 2) == (series.total.recovered, series.total.poisoned)


@run_async
async def test_a_consumer_is_measured_without_slots(redis_url: str, tasks: Tasks) -> None:
    """Its attempts are counted as those of a server."""
    tasks.pending("a", type="t")
    async with consuming(redis_url) as c, c.consumer.take("default", limit=1) as attempts:
        await attempts[0].done()
    measured = c.recorder.of(WorkerMeasured)
    assert {0} == {event.slots for event in measured}
    assert 1 == sum(event.counts["default"]["t"].succeeded for event in measured if event.counts)
