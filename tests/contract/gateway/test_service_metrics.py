"""Metrics, access log and trace context of the service."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from pyasynq.cli.logs import JsonFormatter, TextFormatter
from pyasynq.contrib.otel import ClientTracing
from pyasynq.contrib.otel.client import join_trace
from pyasynq.events import TaskRecovered
from pyasynq.gateway.api.request_log import find_pattern
from pyasynq.gateway.api.service import count_lapses
from pyasynq.gateway.api.site import ServiceSite
from pyasynq.gateway.api.table import SERVICE_ROUTES
from pyasynq.gateway.leases import lease_routes
from pyasynq.gateway.request_trace import read_trace
from pyasynq.gateway.service_metrics import ServiceMetrics
from pyasynq.metrics.families import FAMILIES, Origin
from pyasynq.operations import ServiceDoor
from tests.fix_service import Visitor, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CONTEXT = {"traceparent": TRACE, "tracestate": "vendor=1"}


@asynccontextmanager
async def visiting(url: str, **options: Any) -> AsyncIterator[Visitor]:
    """Run the whole site for the time of a block."""
    async with serving(url, **options) as visitor:
        site = ServiceSite(visitor.service, None)
        transport = httpx.ASGITransport(site)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            visitor.client = client
            yield visitor


async def scrape(visitor: Visitor, **options: Any) -> dict[tuple[str, ...], float]:
    """Return the values by name and labels."""
    answer = await visitor.ask("GET", "/metrics", **options)
    assert 200 == answer.status_code, answer.text
    return {
        (sample.name.removeprefix("pyasynq_service_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@run_async
async def test_the_tasks_of_a_batch_are_counted_by_outcome(redis_url: str) -> None:
    """As separate requests would count them, and without the item whose type does not exist."""
    async with visiting(redis_url) as visitor:
        new = {"type": "resize", "options": {"task_id": "a"}}
        other = {"type": "resize", "options": {"unique": 60, "on_duplicate": "return_existing"}}
        answer = await visitor.ask(
            "POST", "/v1/tasks:batch", {"tasks": [new, new, other, other, {"type": "no"}]}
        )
        statuses = [one["status"] for one in answer.json()["results"]]
        values = await scrape(visitor)

    assert [201, 409, 201, 200, 422] == statuses
    assert {
        ("tasks_total", "resize", "resize", "enqueued"): 2,
        ("tasks_total", "resize", "resize", "conflict"): 1,
        ("tasks_total", "resize", "resize", "existing"): 1,
    } == {name: value for name, value in values.items() if name[0] == "tasks_total"}


@run_async
async def test_requests_leases_and_tasks_are_counted(redis_url: str) -> None:
    """Each family of the service is filled by what it says, except lapses, which take seconds."""
    async with visiting(redis_url) as visitor:
        new = {"type": "resize", "options": {"task_id": "a"}}
        for _ in range(2):
            await visitor.ask("POST", "/v1/tasks", new)
        task = await visitor.take("resize")
        answer = await visitor.ask("POST", f"/v1/attempts/{task['token']}:extend", {"lease": 60})
        held = await scrape(visitor)
        await visitor.settle(answer.json(), "complete")
        refused = await visitor.ask("POST", f"/v1/attempts/{task['token']}x:fail", {"error": "e"})
        assert 404 == refused.status_code
        await visitor.ask("POST", "/v1/attempts:batch", {"attempts": [{"act": "release", "token": "x"}]})
        values = await scrape(visitor)

    tasks = {
        ("tasks_total", "resize", "resize", "enqueued"): 1,
        ("tasks_total", "resize", "resize", "conflict"): 1,
    }
    requests = {
        ("requests_total", "/v1/tasks", "POST", "201"): 1,
        ("requests_total", "/v1/tasks", "POST", "409"): 1,
        ("requests_total", "/v1/leases", "POST", "200"): 1,
        ("requests_total", "/v1/attempts/{token}:extend", "POST", "200"): 1,
        ("requests_total", "/v1/attempts/{token}:complete", "POST", "204"): 1,
        ("requests_total", "/v1/attempts/{token}:fail", "POST", "404"): 1,
        ("requests_total", "/v1/attempts:batch", "POST", "200"): 1,
        ("requests_total", "/metrics", "GET", "200"): 1,
        ("request_seconds_count", "/v1/tasks"): 2,
    }
    leases = {
        ("leases_total", "resize"): 1,
        ("extends_total", "resize"): 1,
        ("settles_total", "resize", "complete"): 1,
        ("acts_refused_total", "fail", "attempt_not_found"): 1,
        ("acts_refused_total", "release", "attempt_not_found"): 1,
        ("parked_polls",): 0,
        ("leases_held",): 0,
    }
    assert tasks | requests | leases == {key: values.get(key) for key in tasks | requests | leases}
    assert (1, None) == (held["leases_held",], held.get(("settles_total", "resize", "complete")))
    told = {name for name, *_ in values}
    families = [name for name, one in FAMILIES.items() if one.origin is Origin.SERVICE]
    missing = {name.removeprefix("pyasynq_service_") for name in families} - told
    hosted = {"deliveries_total", "delivery_seconds", "list_workers"}
    hosted |= {"commands_total", "command_seconds", "command_cpu_seconds_total", "commands_killed_total"}
    hosted |= {"host_throttled", "door_connections", "door_jobs"}
    assert {"leases_lapsed_total", "request_seconds"} | hosted == missing


@run_async
async def test_metrics_need_a_key_with_their_scope(redis_url: str) -> None:
    """Names of queues are in them."""
    async with visiting(redis_url, needs_keys=True) as visitor:
        right = await visitor.make_key("metrics:read", name="prometheus")
        wrong = await visitor.make_key("tasks:write", name="billing")
        statuses = [
            (await visitor.ask("GET", "/metrics", key=key)).status_code for key in (right, wrong, None)
        ]
        assert [200, 403, 401] == statuses


@pytest.mark.parametrize("form", ["text", "json"])
@run_async
async def test_a_line_of_the_log_has_no_secrets(
    redis_url: str, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    """No token, no value of the query, no names of tasks; the key by its id."""
    caplog.set_level(logging.DEBUG, "pyasynq.access")
    async with visiting(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("tasks:write", "tasks:read", "work")
        await visitor.ask(
            "POST", "/v1/tasks", {"type": "resize", "options": {"task_id": "customer-7"}}, key=key
        )
        answer = await visitor.ask("POST", "/v1/leases", {"queues": ["resize"]}, key=key)
        [task] = answer.json()["tasks"]
        await visitor.ask("POST", f"/v1/attempts/{task['token']}:complete", {}, key=key)
        await visitor.ask("GET", "/v1/tasks/resize/customer-7/result?wait=0.1875", key=key)
        await visitor.ask("GET", "/v1/customer-7", key=key + "x")
        await visitor.ask("GET", "/live")
        key_id = visitor.keys["test"].key.id
    formatter = JsonFormatter() if form == "json" else TextFormatter(terminal=False, colour=False)
    records = [one for one in caplog.records if one.name == "pyasynq.access"]
    lines = [formatter.format(record) for record in records]
    text = "\n".join(lines)
    for secret in (task["token"], "customer-7", "0.1875", key.split("_")[2]):
        assert secret not in text
    levels = ["INFO"] * 5 + ["DEBUG"]
    assert levels == [record.levelname for record in records]
    if form == "json":
        shown = [json.loads(line) for line in lines]
        told = [(one["method"], one["route"], one["status"], one["key"]) for one in shown]
        assert [
            ("POST", "/v1/tasks", 201, key_id),
            ("POST", "/v1/leases", 200, key_id),
            ("POST", "/v1/attempts/{token}:complete", 204, key_id),
            ("GET", "/v1/tasks/{queue}/{task}/result", 200, key_id),
        ] == told[:4]
        assert (0, True) == (shown[2]["bytes"], shown[0]["bytes"] > 0)
        assert shown[0]["milliseconds"] > 0
    else:
        assert "POST /v1/tasks 201 in" in lines[0]
        assert f"key {key_id}" in lines[0]


def test_each_route_has_its_pattern() -> None:
    """Names with an act's colon stay names; what is not ours is the dashboard's."""
    paths = [route.path for route in SERVICE_ROUTES]
    paths += [route.path for route in lease_routes(None, None)]  # type: ignore[arg-type]
    assert paths == [find_pattern(path.replace("{", "").replace("}", "x")) for path in paths]
    assert ("other", "other", "dashboard", "dashboard") == tuple(
        map(find_pattern, ("/v1", "/v1/x/y/z/u", "/", "/queues/secret"))
    )


@run_async
async def test_the_trace_of_a_request_goes_on_in_its_task(redis_url: str) -> None:
    """Through the enqueue to the worker; a task's own headers win."""
    async with visiting(redis_url) as visitor:
        await visitor.ask("POST", "/v1/tasks", {"type": "deliver"}, headers=CONTEXT)
        own = {"traceparent": TRACE.replace("4", "5")}
        await visitor.ask(
            "POST", "/v1/tasks", {"type": "deliver", "options": {"headers": own}}, headers=CONTEXT
        )
        batch = {"tasks": [{"type": "deliver"}]}
        await visitor.ask("POST", "/v1/tasks:batch", batch, headers=CONTEXT)
        await visitor.ask("POST", "/v1/tasks", {"type": "deliver"})
        for headers in (CONTEXT, own, CONTEXT, {}):
            task = await visitor.take("deliver")
            assert headers == task["headers"]
            await visitor.settle(task, "complete")


@pytest.mark.parametrize(
    "parents",
    [
        [], [""], ["x"], [TRACE, TRACE], [TRACE.replace("00-", "ff-", 1)], [TRACE.upper()], [TRACE + "-1"],
        ["00-" + "0" * 32 + TRACE[35:]], [TRACE[:36] + "0" * 16 + "-01"], ["ü" * 55],
    ],
)  # fmt: skip
def test_a_damaged_trace_is_none(parents: list[str]) -> None:
    """Anyone may have written it."""
    headers = [(b"traceparent", one.encode("latin-1")) for one in parents]
    assert {} == read_trace({"type": "http", "headers": headers})


def test_a_later_version_of_a_trace_is_read_as_this_one() -> None:
    """As the specification says; a state that is too long is left out."""
    later = TRACE.replace("00-", "cc-", 1)[:-2] + "ff-more"
    headers = [(b"traceparent", later.encode()), (b"tracestate", b"a=" + b"x" * 600)]
    assert {"traceparent": TRACE} == read_trace({"type": "http", "headers": headers})


@run_async
async def test_one_trace_covers_request_and_enqueue(redis_url: str) -> None:
    """With OpenTelemetry the enqueue is a span of the caller's trace, and the task carries that span."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    middleware = (join_trace, ClientTracing(tracer_provider=provider))
    async with visiting(redis_url, client_middleware=middleware) as visitor:
        await visitor.ask("POST", "/v1/tasks", {"type": "resize"}, headers=CONTEXT)
        task = await visitor.take("resize")
    [span] = exporter.get_finished_spans()
    assert span.parent is not None
    assert span.context is not None
    trace, parent = TRACE.split("-")[1:3]
    assert (trace, parent) == (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}")
    assert f"00-{trace}-{span.context.span_id:016x}-01" == task["headers"]["traceparent"]


def test_connections_and_jobs_of_a_door_are_measured() -> None:
    """By the protocol of the door, and by what a connection does."""
    metrics = ServiceMetrics()
    door = ServiceDoor(
        "i", "gearman", "h:4730", "h", "open", datetime.now(UTC), workers=3, clients=2, running=1
    )
    metrics.measure(parked=0, held=0, listening={}, door=door)
    told = metrics.render()[1].decode()
    assert 'pyasynq_service_door_connections{door="gearman",role="worker"} 3' in told
    assert 'pyasynq_service_door_connections{door="gearman",role="client"} 2' in told
    assert 'pyasynq_service_door_jobs{door="gearman"} 1' in told


def test_a_lease_that_lapses_is_counted() -> None:
    """By the event of the consumer that puts its task back."""
    metrics = ServiceMetrics()
    count_lapses(metrics).emit(TaskRecovered("resize", "a", 1, "s"))
    assert 'pyasynq_service_leases_lapsed_total{queue="resize"} 1' in metrics.render()[1].decode()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="only with Prometheus' promtool")
@run_async
async def test_promtool_accepts_the_exposition(redis_url: str) -> None:
    """Names, units and types are as Prometheus wants them."""
    async with visiting(redis_url) as visitor:
        await visitor.ask("POST", "/v1/tasks", {"type": "resize"})
        await visitor.settle(await visitor.take("resize"), "complete")
        answer = await visitor.ask("GET", "/metrics")
    done = subprocess.run(  # noqa: ASYNC221 - nothing else runs
        ["promtool", "check", "metrics"], input=answer.content, capture_output=True, check=False
    )
    assert (0, b"") == (done.returncode, done.stderr)
