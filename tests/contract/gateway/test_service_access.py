"""Access to the task service: keys, scopes and queues; and answers to wrong requests and outages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from pyasynq import Client, Task
from pyasynq.gateway.api import TaskService
from pyasynq.gateway.api.openapi import list_descriptions
from pyasynq.gateway.api.table import LEASE_ROUTES, SERVICE_ROUTES
from pyasynq.gateway.auth import KeyAuthentication
from pyasynq.gateway.configurations import parse_service_file
from pyasynq.operations import SCOPES, Operator, User
from pyasynq.web.auth.secret import SigningSecret
from tests.contract.gateway.test_leases import check_problem
from tests.fix_leases import until
from tests.fix_proxy import Cut
from tests.fix_service import SECRET, TYPES, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq.gateway.api.call import ServiceRoute
    from tests.fix_proxy import Proxy

pytestmark = pytest.mark.usefixtures("redis_client")
ROUTES = (
    *((route.method, route.path, route.scopes) for route in SERVICE_ROUTES),
    *(("POST", path, ("work",)) for path in LEASE_ROUTES),
)


def fill(path: str, queue: str = "resize") -> str:
    """Return a path with names in it."""
    return path.format(queue=queue, task="a", name=queue, token="t")


@pytest.mark.parametrize(("method", "path", "scopes"), ROUTES)
@run_async
async def test_each_route_needs_a_key_with_its_scope(
    redis_url: str, method: str, path: str, scopes: tuple[str, ...]
) -> None:
    """Every other scope alone is refused; the one that is needed, and admin, are not."""
    async with serving(redis_url, needs_keys=True) as visitor:
        without = await visitor.ask(method, fill(path), {})
        check_problem(without, 401, "no_key")
        assert without.headers["www-authenticate"].startswith("Bearer")
        for scope in SCOPES:
            key = await visitor.make_key(scope, name=scope)
            answer = await visitor.ask(method, fill(path), {}, key=key)
            if scope in {*scopes, "admin"}:
                assert answer.status_code not in {401, 403, 500}, answer.text
            else:
                assert scopes[0] == check_problem(answer, 403, "missing_scope")["scope"]


NAMED = [route for route in SERVICE_ROUTES if "{" in route.path]


@pytest.mark.parametrize("route", NAMED, ids=lambda route: f"{route.method} {route.path}")
@run_async
async def test_a_key_learns_nothing_of_other_queues(redis_url: str, route: ServiceRoute) -> None:
    """The answers are the same as for a queue that does not exist."""
    async with serving(redis_url, needs_keys=True) as visitor:
        async with Client(redis_url) as client:
            await client.enqueue("resize", queue="resize", task_id="a")
        key = await visitor.make_key("admin", queues=["deliver"])
        hidden = await visitor.ask(route.method, fill(route.path, "resize"), {}, key=key)
        missing = await visitor.ask(route.method, fill(route.path, "nothing"), {}, key=key)
    assert (404, 404) == (hidden.status_code, missing.status_code)
    assert hidden.text.replace("resize", "nothing") == missing.text


@run_async
async def test_a_key_leases_and_settles_nothing_of_other_queues(redis_url: str) -> None:
    """Neither the queue nor the token is there for it, alone and in a batch."""
    async with serving(redis_url, needs_keys=True) as visitor:
        await visitor.operator.enqueue("resize", Task("resize", queue="resize", task_id="a"))
        key = await visitor.make_key("work", queues=["resize"], name="one")
        taken = await visitor.ask("POST", "/v1/leases", {"queues": ["resize"], "lease": 600}, key=key)
        token = taken.json()["tasks"][0]["token"]
        other = await visitor.make_key("admin", queues=["deliver"], name="other")
        refused = await visitor.ask("POST", "/v1/leases", {"queues": ["resize"]}, key=other)
        assert "resize" not in check_problem(refused, 404, "queue_not_found", "queues")["remedy"]
        for path in LEASE_ROUTES:
            if "{token}" in path:
                body = {"error": "x"} if path.endswith("fail") else {"delay": 1} if "snooze" in path else {}
                answer = await visitor.ask("POST", path.format(token=token), body, key=other)
                check_problem(answer, 404, "attempt_not_found", "token")
        item = {"act": "complete", "token": token}
        batch = await visitor.ask("POST", "/v1/attempts:batch", {"attempts": [item]}, key=other)
        assert [404] == [one["status"] for one in batch.json()["results"]]
        assert 204 == (await visitor.ask("POST", f"/v1/attempts/{token}:complete", {}, key=key)).status_code


@run_async
async def test_a_batch_fills_no_hidden_queue(redis_url: str) -> None:
    """The type does not exist for the key, in either form."""
    async with serving(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("tasks:write", queues=["deliver"])
        items = [{"type": "resize"}, {"task_id": 1, "task_name": "resize"}, {"type": "deliver"}]
        answer = await visitor.ask("POST", "/v1/tasks:batch", {"tasks": items}, key=key)
        assert [422, 422, 201] == [one["status"] for one in answer.json()["results"]]
        assert "resize" not in await visitor.operator.queues()


@run_async
async def test_the_openapi_document_is_there_without_a_key(redis_url: str) -> None:
    """It has every route, and every path that it has is a route."""
    async with serving(redis_url, needs_keys=True) as visitor:
        answer = await visitor.ask("GET", "/openapi.json")
        described = {
            (method.upper(), f"/v1{path}")
            for path, methods in answer.json()["paths"].items()
            for method in methods
        }
        assert {(method, path) for method, path, _ in list_descriptions()} == described
        for method, path in described:
            assert 401 == (await visitor.ask(method, fill(path), {})).status_code


@run_async
async def test_a_key_of_some_queues_sees_and_fills_these(redis_url: str) -> None:
    """Other types are not listed, not told as the nearest one, and take no task."""
    async with serving(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("tasks:write", "tasks:read", queues=["del*"])
        listed = (await visitor.ask("GET", "/v1/task-types", key=key)).json()["items"]
        assert ["deliver"] == [one["name"] for one in listed]
        assert 201 == (await visitor.ask("POST", "/v1/tasks", {"type": "deliver"}, key=key)).status_code
        for name in ("resize", "resiz"):
            answer = await visitor.ask("POST", "/v1/tasks", {"type": name}, key=key)
            problem = check_problem(answer, 422, "unknown_task_type", "type")
            assert "resize" not in problem["remedy"]


@run_async
async def test_a_mistyped_key_is_told_apart(redis_url: str) -> None:
    """A deleted one is as none."""
    async with serving(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("tasks:read")
        wrong = await visitor.ask("GET", "/v1/task-types", key=key[:-1] + ("0" if key[-1] != "0" else "1"))
        check_problem(wrong, 401, "mistyped_key")
        check_problem(await visitor.ask("POST", "/v1/leases", {}, key="pq_x"), 401, "mistyped_key")
        await visitor.operator.delete_api_key(visitor.keys["test"].key.id)
        check_problem(await visitor.ask("GET", "/v1/task-types", key=key), 401, "no_key")


@run_async
async def test_a_key_is_read_once_a_second(redis_url: str) -> None:
    """Then a deleted one is refused."""
    now = [100.0]
    async with Operator(redis_url, User.with_role("admin", "admin")) as operator:
        issued = await operator.make_api_key("a", ["work"])
        authenticate = KeyAuthentication(operator, monotonic=lambda: now[0])

        async def is_admitted() -> bool:
            scope: Any = {
                "type": "http",
                "headers": [(b"authorization", f"Bearer {issued.text}".encode())],
            }
            return await authenticate(Request(scope)) is not None

        assert await is_admitted()
        await operator.delete_api_key(issued.key.id)
        now[0] += 0.9
        assert await is_admitted()
        now[0] += 0.2
        assert not await is_admitted()


@run_async
async def test_without_keys_only_this_machine_is_answered(redis_url: str) -> None:
    """A web page whose name leads here (DNS rebinding) is refused."""
    async with serving(redis_url) as visitor:
        for host in ("localhost", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST"):
            answer = await visitor.ask("GET", "/v1/task-types", headers={"host": host})
            assert 200 == answer.status_code
        for host in ("evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example"):
            answer = await visitor.ask("POST", "/v1/tasks", {"type": "resize"}, headers={"host": host})
            check_problem(answer, 403, "other_host")


@pytest.mark.parametrize("name", ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-real-ip"])
@run_async
async def test_without_keys_a_request_that_a_proxy_forwards_is_refused(redis_url: str, name: str) -> None:
    """It may come from anywhere, although the connection is local. With a key it is answered."""
    async with serving(redis_url) as visitor:
        answer = await visitor.ask("POST", "/v1/tasks", {"type": "resize"}, headers={name: "203.0.113.9"})
        check_problem(answer, 403, "forwarded")
    async with serving(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("tasks:write")
        answer = await visitor.ask(
            "POST", "/v1/tasks", {"type": "resize"}, key=key, headers={name: "203.0.113.9"}
        )
        assert 201 == answer.status_code


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}],
)
@run_async
async def test_without_keys_a_web_page_of_another_site_changes_nothing(
    redis_url: str, headers: dict[str, str]
) -> None:
    """Browsers send a POST without a body and ask no one."""
    async with serving(redis_url) as visitor:
        await visitor.ask("POST", "/v1/tasks", {"type": "resize", "options": {"task_id": "a"}})
        answer = await visitor.ask("POST", "/v1/tasks/resize/a:cancel", headers=headers)
        check_problem(answer, 403, "another_site")
        assert 200 == (await visitor.ask("POST", "/v1/tasks/resize/a:cancel")).status_code


@run_async
async def test_a_key_that_may_not_read_enqueues_nothing_that_it_would_wait_for(redis_url: str) -> None:
    """The scope is checked first."""
    async with serving(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("tasks:write")
        body = {"type": "resize", "options": {"task_id": "a"}}
        check_problem(await visitor.ask("POST", "/v1/tasks?wait=5", body, key=key), 403, "missing_scope")
        assert 201 == (await visitor.ask("POST", "/v1/tasks", body, key=key)).status_code


@run_async
async def test_a_closed_instance_says_so(redis_url: str) -> None:
    """It neither starts again nor answers with an internal error."""
    async with serving(redis_url) as visitor:
        await visitor.ask("GET", "/ready")
        await visitor.service.close()
        for path in ("/ready", "/v1/task-types"):
            check_problem(await visitor.ask("GET", path), 503, "shutting_down")


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "allow"),
    [
        ("GET", "/", 404, "no_such_path", None),
        ("GET", "/v1/task", 404, "no_such_path", None),
        ("GET", "/v1/tasks/a%0Ab", 404, "no_such_path", None),
        ("GET", "/v1/tasks", 405, "method_not_allowed", "POST"),
        ("PUT", "/v1/tasks/q/a", 405, "method_not_allowed", "DELETE, GET, HEAD"),
        ("BREW", "/v1/task-types", 405, "method_not_allowed", "GET, HEAD"),
        ("GET", "/v1/leases", 405, "method_not_allowed", "POST"),
        ("GET", "/v1/attempts/x:extend", 405, "method_not_allowed", "POST"),
        ("GET", "/v1/tasks/resize/a/result?wait=56", 422, "invalid_value", None),
        ("GET", "/v1/tasks/resize/a/result?wait=nan", 422, "invalid_value", None),
        ("GET", "/v1/tasks/resize/a?wiat=5", 422, "unknown_parameter", None),
    ],
)
@run_async
async def test_a_wrong_request_is_a_problem(
    redis_url: str, method: str, path: str, status: int, code: str, allow: str | None
) -> None:
    """With the methods that there are."""
    async with serving(redis_url) as visitor:
        answer = await visitor.ask(method, path)
        assert (status, code) == (answer.status_code, answer.json()["code"])
        assert "application/problem+json" == answer.headers["content-type"]
        assert allow == answer.headers.get("allow")
        head = await visitor.ask("HEAD", "/v1/task-types")
        assert (200, b"") == (head.status_code, head.content)


@run_async
async def test_a_large_body_is_refused_while_it_is_read(redis_url: str) -> None:
    """Also in chunks, whatever length is promised; the file's limit counts."""

    async def chunks() -> Any:
        for _ in range(100):
            yield b'{"type": "resize", "params": "' + b"x" * 1_000

    async with serving(redis_url, settings={"max_body": 2_000}) as visitor:
        headers = {"content-type": "application/json", "content-length": "5"}
        answer = await visitor.client.post("/v1/tasks", content=chunks(), headers=headers)
        check_problem(answer, 413, "body_too_large")
        small = {"type": "resize", "params": "x" * 1_900}
        assert 201 == (await visitor.ask("POST", "/v1/tasks", small)).status_code
        zipped = await visitor.ask("POST", "/v1/tasks", small, headers={"content-encoding": "gzip"})
        check_problem(zipped, 415, "unsupported_encoding")
        plain = await visitor.ask("POST", "/v1/tasks", b"{}", headers={"content-type": "text/plain"})
        check_problem(plain, 415, "unsupported_media_type", "Content-Type")


@run_async
async def test_an_unknown_outcome_is_told_honestly(proxy: Proxy) -> None:
    """With the way to repeat it, which then answers with the task that there is."""
    body, headers = {"type": "resize"}, {"Idempotency-Key": "one"}
    async with serving(proxy.url, timeout=0.5) as visitor:
        await visitor.ask("POST", "/v1/tasks", body, headers={"Idempotency-Key": "loads the script"})
        proxy.refuse()
        proxy.cut(Cut.BEFORE_REPLY, containing=b"EVALSHA")
        answer = await visitor.ask("POST", "/v1/tasks", body, headers=headers)
        problem = check_problem(answer, 503, "unknown_outcome")
        assert "Idempotency-Key" in problem["remedy"]
        assert "2" == answer.headers["retry-after"]
        proxy.refuse(refusing=False)
        again = await visitor.ask("POST", "/v1/tasks", body, headers=headers)
        assert (200, True) == (again.status_code, again.json()["existing"])


@run_async
async def test_while_redis_is_away_requests_are_told_when_to_come_back(proxy: Proxy) -> None:
    """The instance lives, and serves again when Redis is back."""
    async with serving(proxy.url, timeout=0.5) as visitor:
        assert 200 == (await visitor.ask("GET", "/ready")).status_code
        proxy.refuse()
        proxy.cut_all()
        answer = await visitor.ask("POST", "/v1/tasks", {"type": "resize"})
        assert (503, True) == (answer.status_code, "retry-after" in answer.headers)
        assert 200 == (await visitor.ask("GET", "/live")).status_code
        proxy.refuse(refusing=False)
        assert 201 == (await visitor.ask("POST", "/v1/tasks", {"type": "resize"})).status_code


@run_async
async def test_an_instance_that_ends_is_not_ready(redis_url: str) -> None:
    """It still lives, and answers what is in flight."""
    async with serving(redis_url) as visitor:
        assert {"status": "ready"} == (await visitor.ask("GET", "/ready")).json()
        visitor.service.end_waits()
        check_problem(await visitor.ask("GET", "/ready"), 503, "shutting_down")
        assert {"status": "live"} == (await visitor.ask("GET", "/live")).json()
        assert 201 == (await visitor.ask("POST", "/v1/tasks", {"type": "resize"})).status_code


@run_async
async def test_the_end_of_an_instance_answers_requests_that_wait(redis_url: str) -> None:
    """At once: a worker has no task, a program no result; both go on at another instance."""
    async with serving(redis_url) as visitor:
        body = {"type": "resize", "options": {"task_id": "a", "process_in": 600}}
        await visitor.ask("POST", "/v1/tasks", body)
        worker = asyncio.create_task(visitor.ask("POST", "/v1/leases", {"queues": ["resize"], "wait": 55}))
        program = asyncio.create_task(visitor.ask("GET", "/v1/tasks/resize/a/result?wait=55"))
        await until(lambda: visitor.service.waiting == 2)
        visitor.service.end_waits()
        assert (204, 202) == ((await worker).status_code, (await program).status_code)
        assert 0 == visitor.service.waiting
        late = await visitor.ask("GET", "/v1/tasks/resize/a/result?wait=55")
        assert 202 == late.status_code


@run_async
async def test_the_service_can_be_mounted(redis_url: str) -> None:
    """It starts with its first request; addresses have the place where it is."""
    service = TaskService(
        parse_service_file({"service": {"redis": redis_url}, "tasks": TYPES}),
        secret=SigningSecret(SECRET),
        needs_keys=False,
    )
    app = Starlette(routes=[Mount("/queue", service)])
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost/queue"
        ) as client:
            assert 200 == (await client.get("/ready")).status_code
            made = await client.post("/v1/tasks", json={"task_id": 7, "task_name": "resize"})
            assert "/queue/v1/tasks/resize/7" == made.headers["location"]
            lease = await client.post("/v1/leases", json={"queues": ["resize"]})
            assert ["7"] == [task["id"] for task in lease.json()["tasks"]]
            assert 405 == (await client.get("/v1/leases")).status_code
    finally:
        await service.close()
