"""The API for programs: records, pages, changes, dry runs, idempotency, streams, and hostile requests."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jsonschema
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from pyasynq._wire.keys import MARKS_KEY
from pyasynq._wire.messages import decode_task_message
from pyasynq.operations import User
from pyasynq.task import TaskState
from pyasynq.web import CredentialsFile, dashboard
from pyasynq.web.api.openapi import build_document
from pyasynq.web.auth.credentials import make_token, password_line, token_line
from tests.factories import Tasks
from tests.run_async import run_async
from tests.shop import announce_schedules
from tests.snapshots import snapshot
from tests.visiting import ABROAD, form_token, visiting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import httpx
    from starlette.requests import Request

    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")

API = "api/v1"
TASKS = f"{API}/queues/emails/tasks"
DOCUMENT = build_document()


@pytest.fixture
def tasks(redis_client: RedisClient) -> Tasks:
    """Tasks of some states."""
    made = Tasks(redis_client, "emails")
    made.put(TaskState.ARCHIVED, "a", "b", "c", error_msg="boom", last_failed_at=1, payload=b'{"n":1}')
    made.pending("p")
    return made


def check_problem(answer: httpx.Response, status: int, code: str, field: str = "") -> dict[str, Any]:
    """Compare a problem with what it must be, and return its members."""
    problem: dict[str, Any] = answer.json()
    assert (status, code, field) == (answer.status_code, problem["code"], problem.get("field", ""))
    assert "application/problem+json" == answer.headers["content-type"]
    assert status == problem["status"]
    assert {"type", "title", "detail"} < problem.keys()
    return problem


def check_record(name: str, record: object) -> None:
    """Compare a record with its schema in the OpenAPI document."""
    schema = {**DOCUMENT["components"]["schemas"][name], "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(record)


def role(name: str, **options: Any) -> Callable[[Request], Awaitable[User | None]]:
    """Return the function of a host application that lets everyone in with this role."""

    async def who(_: Request) -> User | None:
        return User.with_role("mira", name, **options)

    return who


@run_async
async def test_pages_of_tasks_follow_one_another(redis_url: str, tasks: Tasks) -> None:
    """`next` of one page is the cursor of the next; it is null at the end."""
    found: list[str] = []
    cursor: str | None = ""
    async with visiting(redis_url) as visitor:
        while cursor is not None:
            page = (
                await visitor.get(TASKS, params={"state": "archived", "limit": 2, "cursor": cursor})
            ).json()
            for record in page["items"]:
                check_record("Task", record)
            found += [record["id"] for record in page["items"]]
            cursor = page["next"]
    assert ["c", "b", "a"] == found


@run_async
async def test_pages_of_queues_follow_one_another(redis_url: str, redis_client: RedisClient) -> None:
    """Pages are ordered by name, and a name may contain any character."""
    names = ["a", "b/c", "é"]
    for name in names:
        Tasks(redis_client, name).pending("p")
    found: list[str] = []
    cursor: str | None = ""
    async with visiting(redis_url) as visitor:
        while cursor is not None:
            page = (await visitor.get(f"{API}/queues", params={"limit": 1, "cursor": cursor})).json()
            found += [record["queue"] for record in page["items"]]
            cursor = page["next"]
    assert names == found


@run_async
async def test_a_foreign_cursor_is_refused(redis_url: str, tasks: Tasks) -> None:
    """Each list answers such a cursor with the error for a wrong parameter."""
    async with visiting(redis_url) as visitor:
        for path in ("queues", "queues/emails/tasks?state=archived", "tasks?q=state:archived", "audit"):
            answer = await visitor.get(
                f"{API}/{path}", params={"cursor": "AAAA"} if "?" not in path else None
            )
            if "?" in path:
                answer = await visitor.get(f"{API}/{path}&cursor=AAAA")
            check_problem(answer, 422, "invalid_value", "cursor")


@run_async
async def test_wrong_parameters_are_named(redis_url: str, tasks: Tasks) -> None:
    """An unknown one with the nearest, a missing one, one twice, and one out of its bounds."""
    async with visiting(redis_url) as visitor:
        problem = check_problem(await visitor.get(f"{TASKS}?stat=retry"), 422, "unknown_parameter", "stat")
        assert "'state'" in problem["remedy"]
        check_problem(await visitor.get(TASKS), 422, "missing_value", "state")
        for query in ("state=x", "state=retry&state=retry", "state=retry&limit=0", "state=retry&limit=1e3"):
            name = "limit" if "limit" in query else "state"
            check_problem(await visitor.get(f"{TASKS}?{query}"), 422, "invalid_value", name)
        check_problem(await visitor.get(f"{API}/tasks?q=stat:x"), 422, "query", "q")
        check_problem(await visitor.get(f"{API}/tasks?q={'x' * 20_000}"), 414, "query_too_long")


@run_async
async def test_wrong_bodies_are_named_without_their_values(redis_url: str, tasks: Tasks) -> None:
    """Neither the value nor a part of it is in the answer."""
    bodies = (
        ({"type": "x", "max_retry": "hunter2"}, "max_retry"),
        ({"type": "x", "until": "hunter2"}, "until"),
        ({"type": "x", "deadline": "hunter2"}, "deadline"),
        ({"type": "x", "headers": {"a": 7}}, "headers[...]"),
        ({"type": "x", "pyload": "hunter2"}, "pyload"),
        ({"payload": "hunter2"}, "type"),
        ({"type": "x", "payload": 1, "payload_text": "hunter2"}, "payload_text"),
        ({"type": "x", "unique": 5, "process_at": "2050-01-01T00:00:00Z", "process_in": 7}, "process_in"),
        (["hunter2"], "body"),
    )
    async with visiting(redis_url) as visitor:
        for body, field in bodies:
            answer = await visitor.post(TASKS, json=body)
            assert 422 == answer.status_code, body
            assert "hunter2" not in answer.text
            assert field == answer.json()["field"] or field == "process_in"


@run_async
async def test_hostile_bodies_are_refused(redis_url: str, redis_client: RedisClient, tasks: Tasks) -> None:
    """Not JSON, too deep, too large, of another type, compressed, on a route without one."""
    before = snapshot(redis_client)
    as_json = {"content-type": "application/json"}
    async with visiting(redis_url) as visitor:
        for content in (b"{", b"\xff", b'"\xed\xa0\x80"', b"nul", b'{"type": NaN}'):
            check_problem(await visitor.post(TASKS, content=content, headers=as_json), 400, "malformed_json")
        deep = b'{"type":"x","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        check_problem(await visitor.post(TASKS, content=deep, headers=as_json), 400, "nested_too_deeply")
        large = b'{"type":"x","payload":"' + b"x" * 1_000_000 + b'"}'
        check_problem(await visitor.post(TASKS, content=large, headers=as_json), 413, "body_too_large")
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json-seq"):
            answer = await visitor.post(TASKS, content=b"{}", headers={"content-type": kind})
            check_problem(answer, 415, "unsupported_media_type", "Content-Type")
        answer = await visitor.post(TASKS, content=b"{}", headers={**as_json, "content-encoding": "gzip"})
        check_problem(answer, 415, "unsupported_encoding")
        answer = await visitor.request("DELETE", f"{TASKS}/a", json={})
        check_problem(answer, 422, "unexpected_body")
    assert before == snapshot(redis_client)


@run_async
async def test_braces_in_texts_are_not_levels(redis_url: str, tasks: Tasks) -> None:
    """Only the nesting of the JSON counts."""
    async with visiting(redis_url) as visitor:
        text = '\\"[' * 300
        answer = await visitor.post(TASKS, json={"type": "x", "payload": {"text": text, "more": [[]] * 200}})
    assert (201, text) == (answer.status_code, answer.json()["payload"]["text"])


@run_async
async def test_a_payload_is_stored_as_it_is_sent(redis_url: str, tasks: Tasks) -> None:
    """Numbers keep their digits; text and bytes have fields of their own."""
    body = b'{"type": "x", "task_id": "t", "payload": {"n": 123456789012345678901234567890, "f": 1.10 }}'
    async with visiting(redis_url) as visitor:
        answer = await visitor.post(TASKS, content=body, headers={"content-type": "application/json"})
        assert (201, "../../queues/emails/tasks/t") == (answer.status_code, answer.headers["location"])
        check_record("EnqueuedTask", answer.json())
        found = await visitor.get(answer.request.url.join(answer.headers["location"]))
        assert "t" == found.json()["id"]
        await visitor.post(TASKS, json={"type": "x", "task_id": "text", "payload_text": "hällo"})
        await visitor.post(TASKS, json={"type": "x", "task_id": "bytes", "payload_base64": "/w=="})
        await visitor.post(TASKS, json={"type": "x", "task_id": "none"})
        shown = (await visitor.get(f"{TASKS}/bytes")).json()["payload"]
    stored = [
        decode_task_message(tasks.fields(task_id)["msg"]).payload
        for task_id in ("t", "text", "bytes", "none")
    ]
    assert [
        b'{"n": 123456789012345678901234567890, "f": 1.10 }',
        "hällo".encode(),
        b"\xff",
        b"",
    ] == stored
    assert {"base64": "/w=="} == shown


@run_async
async def test_a_payload_that_parsers_choke_on_is_a_text(redis_url: str, redis_client: RedisClient) -> None:
    """A list with such a task is read like any other; numbers that JSON does not have are texts, too."""
    tasks = Tasks(redis_client, "emails")
    deep = b"[" * 990 + b"]" * 990
    tasks.pending("deep", payload=deep)
    tasks.pending("nan", payload=b'{"a":NaN}')
    async with visiting(redis_url) as visitor:
        items = (await visitor.get(f"{TASKS}?state=pending")).json()["items"]
    assert {"deep": {"text": deep.decode()}, "nan": {"text": '{"a":NaN}'}} == {
        one["id"]: one["payload"] for one in items
    }


@run_async
async def test_a_key_enqueues_one_task(redis_url: str, tasks: Tasks) -> None:
    """A repeat finds it, also when it is gone; another body under the key is refused; keys are per user."""
    key = {"Idempotency-Key": "order-42"}
    async with visiting(redis_url) as visitor:
        first = await visitor.post(TASKS, json={"type": "x", "payload": 1}, headers=key)
        again = await visitor.post(TASKS, json={"type": "x", "payload": 1}, headers=key)
        assert [201, 200] == [first.status_code, again.status_code]
        assert first.json()["id"] == again.json()["id"]
        assert "existing" == again.json()["enqueue_status"]
        other = await visitor.post(TASKS, json={"type": "x", "payload": 2}, headers=key)
        check_problem(other, 422, "idempotency_key_reused", "Idempotency-Key")
        await visitor.delete(f"{TASKS}/{first.json()['id']}")
        gone = await visitor.post(TASKS, json={"type": "x", "payload": 1}, headers=key)
        assert (200, "ignored") == (gone.status_code, gone.json()["enqueue_status"])
        wrong = await visitor.post(TASKS, json={"type": "x"}, headers={"Idempotency-Key": "x" * 300})
        check_problem(wrong, 422, "invalid_value", "Idempotency-Key")
    async with visiting(redis_url, auth=role("admin")) as visitor:
        theirs = await visitor.post(TASKS, json={"type": "x", "payload": 1}, headers=key)
        assert 201 == theirs.status_code


@run_async
async def test_a_key_makes_one_copy(redis_url: str, tasks: Tasks) -> None:
    """The key is that of one task and payload; a repeat finds the copy, also when it is gone."""
    copy, key = f"{TASKS}/a:copy", {"Idempotency-Key": "copy-1"}
    async with visiting(redis_url) as visitor:
        first = await visitor.post(copy, json={}, headers=key)
        again = await visitor.post(copy, json={}, headers=key)
        assert [(201, "enqueued"), (200, "existing")] == [
            (answer.status_code, answer.json()["enqueue_status"]) for answer in (first, again)
        ]
        assert first.json()["id"] == again.json()["id"]
        for path, body in ((copy, {"payload": 2}), (f"{TASKS}/b:copy", {})):
            other = await visitor.post(path, json=body, headers=key)
            check_problem(other, 422, "idempotency_key_reused", "Idempotency-Key")
        await visitor.delete(f"{TASKS}/{first.json()['id']}")
        gone = await visitor.post(copy, json={}, headers=key)
        assert (200, "ignored") == (gone.status_code, gone.json()["enqueue_status"])
        assert 201 == (await visitor.post(copy, json={})).status_code
    assert 2 == len(tasks.ids("pending"))


@run_async
async def test_a_key_runs_a_schedule_once(redis_url: str, redis_client: RedisClient) -> None:
    """Its history has one run, also when its task is gone by then."""
    announce_schedules(redis_client)
    entry, key = f"{API}/schedules/entry-cart.remind", {"Idempotency-Key": "run-1"}
    async with visiting(redis_url) as visitor:
        before = len((await visitor.get(f"{entry}/events")).json()["items"])
        first, again = [await visitor.post(f"{entry}:run", json={}, headers=key) for _ in range(2)]
        assert [(201, "enqueued"), (200, "existing")] == [
            (answer.status_code, answer.json()["enqueue_status"]) for answer in (first, again)
        ]
        assert first.json()["id"] == again.json()["id"]
        assert before + 1 == len((await visitor.get(f"{entry}/events")).json()["items"])
        await visitor.delete(f"{API}/queues/emails/tasks/{first.json()['id']}")
        gone = await visitor.post(f"{entry}:run", json={}, headers=key)
        assert (200, "ignored") == (gone.status_code, gone.json()["enqueue_status"])
        assert before + 1 == len((await visitor.get(f"{entry}/events")).json()["items"])


@run_async
async def test_a_key_adds_one_mark(redis_url: str, redis_client: RedisClient) -> None:
    """A repeat returns the first one, with its time; another text is another mark."""
    key = {"Idempotency-Key": "deploy-7"}
    async with visiting(redis_url) as visitor:
        first = await visitor.post(
            f"{API}/marks", json={"text": "deploy", "at": "2026-11-25T14:05:00.25Z"}, headers=key
        )
        again = await visitor.post(f"{API}/marks", json={"text": "deploy"}, headers=key)
        await visitor.post(f"{API}/marks", json={"text": "rollback"}, headers=key)
        await visitor.post(f"{API}/marks", json={"text": "deploy"})
        assert first.json() == again.json()
    assert 3 == redis_client.zcard(MARKS_KEY)


@run_async
async def test_an_error_of_the_state_is_a_conflict(redis_url: str, tasks: Tasks) -> None:
    """The task's state is told; the dry run foresees it."""
    async with visiting(redis_url) as visitor:
        for query in ("?dry_run=true", ""):
            problem = check_problem(await visitor.post(f"{TASKS}/p:run{query}"), 409, "task_state")
            assert "pending" == problem["state"]
        assert 201 == (await visitor.post(TASKS, json={"type": "x", "task_id": "t"})).status_code
        check_problem(await visitor.post(TASKS, json={"type": "x", "task_id": "t"}), 409, "task_id_conflict")
        check_problem(await visitor.delete(f"{API}/queues/emails"), 409, "queue_not_empty")


@run_async
async def test_a_dry_run_for_some_tasks_tells_the_fate_of_each(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """The same as the deletion itself."""
    body = {"ids": ["a", "nowhere", "p"]}
    async with visiting(redis_url) as visitor:
        before = snapshot(redis_client)
        dry = (await visitor.post(f"{TASKS}:archive?dry_run=true", json=body)).json()
        assert before == snapshot(redis_client)
        real = (await visitor.post(f"{TASKS}:archive", json=body)).json()
    assert real["items"] == dry["items"]
    assert [False, False, True] == [one["done"] for one in real["items"]]
    assert (1, 2) == (dry["done"], dry["refused"])


@run_async
async def test_an_operation_runs_and_is_undone(redis_url: str, tasks: Tasks) -> None:
    """Preview, reason, 202 with its address, its end, and the way back."""
    body = {"act": "delete", "query": "queue:emails state:archived"}
    async with visiting(redis_url) as visitor:
        preview = (await visitor.post(f"{API}/operations?dry_run=true", json=body)).json()
        check_record("OperationPreview", preview)
        assert (3, True, True) == (preview["total"], preview["needs_reason"], preview["can_undo"])
        check_problem(await visitor.post(f"{API}/operations", json=body), 422, "invalid_value", "reason")
        answer = await visitor.post(f"{API}/operations", json={**body, "reason": "old"})
        assert 202 == answer.status_code
        address = f"{API}/{answer.headers['location']}"
        await _wait_for_end(visitor, address)
        assert [] == tasks.ids("archived")
        check_problem(await visitor.post(f"{address}:pause"), 409, "operation_state")
        undo = await visitor.post(f"{address}:undo", json={"reason": "not so old"})
        assert 202 == undo.status_code
        await _wait_for_end(visitor, f"{API}/operations/{undo.json()['operation']}")
        assert undo.headers["location"].endswith(f"operations/{undo.json()['operation']}")
    assert ["a", "b", "c"] == tasks.ids("archived")


@run_async
async def test_a_key_starts_one_operation(redis_url: str, tasks: Tasks) -> None:
    """A repeat finds it, though its query finds no task any more; keys are per user."""
    key = {"Idempotency-Key": "clean-up"}
    body = {"act": "delete", "query": "queue:emails state:archived", "reason": "old"}
    async with visiting(redis_url) as visitor:
        dry = await visitor.post(f"{API}/operations?dry_run=true", json=body, headers=key)
        assert 200 == dry.status_code
        first = await visitor.post(f"{API}/operations", json=body, headers=key)
        await _wait_for_end(visitor, f"{API}/{first.headers['location']}")
        again = await visitor.post(f"{API}/operations", json=body, headers=key)
        assert [202, 202] == [first.status_code, again.status_code]
        assert first.json()["operation"] == again.json()["operation"]
        assert ("done", 3) == (again.json()["state"], again.json()["done"])
        assert 1 == len((await visitor.get(f"{API}/operations")).json()["items"])
        other = await visitor.post(f"{API}/operations", json={**body, "act": "run"}, headers=key)
        check_problem(other, 422, "idempotency_key_reused", "Idempotency-Key")
        wrong = await visitor.post(f"{API}/operations", json=body, headers={"Idempotency-Key": "x" * 300})
        check_problem(wrong, 422, "invalid_value", "Idempotency-Key")
    async with visiting(redis_url, auth=role("admin")) as visitor:
        theirs = await visitor.post(f"{API}/operations", json=body, headers=key)
        check_problem(theirs, 422, "invalid_value", "query")


@run_async
async def test_a_key_whose_start_has_not_ended_starts_nothing(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Its process may still be writing the tasks down, or has died: nothing was acted on."""
    key = {"Idempotency-Key": "clean-up"}
    body = {"act": "delete", "ids": {"emails": ["a"]}, "reason": "old"}
    async with visiting(redis_url) as visitor:
        first = (await visitor.post(f"{API}/operations", json=body, headers=key)).json()["operation"]
        redis_client.hset(f"asynq:x:op:{first}", "state", "ready")
        again = await visitor.post(f"{API}/operations", json=body, headers=key)
        check_problem(again, 409, "operation_state")


async def _wait_for_end(visitor: httpx.AsyncClient, address: str) -> None:
    while True:
        record = (await visitor.get(address)).json()
        check_record("OperationRecord", record)
        if record["state"] == "done":
            return


@run_async
async def test_limits_are_not_overwritten_unseen(redis_url: str, tasks: Tasks) -> None:
    """The second of two who have read the same limits is told that they have changed."""
    address = f"{API}/queues/emails/limits"
    async with visiting(redis_url) as visitor:
        tag = (await visitor.get(address)).headers["etag"]
        changed = await visitor.patch(address, json={"max_run": 3}, headers={"If-Match": tag})
        assert (200, 3) == (changed.status_code, changed.json()["max_run"])
        late = await visitor.patch(address, json={"max_run": 5}, headers={"If-Match": tag})
        check_problem(late, 412, "changed_meanwhile", "If-Match")
        assert 3 == (await visitor.get(address)).json()["max_run"]
        removed = await visitor.patch(address, json={"max_run": None, "rate": 2.5, "period": 60})
        assert (None, 2.5, 60.0) == tuple(removed.json()[name] for name in ("max_run", "rate", "period"))
        check_problem(await visitor.patch(address, json={}), 422, "invalid_value", "max_run")


@run_async
async def test_a_get_that_has_not_changed_is_not_sent_again(redis_url: str, tasks: Tasks) -> None:
    """304 without a body; nothing is kept by caches."""
    async with visiting(redis_url) as visitor:
        first = await visitor.get(f"{TASKS}/a")
        again = await visitor.get(f"{TASKS}/a", headers={"If-None-Match": f'"x", W/{first.headers["etag"]}'})
        assert (304, b"") == (again.status_code, again.content)
        assert "no-store" == first.headers["cache-control"]


@run_async
async def test_other_methods_are_told(redis_url: str, tasks: Tasks) -> None:
    """405 with those that the path has; HEAD is GET without the body."""
    async with visiting(redis_url) as visitor:
        answer = await visitor.patch(f"{TASKS}/a", json={})
        check_problem(answer, 405, "method_not_allowed")
        assert "DELETE, GET, HEAD" == answer.headers["allow"]
        head, get = await visitor.head(f"{TASKS}/a"), await visitor.get(f"{TASKS}/a")
        assert (200, b"") == (head.status_code, head.content)
        assert get.headers["content-length"] == head.headers["content-length"]
        assert "POST" == (await visitor.get(f"{TASKS}/a:run")).headers["allow"]
        check_problem(await visitor.get(f"{API}/nothing"), 404, "no_such_path")


@run_async
async def test_hostile_names_are_found_by_their_address(redis_url: str, redis_client: RedisClient) -> None:
    """Percent-encoded; a slash does not part a name, and `:run` at its end is not an act."""
    for name in ('a"<b>&%:~\u202e', "x/y", "..", "a:run", "%2F", "é", "line\nbreak", "\x00\x1b"):
        Tasks(redis_client, name).pending(name)
        async with visiting(redis_url) as visitor:
            sent = quote(name, safe="").replace(".", "%2E")
            answer = await visitor.get(f"{API}/queues/{sent}/tasks/{sent}")
            assert (200, name, name) == (
                answer.status_code,
                answer.json()["queue"],
                answer.json()["id"],
            )
            archived = await visitor.post(f"{API}/queues/{sent}/tasks/{sent}:archive")
            assert (200, "archived") == (archived.status_code, archived.json()["state"])


@run_async
async def test_a_mounted_api_has_the_same_addresses(redis_url: str, redis_client: RedisClient) -> None:
    """Below a prefix, names with slashes included; locations are relative."""
    Tasks(redis_client, "x/y").pending("p")
    site = dashboard(redis_url)
    host = Starlette(routes=[Mount("/in/here", site)])
    async with visiting(site, host=host) as visitor:
        assert 200 == (await visitor.get("in/here/api/v1/queues/x%2Fy")).status_code
        answer = await visitor.post("in/here/api/v1/queues/x%2Fy/tasks", json={"type": "x"})
        found = await visitor.get(answer.request.url.join(answer.headers["location"]))
    assert (201, answer.json()["id"]) == (answer.status_code, found.json()["id"])


@run_async
async def test_secrets_and_what_a_viewer_may_not_see_stay_hidden(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Lists, searches and exports hide them alike."""
    Tasks(redis_client, "emails").pending("p", payload=b'{"password":"hunter2","plan":"attack"}')
    for name, is_shown in (("operator", True), ("viewer", False)):
        async with visiting(redis_url, client=ABROAD, auth=role(name)) as visitor:
            for path in ("queues/emails/tasks/p", "queues/emails/tasks?state=pending", "tasks?q=type:email*"):
                answer = await visitor.get(f"{API}/{path}")
                assert "hunter2" not in answer.text
                assert is_shown == ("attack" in answer.text), f"{path} for {name}"
            export = await visitor.get(f"{API}/tasks", headers={"accept": "application/x-ndjson"})
            assert (200 if is_shown else 403) == export.status_code
            assert "hunter2" not in export.text


@run_async
async def test_an_export_has_all_matches(redis_url: str, tasks: Tasks) -> None:
    """One a line, however many a page has; `limit` counts if it is given. A wrong query is told before."""
    lines = {"accept": "application/x-ndjson"}
    async with visiting(redis_url) as visitor:
        answer = await visitor.get(f"{API}/tasks?q=state:archived", headers=lines)
        assert "application/x-ndjson" == answer.headers["content-type"]
        assert {"a", "b", "c"} == {json.loads(line)["id"] for line in answer.text.splitlines()}
        one = await visitor.get(f"{API}/tasks?q=state:archived&limit=1", headers=lines)
        assert 1 == len(one.text.splitlines())
        check_problem(await visitor.get(f"{API}/tasks?q=x:y:", headers=lines), 422, "query", "q")


@run_async
async def test_tasks_that_are_due_count_for_autoscalers(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Tasks that are due soon count if it is asked for; a paused queue wants no workers."""
    tasks.put(TaskState.SCHEDULED, "soon", score=1)
    images = Tasks(redis_client, "images")
    images.pending("p", "q")
    redis_client.set(images.keys.paused, "1")
    async with visiting(redis_url) as visitor:
        asked = f"{API}/scale?queue=emails&queue=images"
        check_record("Scale", (await visitor.get(asked)).json())
        assert 2 == (await visitor.get(f"{asked}&due_within=60")).json()["value"]
        assert ["images"] == (await visitor.get(asked)).json()["paused"]
        check_problem(await visitor.get(f"{API}/scale"), 422, "missing_value", "queue")
        check_problem(await visitor.get(f"{API}/scale?queue=nothing"), 404, "queue_not_found")


@run_async
async def test_a_stranger_is_told_how_to_sign_in(redis_url: str, tasks: Tasks) -> None:
    """Whatever the path; a token that is wrong is told apart."""
    async with visiting(redis_url, client=ABROAD) as visitor:
        for path in ("queues", "nothing", "openapi.json"):
            answer = await visitor.get(f"{API}/{path}")
            check_problem(answer, 401, "not_signed_in")
            assert 'Bearer realm="pyasynq"' == answer.headers["www-authenticate"]
        wrong = await visitor.get(f"{API}/queues", headers={"authorization": "Bearer x"})
        assert 'error="invalid_token"' in wrong.headers["www-authenticate"]


@run_async
async def test_nothing_can_be_changed_in_read_only_mode(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Nor in a dry run; what reads is answered."""
    before = {key: value for key, value in snapshot(redis_client).items() if ":x:" not in key}
    async with visiting(redis_url, read_only=True) as visitor:
        for query in ("", "?dry_run=true"):
            check_problem(await visitor.delete(f"{TASKS}/a{query}"), 403, "read_only")
        assert 200 == (await visitor.get(f"{TASKS}/a")).status_code
        assert (await visitor.get(f"{API}/me")).json()["read_only"]
    assert before == {key: value for key, value in snapshot(redis_client).items() if ":x:" not in key}


@run_async
async def test_a_session_changes_things_from_its_own_site_alone(
    redis_url: str, tmp_path: Path, tasks: Tasks
) -> None:
    """A header of the browser says so, or the token of a form does; a bearer token needs neither."""
    token = make_token()
    people = tmp_path / "people"
    people.write_text(
        f"{password_line('mira', 'operator', '*', 'long enough')}\n"
        f"{token_line('ci', 'operator', '*', date(2100, 1, 1), token)}\n"
    )
    path = f"{TASKS}/a?dry_run=true"
    async with visiting(redis_url, client=ABROAD, auth=CredentialsFile(people)) as visitor:
        page = await visitor.get("login")
        signed = await visitor.post(
            "login",
            data={"csrf": form_token(page.text), "name": "mira", "password": "long enough"},
            headers={"sec-fetch-site": "same-origin"},
        )
        assert 303 == signed.status_code
        assert "mira" == (await visitor.get(f"{API}/me")).json()["user"]
        for headers in (
            {},
            {"sec-fetch-site": "cross-site"},
            {"origin": "https://evil.example"},
            {"x-csrf-token": "x"},
        ):
            check_problem(await visitor.delete(path, headers=headers), 403, "another_site")
        csrf = form_token((await visitor.get("settings")).text)
        for headers in (
            {"sec-fetch-site": "same-origin"},
            {"origin": "http://localhost"},
            {"x-csrf-token": csrf},
        ):
            assert 200 == (await visitor.delete(path, headers=headers)).status_code
        refusals = (await visitor.get(f"{API}/audit/refusals")).json()["items"]
        assert {("mira", "request", "DELETE /api/v1/queues/emails/tasks/a")} == {
            (one["user"], one["verb"], one["details"]["request"]) for one in refusals
        }
        assert ["emails"] == refusals[0]["queues"]
        visitor.cookies.clear()
        bearer = {"authorization": f"Bearer {token}"}
        assert 200 == (await visitor.delete(path, headers=bearer)).status_code


@run_async
async def test_too_many_requests_are_told_when_to_go_on(redis_url: str, tasks: Tasks) -> None:
    """The limit is for one user from one address."""
    async with visiting(redis_url, api_requests=2) as visitor:
        answers = [await visitor.get(f"{API}/me") for _ in range(3)]
    assert [200, 200, 429] == [answer.status_code for answer in answers]
    check_problem(answers[2], 429, "too_many_requests")
    assert 0 < int(answers[2].headers["retry-after"]) <= 60


@run_async
async def test_the_document_is_served(redis_url: str) -> None:
    """The served document equals the file in the repository."""
    async with visiting(redis_url) as visitor:
        answer = await visitor.get(f"{API}/openapi.json")
    assert DOCUMENT == answer.json()


@run_async
async def test_a_payload_is_replaced_only_if_the_task_is_as_it_was_read(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The second of two programs that have read the same task is refused."""
    Tasks(redis_client, "emails").put(TaskState.ARCHIVED, "a", payload=b"old")
    async with visiting(redis_url) as visitor:
        address = "api/v1/queues/emails/tasks/a"
        tag = (await visitor.get(address)).headers["etag"]
        for status, text in ((200, "one"), (412, "two")):
            changed = await visitor.put(
                f"{address}/payload", json={"payload_text": text}, headers={"If-Match": tag}
            )
            assert status == changed.status_code
        check_problem(changed, 412, "changed_meanwhile", "If-Match")
        assert {"text": "one"} == (await visitor.get(address)).json()["payload"]
