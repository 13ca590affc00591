"""Metrics of all queues, and of clients, on a real Redis."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from a2wsgi import WSGIMiddleware
from httpx import ASGITransport, AsyncClient
from prometheus_client.parser import text_string_to_metric_families as parse

from pyasynq.app import App
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.errors import DuplicateTaskError
from pyasynq.inspector import Inspector
from pyasynq.metrics import EnqueueMetrics, MetricsApp, MetricsWsgi, QueueMetrics
from pyasynq.operations import Operator, User
from pyasynq.options import DEFAULT_QUEUE
from pyasynq.task import Task, TaskState
from tests.factories import Tasks
from tests.fix_engine import do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.fix_drivers import OwnServer
    from tests.invariants import RedisClient

HOUR = timedelta(hours=1)


def read(body: bytes) -> dict[str, float]:
    """Return the samples of an exposition by name and label values."""
    found = {}
    for family in parse(body.decode()):
        for sample in family.samples:
            found[" ".join((sample.name, *sample.labels.values()))] = sample.value
    return found


async def scrape(url: str, **settings: Any) -> dict[str, float]:
    """Return what one scrape shows."""
    async with QueueMetrics(url, **settings) as metrics:
        return read((await metrics.render())[1])


@run_async
async def test_each_state_is_counted_under_asynqs_names_and_ours(redis_url: str, tasks: Tasks) -> None:
    """Asynq leaves out what waits in groups; ours does not, and neither does the size of a queue."""
    tasks.pending("a", "b")
    tasks.put(TaskState.ARCHIVED, "c")
    async with Client(redis_url) as client:
        await client.enqueue(Task("t", group="g"))
        await client.enqueue(Task("t", process_in=HOUR))
    found = await scrape(redis_url)
    for state, number in {"pending": 2, "archived": 1, "scheduled": 1, "retry": 0, "active": 0}.items():
        assert number == found[f"asynq_tasks_enqueued_total default {state}"]
        assert number == found[f"pyasynq_queue_tasks default {state}"]
    assert (5, 1) == (found["asynq_queue_size default"], found["pyasynq_queue_tasks default aggregating"])
    assert "asynq_tasks_enqueued_total default aggregating" not in found
    assert found["asynq_queue_memory_usage_approx_bytes default"] > 0
    assert (1, 0) == (found["pyasynq_redis_up"], found["pyasynq_unreadable_queues"])


@run_async
async def test_tasks_that_are_due_and_not_forwarded_are_counted(redis_url: str, tasks: Tasks) -> None:
    """Without a worker nothing forwards them, and a scaler sees that there is work."""
    tasks.put(TaskState.SCHEDULED, "late", score=1)
    tasks.put(TaskState.RETRY, "again", score=1)
    async with Client(redis_url) as client:
        await client.enqueue(Task("t", process_in=HOUR))
    found = await scrape(redis_url)
    assert (2, 2) == (found["pyasynq_queue_due_tasks default"], found["pyasynq_queue_load default"])


@run_async
async def test_servers_show_as_consumers_slots_and_load(redis_url: str) -> None:
    """A server that takes no more tasks is not among them."""
    config = ServerConfig(queues={"a": 1, "b": 1}, concurrency=10)
    async with serving(redis_url, do_nothing, config) as running:
        await running.client.enqueue("t", queue="a", task_id="x")
        await running.finished("x")
        await running.settled()
        async with Inspector(redis_url) as inspector:
            await inspector.pause_queue("a")
        await running.client.enqueue_many([Task("t", queue="a")] * 5)
        found = await scrape(redis_url)
        assert (1, 10, 0.5) == tuple(
            found[f"pyasynq_queue_{name} a"] for name in ("consumers", "slots", "load")
        )
        assert (1, 1, 0) == (
            found["asynq_queue_paused_total a"],
            found["asynq_tasks_processed_total a"],
            found["asynq_tasks_failed_total a"],
        )
        assert (1, 0) == (found["pyasynq_servers pyasynq"], found["pyasynq_servers asynq"])
    assert 0 == (await scrape(redis_url))["pyasynq_queue_consumers a"]


@run_async
async def test_queues_beyond_the_limit_are_added_up(redis_url: str, redis_client: RedisClient) -> None:
    """The first queues by name keep their samples; the others share `_other`, with the longest latency."""
    for name, number in (("a", 1), ("b", 2), ("c", 3)):
        Tasks(redis_client, name).pending(*(f"{name}{at}" for at in range(number)))
    found = await scrape(redis_url, max_queues=1)
    assert (1, 5) == (found["asynq_queue_size a"], found["asynq_queue_size _other"])
    assert "asynq_queue_size b" not in found


@run_async
async def test_only_queues_of_the_patterns_are_shown(redis_url: str, redis_client: RedisClient) -> None:
    """The others are not read."""
    for name in ("mail-a", "mail-b", "other"):
        Tasks(redis_client, name).pending(name)
    found = await scrape(redis_url, queues="mail-*")
    assert {"mail-a", "mail-b"} == {name.split()[1] for name in found if name.startswith("asynq_queue_size ")}


@pytest.mark.usefixtures("damage_allowed")
@run_async
async def test_a_damaged_queue_hides_no_other(redis_url: str, redis_client: RedisClient) -> None:
    """It is counted as unreadable."""
    Tasks(redis_client, "good").pending("x")
    Tasks(redis_client, "bad").pending("y")
    redis_client.delete("asynq:{bad}:pending")
    redis_client.set("asynq:{bad}:pending", "not a list")
    found = await scrape(redis_url)
    assert (1, 1) == (found["asynq_queue_size good"], found["pyasynq_unreadable_queues"])
    assert "asynq_queue_size bad" not in found


@run_async
async def test_without_redis_a_scrape_says_so(own_server: OwnServer) -> None:
    """Stale figures would look alive. It reads again at the next scrape."""
    async with QueueMetrics(own_server.url, timeout=0.2, share=0) as metrics:
        own_server.stop()
        assert {"pyasynq_redis_up": 0} == read((await metrics.render())[1])
        assert metrics.error is not None
        own_server.start()
        assert 1 == read((await metrics.render())[1])["pyasynq_redis_up"]
        assert metrics.error is None


@run_async
async def test_scrapes_at_the_same_time_share_one_reading(redis_url: str, tasks: Tasks) -> None:
    """And later ones, until fifty times its duration is over: 2 % of Redis' time at most."""
    tasks.pending("a")
    async with QueueMetrics(redis_url, share=1e9) as metrics:
        first, second = await asyncio.gather(metrics.read(), metrics.read())
        assert first is second
        assert first is await metrics.read()
    async with QueueMetrics(redis_url, share=0) as metrics:
        assert await metrics.read() is not await metrics.read()


@run_async
async def test_an_asgi_application_answers_scrapes(redis_url: str, tasks: Tasks) -> None:
    """At any path; it changes nothing, so nothing else than GET and HEAD is allowed."""
    tasks.pending("a")
    app = MetricsApp(redis_url)
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as http:
        answer = await http.get("/", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert answer.text.endswith("# EOF\n")
        assert 'asynq_queue_size{queue="default"} 1' in answer.text
        assert (200, "") == ((head := await http.head("/")).status_code, head.text)
        assert 405 == (await http.post("/")).status_code
    await app.aclose()


@run_async
async def test_a_wsgi_application_answers_scrapes(redis_url: str, tasks: Tasks) -> None:
    """From any thread; closing it twice is harmless."""
    tasks.pending("a")
    app = MetricsWsgi(redis_url)
    site: Any = WSGIMiddleware(app)  # type: ignore[arg-type] # narrower types than WSGI has
    async with AsyncClient(transport=ASGITransport(site), base_url="http://test") as http:
        assert 'asynq_queue_size{queue="default"} 1' in (await http.get("/")).text
        assert 405 == (await http.post("/")).status_code
    await asyncio.to_thread(app.close)
    app.close()


@run_async
async def test_a_program_that_enqueues_counts_results(redis_url: str) -> None:
    """With await and without; what raises is raised as before."""
    metrics = EnqueueMetrics()
    app = App(redis_url, client_middleware=[metrics])
    async with app:
        await app.enqueue("t", unique=60)
        with pytest.raises(DuplicateTaskError):
            await app.enqueue("t", unique=60)
        await app.enqueue("t", unique=60, on_duplicate="ignore")
        await asyncio.to_thread(app.enqueue_sync, "other", queue="q")
    found = read(metrics.render()[1])
    name = "pyasynq_tasks_enqueued_total"
    assert {
        f"{name} {DEFAULT_QUEUE} t enqueued": 1,
        f"{name} {DEFAULT_QUEUE} t duplicate": 2,
        f"{name} q other enqueued": 1,
    } == found


@run_async
async def test_the_latency_is_that_of_the_oldest_pending_task(
    redis_url: str, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The latency counts from the moment at which the task became pending."""
    tasks.pending("a")
    redis_client.hset(tasks.keys.task("a"), "pending_since", time.time_ns() - 90 * 10**9)
    latency = (await scrape(redis_url))["asynq_queue_latency_seconds default"]
    assert 90 <= latency < 90 + 60


@run_async
async def test_findings_are_exposed_on_request(
    redis_url: str, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Each detector and queue has one sample, with the highest severity."""
    tasks.pending("a")
    redis_client.hset(tasks.keys.task("a"), "pending_since", time.time_ns() - 3_600 * 10**9)
    found = await scrape(redis_url, attention=True)
    assert 1 <= found["pyasynq_attention no_consumers default"] <= 5
    assert not [name for name in await scrape(redis_url) if name.startswith("pyasynq_attention")]


@run_async
async def test_objectives_are_exposed_with_the_findings(redis_url: str, tasks: Tasks) -> None:
    """A queue's own, or the one of all; alerts and charts compare waits with them."""
    tasks.pending("a")
    async with Operator(redis_url, User.with_role("ana", "admin")) as operator:
        await operator.set_wait_objective("default", 30, reason="customers wait")
    Tasks(tasks.client, "low").pending("a")
    found = await scrape(redis_url, attention=True)
    assert (30, 300) == tuple(
        found[f"pyasynq_queue_wait_objective_seconds {queue}"] for queue in ("default", "low")
    )
    assert not [name for name in await scrape(redis_url) if "objective" in name]
