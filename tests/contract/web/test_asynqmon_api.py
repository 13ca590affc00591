"""The API of asynqmon in the dashboard: who may use it, and what hostile requests get."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from pyasynq._wire.keys import REFUSED_KEY
from pyasynq.operations import VERBS, User
from pyasynq.task import TaskState
from pyasynq.web import CredentialsFile, Everyone
from pyasynq.web.asynqmon.routes import ROUTES
from pyasynq.web.auth.credentials import password_line
from tests.factories import Tasks
from tests.ports import free_port
from tests.run_async import run_async
from tests.snapshots import snapshot
from tests.visiting import ABROAD, send_form, visiting

if TYPE_CHECKING:
    from pathlib import Path

    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")

NAMES = {"queue": "emails", "task": "a", "group": "g", "entry": "none"}
PASSWORD = "correct horse battery"


@pytest.fixture
def tasks(redis_client: RedisClient) -> Tasks:
    """Tasks of some states."""
    made = Tasks(redis_client, "emails")
    made.put(TaskState.ARCHIVED, "a", "b", error_msg="boom", last_failed_at=1)
    made.put(TaskState.AGGREGATING, "grouped", group="g")
    made.pending("p")
    return made


def _state_of(client: RedisClient) -> dict[str, Any]:
    return {key: value for key, value in snapshot(client).items() if not key.startswith("asynq:x:")}


def test_every_route_names_a_verb() -> None:
    """Its permission is checked by the operator, which knows all verbs."""
    assert {route.verb for route in ROUTES} - {""} <= set(VERBS)
    assert all(VERBS[route.verb].changes == (route.method != "GET") for route in ROUTES if route.verb)


@run_async
async def test_a_viewer_changes_nothing(redis_url: str, redis_client: RedisClient, tasks: Tasks) -> None:
    """Every route that changes something is refused, with the name of the missing permission."""
    before = _state_of(redis_client)
    async with visiting(redis_url, auth=Everyone("viewer")) as visitor:
        for route in ROUTES:
            if route.method == "GET":
                continue
            body = b'{"task_ids": ["a"]}' if ":batch" in route.path else None
            answer = await visitor.request(route.method, "api" + route.path.format(**NAMES), content=body)
            assert (403, True) == (answer.status_code, VERBS[route.verb].permission.value in answer.text), (
                route
            )
    assert before == _state_of(redis_client)


@run_async
async def test_nothing_can_be_changed_in_read_only_mode(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """The refusal has asynqmon's words, and reading still works."""
    before = _state_of(redis_client)
    async with visiting(redis_url, read_only=True) as visitor:
        for method in ("POST", "DELETE", "PUT"):
            answer = await visitor.request(method, "api/queues/emails/archived_tasks:delete_all")
            text = f"API Server is running in read-only mode: {method} request is not allowed\n"
            assert (405, text) == (answer.status_code, answer.text)
        answer = await visitor.post("api/queues/emails/archived_tasks:batch_run", content=b"no JSON")
        assert 405 == answer.status_code
        assert 200 == (await visitor.get("api/queues")).status_code
    assert before == _state_of(redis_client)


@run_async
async def test_a_change_that_the_read_only_mode_refuses_is_in_the_audit(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """As one of a form is."""
    async with visiting(redis_url, read_only=True) as visitor:
        await visitor.delete("api/queues/emails/archived_tasks/a")
    assert 1 == redis_client.xlen(REFUSED_KEY)


@run_async
async def test_a_session_needs_a_header_of_a_browser(redis_url: str, tasks: Tasks, tmp_path: Path) -> None:
    """Without one, only the browser's treatment of cookies would keep other sites away."""
    people = tmp_path / "people"
    people.write_text(password_line("mira", "admin", "*", PASSWORD))
    async with visiting(redis_url, auth=CredentialsFile(people), client=ABROAD) as visitor:
        fields = {"name": "mira", "password": PASSWORD}
        assert 303 == (await send_form(visitor, "login", fields)).status_code
        path = "api/queues/emails/archived_tasks/a"
        assert 403 == (await visitor.delete(path)).status_code
        assert 204 == (await visitor.delete(path, headers={"sec-fetch-site": "same-origin"})).status_code


@run_async
async def test_an_id_with_a_line_break_has_an_address(redis_url: str, tasks: Tasks) -> None:
    """Go accepts it, and so does asynqmon."""
    tasks.pending("x\r\ny")
    async with visiting(redis_url) as visitor:
        answer = await visitor.get("api/queues/emails/tasks/x%0D%0Ay")
        assert "x\r\ny" == answer.json()["id"]


@run_async
async def test_another_site_changes_nothing(redis_url: str, redis_client: RedisClient, tasks: Tasks) -> None:
    """Neither header of a browser is taken from elsewhere; a page of our own may."""
    before = _state_of(redis_client)
    async with visiting(redis_url) as visitor:
        for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
            answer = await visitor.delete("api/queues/emails/archived_tasks/a", headers=headers)
            assert 403 == answer.status_code
        assert before == _state_of(redis_client)
        answer = await visitor.delete(
            "api/queues/emails/archived_tasks/a", headers={"sec-fetch-site": "same-origin"}
        )
        assert 204 == answer.status_code
    assert ["b"] == tasks.ids("archived")
    assert 2 == redis_client.xlen(REFUSED_KEY)


@run_async
async def test_a_stranger_is_told_to_sign_in(redis_url: str, tasks: Tasks) -> None:
    """Every path answers with plain text."""
    async with visiting(redis_url, client=ABROAD) as visitor:
        for path in ("api/queues", "api/nothing"):
            answer = await visitor.get(path)
            assert (401, "Sign in first.\n") == (answer.status_code, answer.text)


@run_async
async def test_a_user_sees_only_the_own_queues(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Another queue does not exist for that user."""
    Tasks(redis_client, "payments").pending("secret")

    async def who(_: object) -> User:
        return User.with_role("ann", "operator", queues=["emails"])

    async with visiting(redis_url, auth=who) as visitor:
        queues = (await visitor.get("api/queues")).json()["queues"]
        assert ["emails"] == [one["queue"] for one in queues]
        answer = await visitor.get("api/queues/payments/tasks/secret")
        assert (404, "queue not found\n") == (answer.status_code, answer.text)


@run_async
async def test_hostile_names_come_back_as_they_are(redis_url: str, redis_client: RedisClient) -> None:
    """In JSON without a sign of HTML; they are found by their address."""
    name = 'a"<b>&%:~\u202e'
    Tasks(redis_client, name).pending(name, payload=b"<script>")
    async with visiting(redis_url) as visitor:
        answer = await visitor.get(f"api/queues/{quote(name, safe='')}/tasks/{quote(name, safe='')}")
        task = json.loads(answer.text)
        assert (200, name, name, "<script>") == (
            answer.status_code,
            task["queue"],
            task["id"],
            task["payload"],
        )
        assert "<" not in answer.text
        assert "text/plain; charset=utf-8" == answer.headers["content-type"]


@run_async
async def test_secrets_are_redacted(redis_url: str, redis_client: RedisClient) -> None:
    """Asynqmon's routes redact secrets as all pages of the dashboard do."""
    Tasks(redis_client, "emails").pending("a", payload=b'{"password":"hunter2"}')
    async with visiting(redis_url) as visitor:
        for path in ("tasks/a", "pending_tasks"):
            assert "hunter2" not in (await visitor.get(f"api/queues/emails/{path}")).text


@run_async
async def test_the_charts_need_a_prometheus(redis_url: str) -> None:
    """The error names the option."""
    async with visiting(redis_url) as visitor:
        answer = await visitor.get("api/metrics")
        assert (500, True) == (answer.status_code, "--prometheus-addr" in answer.text)


class _Prometheus(BaseHTTPRequestHandler):
    """Answers each query with the query itself."""

    asked: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        """Answer a range query."""
        query = dict(parse_qsl(urlsplit(self.path).query))
        self.asked.append(query)
        body = json.dumps({"status": "success", "query": query["query"]}).encode()
        self.send_response(200 if "archived" not in query["query"] else 422)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Write nothing."""


@run_async
async def test_the_charts_come_from_prometheus(redis_url: str) -> None:
    """Nine answers as they are, errors of Prometheus too; names of queues are quoted."""
    _Prometheus.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Prometheus) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        async with visiting(redis_url, prometheus=address) as visitor:
            answer = await visitor.get('api/metrics?duration=90000&endtime=1000000&queues=a.b,c"}')
        server.shutdown()

    charts = json.loads(answer.text)
    assert 9 == len(charts)
    assert r'asynq_queue_size{queue=~"a\\.b|c\"\\}"}' == charts["queue_size"]["query"]
    assert "success" == charts["archived_tasks_by_queue"]["status"]
    assert {("910000", "1000000", "180")} == {
        (query["start"], query["end"], query["step"]) for query in _Prometheus.asked
    }


@run_async
async def test_a_prometheus_that_does_not_answer_is_told(redis_url: str) -> None:
    """The chart that failed is named."""
    port = free_port()
    async with visiting(redis_url, prometheus=f"http://127.0.0.1:{port}") as visitor:
        answer = await visitor.get("api/metrics")
    assert (500, True) == (answer.status_code, answer.text.startswith('failed to fetch "asynq_queue_size{'))
