"""Tasks of the kind `http` end to end: a real host on this machine, the outcomes in Redis."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook

from pyasynq.task import TaskInfo, TaskState
from tests.fix_service import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.fix_service import Visitor

pytestmark = pytest.mark.usefixtures("redis_client")

SIGNING = base64.b64encode(b"k" * 32).decode()


@dataclass
class Request:
    """What the host was asked."""

    method: str
    path: str
    headers: Any
    body: bytes


@dataclass
class Host:
    """A host that records what it is asked, and answers as a test says."""

    port: int = 0
    answer: Callable[[web.Request], Any] = field(default=lambda _: web.Response())
    requests: list[Request] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Record a request and answer it."""
        self.requests.append(
            Request(request.method, request.raw_path, request.headers.copy(), await request.read())
        )
        async with self.arrived:
            self.arrived.notify_all()
        answer = self.answer(request)
        if asyncio.iscoroutine(answer):
            answer = await answer
        assert isinstance(answer, web.StreamResponse)
        return answer

    async def wait_for(self, number: int) -> list[Request]:
        """Return the requests when there is this number of them."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= number)
        return self.requests


@asynccontextmanager
async def hosting() -> AsyncIterator[Host]:
    """Run a host for the time of a block."""
    host = Host()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", host.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host.port = runner.addresses[0][1]
    try:
        yield host
    finally:
        await runner.cleanup()


@asynccontextmanager
async def delivering(
    url: str, host: Host, rule: dict[str, Any] | None = None, **fields: Any
) -> AsyncIterator[Visitor]:
    """Run an instance with one hosted type, `deliver`, whose tasks are requests to a host."""
    address = f"127.0.0.1:{host.port}"
    kind = {
        "kind": "http",
        "url": f"http://{address}/orders/{{id}}",
        "retention": "1h",
        "max_retry": 5,
        "retry": ["1h"],
        **fields,
    }
    hosts = {address: {"addresses": ["127.0.0.1"], **(rule or {})}}
    async with serving(url, {"deliver": kind, "resize": {}}, hosts=hosts) as visitor:
        await visitor.service.start()
        yield visitor


async def enqueue(visitor: Visitor, task_id: str = "a", params: Any = None, **options: Any) -> None:
    """Enqueue a delivery."""
    body = {
        "type": "deliver",
        "params": {"id": 7} if params is None else params,
        "options": {"task_id": task_id, **options},
    }
    answer = await visitor.ask("POST", "/v1/tasks", body)
    assert 201 == answer.status_code, answer.text


async def wait_until(
    visitor: Visitor, state: TaskState, task_id: str = "a", queue: str = "deliver"
) -> TaskInfo:
    """Return a task when it is in a state."""
    while True:
        task = await visitor.operator.task(queue, task_id)
        if task.state is state:
            return task
        await asyncio.sleep(0.02)


async def hang(_: web.Request) -> web.Response:
    """Answer never."""
    await asyncio.Event().wait()
    return web.Response()


@run_async
async def test_a_task_is_a_signed_request(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its params in the URL and the body, the host's secrets, and what to know of the task."""
    monkeypatch.setenv("TEST_TOKEN", "Bearer hush")
    monkeypatch.setenv("TEST_SIGNING", f"whsec_{SIGNING}")
    rule = {"signing_secrets": ["env:TEST_SIGNING"], "secret_headers": {"Authorization": "env:TEST_TOKEN"}}
    async with hosting() as host, delivering(redis_url, host, rule, headers={"X-Team": "maps"}) as visitor:
        host.answer = lambda _: web.Response(body=b'{"rows": 1}', headers={"Set-Cookie": "a=b"})
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await enqueue(visitor, "a.b", {"id": "x/y", "n": 1}, headers={"traceparent": trace})
        result = await visitor.ask("GET", "/v1/tasks/deliver/a.b/result?wait=30")
        await enqueue(visitor, "c")
        [first, second] = await host.wait_for(2)

    assert {"rows": 1} == result.json()["result"]
    assert ("POST", "/orders/x%2Fy") == (first.method, first.path)
    assert {"id": "x/y", "n": 1} == json.loads(first.body)
    assert {"id": "x/y", "n": 1} == Webhook(SIGNING).verify(first.body, dict(first.headers))
    assert {
        "Authorization": "Bearer hush",
        "X-Team": "maps",
        "Content-Type": "application/json",
        "X-Pyasynq-Queue": "deliver",
        "X-Pyasynq-Task-Id": "a.b",
        "X-Pyasynq-Attempt": "1",
        "X-Pyasynq-Max-Retry": "5",
        "traceparent": trace,
    }.items() <= {name: first.headers[name] for name in first.headers}.items()
    assert "X-Pyasynq-Token" not in first.headers
    assert "Cookie" not in second.headers


@run_async
async def test_the_end_of_a_task_is_told_to_a_signed_url(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The type in `on_finished` may be a request; a task that ended in a hosted type is told there, too."""
    monkeypatch.setenv("TEST_SIGNING", f"whsec_{SIGNING}")
    rule = {"signing_secrets": ["env:TEST_SIGNING"]}
    async with hosting() as host, delivering(redis_url, host, rule) as visitor:
        body = {"type": "resize", "params": {}, "options": {"task_id": "a", "on_finished": "deliver"}}
        assert 201 == (await visitor.ask("POST", "/v1/tasks", body)).status_code
        leased = await visitor.ask("POST", "/v1/leases", {"queues": ["resize"], "worker": {"name": "w"}})
        token = leased.json()["tasks"][0]["token"]
        failure = {"error": "no such picture", "retry": False}
        assert 204 == (await visitor.ask("POST", f"/v1/attempts/{token}:fail", failure)).status_code
        [told] = await host.wait_for(1)

    assert ("POST", "/orders/a") == (told.method, told.path)
    end = {"id": "a", "type": "resize", "outcome": "archived", "error": "no such picture"}
    assert end.items() <= Webhook(SIGNING).verify(told.body, dict(told.headers)).items()


@pytest.mark.parametrize(
    ("status", "headers", "state", "retried", "error"),
    [
        (500, {}, TaskState.RETRY, 1, "the host answered 500 Internal Server Error"),
        (429, {"Retry-After": "600"}, TaskState.RETRY, 0, "the host answered 429 Too Many Requests"),
        (404, {}, TaskState.ARCHIVED, 0, "the host answered 404 Not Found"),
        (302, {"Location": "/elsewhere"}, TaskState.RETRY, 1, "redirects are not followed"),
        (200, {"Pyasynq-Outcome": "snooze=600"}, TaskState.RETRY, 0, ""),
        (200, {"Pyasynq-Outcome": "archive"}, TaskState.ARCHIVED, 0, "the host asked to archive it"),
    ],
)
@run_async
async def test_an_answer_settles_the_task(
    redis_url: str, status: int, headers: dict[str, str], state: TaskState, retried: int, error: str
) -> None:
    """One request, and the outcome of the table."""
    async with hosting() as host, delivering(redis_url, host) as visitor:
        host.answer = lambda _: web.Response(status=status, headers=headers, body=b"secret of the host")
        await enqueue(visitor)
        task = await wait_until(visitor, state)
        assert (1, retried) == (len(host.requests), task.retried)
        assert error in task.last_error
        assert "secret of the host" not in task.last_error


@run_async
async def test_a_gone_endpoint_pauses_its_type(redis_url: str) -> None:
    """The task is archived, the next one waits until somebody has looked."""
    async with hosting() as host, delivering(redis_url, host, max_run=1) as visitor:
        host.answer = lambda _: web.Response(status=410)
        await enqueue(visitor)
        task = await wait_until(visitor, TaskState.ARCHIVED)
        assert "410 Gone" in task.last_error
        # The queue was paused before.
        assert (await visitor.operator.queue("deliver")).paused


@run_async
async def test_a_throttled_host_is_left_alone(redis_url: str) -> None:
    """Its other tasks wait in their queue and spend nothing; those of other hosts run."""
    async with hosting() as host, hosting() as other, delivering(redis_url, host, max_run=1) as visitor:
        body = {"kind": "http", "url": f"http://127.0.0.1:{other.port}/"}
        host.answer = lambda _: web.Response(status=503, headers={"Retry-After": "600"})
        await enqueue(visitor, "a")
        await wait_until(visitor, TaskState.RETRY)
        await enqueue(visitor, "b")
        assert 200 <= (await visitor.ask("PUT", "/v1/task-types/other", body)).status_code < 300
        await visitor.ask("POST", "/v1/tasks", {"type": "other", "options": {"task_id": "x"}})
        # The other host is not listed, so its task ends without a request: that shows that its lane turns.
        await wait_until(visitor, TaskState.ARCHIVED, "x", "other")
        assert TaskState.PENDING is (await visitor.operator.task("deliver", "b")).state
        assert (1, 0) == (len(host.requests), len(other.requests))


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "0x7f.1", "[::ffff:127.0.0.1]", "2130706433"])
@run_async
async def test_a_host_of_this_machine_is_never_reached_unless_listed(redis_url: str, name: str) -> None:
    """The task is archived, and the error says how to allow the host, but not which address it has."""
    async with hosting() as host, hosting() as listed, delivering(redis_url, listed) as visitor:
        body = {"kind": "http", "url": f"http://{name}:{host.port}/{{id}}", "retention": "1h"}
        assert 200 <= (await visitor.ask("PUT", "/v1/task-types/probe", body)).status_code < 300
        task = {"type": "probe", "params": {"id": 1}, "options": {"task_id": "a"}}
        await visitor.ask("POST", "/v1/tasks", task)
        info = await wait_until(visitor, TaskState.ARCHIVED, "a", "probe")
        assert [] == host.requests
        assert "127.0.0.1" in name or "127.0.0.1" not in info.last_error


@run_async
async def test_params_that_do_not_fit_the_url_are_told(redis_url: str) -> None:
    """Without a request and without a retry: they will not fit later either."""
    async with hosting() as host, delivering(redis_url, host) as visitor:
        await enqueue(visitor, params={"id": "hush/.."})
        await enqueue(visitor, "b", {"other": 1})
        task = await wait_until(visitor, TaskState.ARCHIVED, "b")
        await wait_until(visitor, TaskState.COMPLETED)
        assert "params.id is missing" in task.last_error
        assert ["/orders/hush%2F.."] == [one.path for one in host.requests]


@run_async
async def test_a_host_that_does_not_answer_is_retried_at_the_timeout(redis_url: str) -> None:
    """The request is given up, and its connection closed."""
    async with hosting() as host, delivering(redis_url, host, timeout=1) as visitor:
        host.answer = hang
        await enqueue(visitor)
        task = await wait_until(visitor, TaskState.RETRY)
        assert 1 == task.retried
        assert "in time" in task.last_error or "deadline exceeded" in task.last_error


@run_async
async def test_a_cancelled_task_ends_its_request(redis_url: str) -> None:
    """At once, long before its timeout."""
    async with hosting() as host, delivering(redis_url, host) as visitor:
        host.answer = hang
        await enqueue(visitor)
        await host.wait_for(1)
        body = {"outcome": "archive"}
        answer = await visitor.ask("POST", "/v1/tasks/deliver/a:cancel", body)
        assert answer.status_code in {200, 202, 204}, answer.text
        await wait_until(visitor, TaskState.ARCHIVED)


@run_async
async def test_an_endless_answer_is_cut(redis_url: str) -> None:
    """Its first 20,000 bytes are the result; the rest is not read."""

    async def pour(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65_536)

    async with hosting() as host, delivering(redis_url, host) as visitor:
        host.answer = pour
        await enqueue(visitor)
        await wait_until(visitor, TaskState.COMPLETED)
        result = await visitor.ask("GET", "/v1/tasks/deliver/a/result")
        assert "x" * 20_000 == result.json()["result_text"]


@run_async
async def test_a_host_takes_a_task_over(redis_url: str) -> None:
    """It answers at once, goes on by itself, and settles by the token alone, with a result."""
    async with hosting() as host, delivering(redis_url, host, callback=True) as visitor:
        host.answer = lambda _: web.Response(status=202, headers={"Pyasynq-Callback": "lease"})
        await enqueue(visitor)
        [request] = await host.wait_for(1)
        token = request.headers["X-Pyasynq-Token"]
        extended = await visitor.ask("POST", f"/v1/attempts/{token}:extend", {"lease": 600})
        assert 200 == extended.status_code, extended.text
        token = extended.json()["token"]
        settled = await visitor.ask("POST", f"/v1/attempts/{token}:complete", {"result": {"rows": 7}})
        assert 204 == settled.status_code, settled.text
        result = await visitor.ask("GET", "/v1/tasks/deliver/a/result")
        assert {"rows": 7} == result.json()["result"]


@run_async
async def test_a_callback_needs_its_token_alone_where_keys_are_asked_for(redis_url: str) -> None:
    """Without a key; an altered token, and any other request without a key, are refused as before."""
    rules = {"addresses": ["127.0.0.1"]}
    async with hosting() as host:
        address = f"127.0.0.1:{host.port}"
        kind = {"kind": "http", "url": f"http://{address}/", "callback": True, "retention": "1h"}
        async with serving(redis_url, {"deliver": kind}, hosts={address: rules}, needs_keys=True) as visitor:
            await visitor.service.start()
            key = await visitor.make_key("tasks:write")
            host.answer = lambda _: web.Response(status=202, headers={"Pyasynq-Callback": "lease"})
            await visitor.ask("POST", "/v1/tasks", {"type": "deliver", "options": {"task_id": "a"}}, key=key)
            [request] = await host.wait_for(1)
            token = request.headers["X-Pyasynq-Token"]
            altered = token[:-1] + ("A" if token[-1] != "A" else "B")
            answers = [
                (await visitor.ask("POST", f"/v1/attempts/{one}:complete", {})).status_code
                for one in (altered, "x", token)
            ]
            batch = {"acts": [{"token": token, "act": "complete"}]}
            answers.append((await visitor.ask("POST", "/v1/attempts:batch", batch)).status_code)
    assert [401, 401, 204, 401] == answers


@run_async
async def test_tasks_of_a_hosted_type_are_not_leased(redis_url: str) -> None:
    """Two would run it: a remote worker and the service."""
    async with hosting() as host, delivering(redis_url, host) as visitor:
        answer = await visitor.ask("POST", "/v1/leases", {"queues": ["deliver"], "wait": 0})
        assert (404, "queue_not_found") == (answer.status_code, answer.json()["code"])


@run_async
async def test_the_concurrency_of_a_host_holds_over_all_instances(redis_url: str) -> None:
    """Two instances, twenty tasks, three at once."""
    at_once: list[int] = []
    now = 0
    turn = asyncio.Event()

    async def count(_: web.Request) -> web.Response:
        nonlocal now
        now += 1
        at_once.append(now)
        if now == 3:
            turn.set()
        await turn.wait()
        await asyncio.sleep(0.01)
        now -= 1
        return web.Response()

    rule = {"concurrency": 3}
    async with (
        hosting() as host,
        delivering(redis_url, host, rule) as one,
        delivering(redis_url, host, rule),
    ):
        host.answer = count
        for number in range(20):
            await enqueue(one, str(number))
        for number in range(20):
            await wait_until(one, TaskState.COMPLETED, str(number))
    assert (20, 3) == (len(at_once), max(at_once))


@run_async
async def test_a_shutdown_puts_unfinished_tasks_back(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the front, without a retry spent and without a crash counted."""
    monkeypatch.setattr("pyasynq.gateway.api.service.HOSTED_END_SECONDS", 0.1)
    async with hosting() as host:
        async with delivering(redis_url, host) as visitor:
            host.answer = hang
            await enqueue(visitor)
            await host.wait_for(1)
        host.answer = lambda _: web.Response()
        async with delivering(redis_url, host) as visitor:
            task = await wait_until(visitor, TaskState.COMPLETED)
            assert 0 == task.retried
            assert ["1", "1"] == [one.headers["X-Pyasynq-Attempt"] for one in host.requests]


@run_async
async def test_a_type_becomes_hosted_and_stops_to_be(redis_url: str) -> None:
    """Without a restart: its tasks are requests from the next look on, and then none again."""
    async with hosting() as host, delivering(redis_url, host) as visitor:
        url = f"http://127.0.0.1:{host.port}/late"
        made = await visitor.ask(
            "PUT", "/v1/task-types/late", {"kind": "http", "url": url, "retention": "1h"}
        )
        assert 200 <= made.status_code < 300, made.text
        await visitor.ask("POST", "/v1/tasks", {"type": "late"})
        await host.wait_for(1)
        await visitor.ask("PUT", "/v1/task-types/late", {"kind": "worker"})
        await visitor.service._hosted._serve_types()  # type: ignore[union-attr] # the next look, now
        await visitor.ask("POST", "/v1/tasks", {"type": "late"})
        taken = await visitor.take("late")
        assert "late" == taken["type"]
        assert 1 == len(host.requests)
