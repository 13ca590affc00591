"""What instances report of the requests that they send: counts, failures without secrets, and metrics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from pyasynq._wire.keys import DELIVERIES_KEY
from pyasynq.task import TaskState
from tests.contract.gateway.test_hosted_http import delivering, enqueue, hosting, wait_until
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.operations import HostDeliveries
    from tests.fix_service import Visitor
    from tests.invariants import RedisClient

pytestmark = pytest.mark.usefixtures("redis_client")

SECRET = "hunter2-of-the-night"


async def until_reported(
    visitor: Visitor, condition: Callable[[HostDeliveries], object] = lambda _: True
) -> HostDeliveries:
    """Return the only report when it fulfils a condition."""
    while True:
        found = await visitor.operator.deliveries()
        if found and condition(found[0]):
            [one] = found
            return one
        await asyncio.sleep(0.05)


@run_async
async def test_requests_are_counted_by_host_and_class(redis_url: str, monkeypatch: Any) -> None:
    """Also in the metrics; the failed one is kept, without a secret that the host repeats."""
    monkeypatch.setenv("BILLING", SECRET)

    def answer(request: web.Request) -> web.Response:
        if request.headers["X-Pyasynq-Task-Id"] == "good":
            return web.Response(text="fine")
        body = "x" * 1_990 + f" you sent {request.headers['X-Key']}" + "y" * 100_000
        return web.Response(status=500, text=body, headers={"Set-Cookie": SECRET, "X-Echo": SECRET})

    async with hosting() as host:
        host.answer = answer
        rule = {"secret_headers": {"X-Key": "env:BILLING"}}
        async with delivering(redis_url, host, rule, headers={"X-Team": "maps"}) as visitor:
            await enqueue(visitor, "good")
            await wait_until(visitor, TaskState.COMPLETED, "good")
            await enqueue(visitor, "bad")
            await wait_until(visitor, TaskState.RETRY, "bad")
            found = await until_reported(visitor, lambda one: one.calls == 2)
            metrics = visitor.service.metrics.render()[1].decode()

    assert (f"127.0.0.1:{host.port}", "deliver", {"2xx": 1, "5xx": 1}) == (
        found.host,
        found.queue,
        found.statuses,
    )
    failed = found.failed
    assert failed is not None
    assert ("bad", 1, "POST", 500) == (failed.task_id, failed.attempt, failed.method, failed.status)
    assert "500" in failed.reason
    assert ("X-Team", "maps") in failed.headers
    assert 2_000 >= len(failed.answer_body) > 1_900
    assert "hunter2" not in repr(failed)
    for status in ("2xx", "5xx"):
        assert f'_deliveries_total{{host="{found.host}",status="{status}"}} 1' in metrics
    assert f'_delivery_seconds_count{{host="{found.host}"}} 2' in metrics


@run_async
async def test_no_secret_of_a_request_is_stored(
    redis_url: str, redis_client: RedisClient, monkeypatch: Any
) -> None:
    """Neither the headers of a host, nor signatures and tokens, which are as good as a key for a while."""
    monkeypatch.setenv("BILLING", SECRET)
    sent: list[str] = []

    def answer(request: web.Request) -> web.Response:
        sent.append(request.headers["X-Pyasynq-Token"])
        return web.Response(status=404, text=f"{SECRET} {request.headers['X-Pyasynq-Token']}")

    async with hosting() as host:
        host.answer = answer
        rule = {"secret_headers": {"Authorization": "env:BILLING"}}
        async with delivering(redis_url, host, rule, callback=True) as visitor:
            await enqueue(visitor)
            await wait_until(visitor, TaskState.ARCHIVED)
            await until_reported(visitor, lambda one: one.failed)
            [stored] = redis_client.hvals(DELIVERIES_KEY)

    assert SECRET.encode() not in stored
    assert sent[0].encode() not in stored
    assert redis_client.ttl(DELIVERIES_KEY) > 0


@run_async
async def test_throttled_and_disabled_hosts_are_told(redis_url: str, redis_client: RedisClient) -> None:
    """Since when, and a request without an answer has a class of its own."""
    answers = {
        "a": web.Response(status=429, headers={"Retry-After": "600"}),
        "b": web.Response(status=410),
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        task_id = request.headers["X-Pyasynq-Task-Id"]
        if task_id == "c":
            assert request.transport is not None
            request.transport.abort()
        return answers.get(task_id, web.Response())

    for task_id, state in (("a", TaskState.RETRY), ("b", TaskState.ARCHIVED), ("c", TaskState.RETRY)):
        async with hosting() as host:
            host.answer = answer
            async with delivering(redis_url, host) as visitor:
                await enqueue(visitor, task_id)
                await wait_until(visitor, state, task_id)
                found = await until_reported(visitor)
                await visitor.operator.delete_queue("deliver", force=True)
        match task_id:
            case "a":
                assert found.throttled_since is not None
                assert found.throttled_until is not None
                assert 500 < (found.throttled_until - found.throttled_since).total_seconds() <= 600
            case "b":
                assert found.gone_at is not None
            case _:
                assert {"none": 1} == found.statuses
        redis_client.delete(DELIVERIES_KEY)
