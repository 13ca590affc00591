"""Tasks over HTTP: both forms, checks against the type, repeats, results, cancellations."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._wire.messages import decode_task_message
from pyasynq.task import TaskState
from tests.contract.gateway.test_leases import check_problem
from tests.factories import Tasks
from tests.fix_service import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.invariants import RedisClient

pytestmark = pytest.mark.usefixtures("redis_client")
LONG_NUMBER = b'{"task_id": 1, "task_name": "dumpfeature", "params": ' + b"1" * 5_000 + b"}"
SHORT = {"task_id": 1, "task_name": "dumpfeature", "params": {"path": "/tmp/a"}}


def message_of(client: RedisClient, queue: str, task_id: str) -> Any:
    """Return the stored message of a task."""
    return decode_task_message(client.hget(f"asynq:{{{queue}}}:t:{task_id}", "msg"))


@run_async
async def test_a_task_has_the_options_of_its_type_and_its_own(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Its own win; the type is also its queue, and the params are stored as they are sent."""
    async with serving(redis_url) as visitor:
        body = b'{"type": "resize", "params": {"n": 1.50}, "options": {"timeout": 7, "headers": {"a": "b"}}}'
        answer = await visitor.ask("POST", "/v1/tasks", body, headers={"content-type": "application/json"})
        made = answer.json()

    message = message_of(redis_client, "resize", made["id"])
    assert (201, f"/v1/tasks/resize/{made['id']}") == (answer.status_code, answer.headers["location"])
    assert {"queue": "resize", "type": "resize", "state": "pending", "existing": False} == {
        name: made[name] for name in ("queue", "type", "state", "existing")
    }
    assert (5, 7, 3_600, b'{"n": 1.50}', {"a": "b"}) == (
        *(message.retry, message.timeout, message.retention, message.payload),
        message.headers,
    )


@pytest.mark.parametrize(
    "body",
    [
        SHORT,
        {"TaskID": 1, "TaskName": "dumpfeature", "Params": {"path": "/tmp/a"}},
        {**SHORT, "task_id": "1"},
    ],
)
@run_async
async def test_the_short_form_is_understood_in_both_spellings(
    redis_url: str, redis_client: RedisClient, body: dict[str, Any]
) -> None:
    """The id is the text of the number."""
    async with serving(redis_url) as visitor:
        answer = await visitor.ask("POST", "/v1/tasks", body)

    assert (201, "1", "dumpfeature") == (answer.status_code, answer.json()["id"], answer.json()["queue"])
    assert b'{"path":"/tmp/a"}' == message_of(redis_client, "dumpfeature", "1").payload.replace(b" ", b"")


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.SCHEDULED, TaskState.RETRY])
@run_async
async def test_while_a_numbered_task_waits_a_repeat_answers_with_it(
    redis_url: str, redis_client: RedisClient, state: TaskState
) -> None:
    """Whatever its params; nothing is changed."""
    Tasks(redis_client, "dumpfeature").put(state, "1", payload=b"old")
    async with serving(redis_url) as visitor:
        answer = await visitor.ask("POST", "/v1/tasks", SHORT)

    assert (200, True, str(state)) == (
        *(answer.status_code, answer.json()["existing"]),
        answer.json()["state"],
    )
    assert b"old" == message_of(redis_client, "dumpfeature", "1").payload


@run_async
async def test_while_a_numbered_task_runs_a_repeat_answers_with_it(redis_url: str) -> None:
    """After its end a repeat starts it again."""
    async with serving(redis_url) as visitor:
        await visitor.ask("POST", "/v1/tasks", SHORT)
        attempt = await visitor.take("dumpfeature")
        running = await visitor.ask("POST", "/v1/tasks", SHORT)
        await visitor.settle(attempt, "complete", result="fine")
        again = await visitor.ask("POST", "/v1/tasks", SHORT)

    assert (200, True, "active") == (
        *(running.status_code, running.json()["existing"]),
        running.json()["state"],
    )
    assert (201, False, "pending") == (again.status_code, again.json()["existing"], again.json()["state"])


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.ARCHIVED])
@run_async
async def test_a_finished_numbered_task_is_replaced(
    redis_url: str, redis_client: RedisClient, state: TaskState
) -> None:
    """With the params of the repeat."""
    now = int(time.time())
    kept: Any = {"retention": 60, "completed_at": now, "score": now + 60} if state == "completed" else {}
    Tasks(redis_client, "dumpfeature").put(state, "1", payload=b"old", **kept)
    async with serving(redis_url) as visitor:
        answer = await visitor.ask("POST", "/v1/tasks", SHORT)

    assert (201, False) == (answer.status_code, answer.json()["existing"])
    assert b"/tmp/a" in message_of(redis_client, "dumpfeature", "1").payload


@pytest.mark.parametrize(
    ("body", "status", "code", "field", "remedy"),
    [
        ({"type": "rezise"}, 422, "unknown_task_type", "type", "resize"),
        ({"task_id": 1, "task_name": "dumpfeatur"}, 422, "unknown_task_type", "task_name", "dumpfeature"),
        ({"TaskID": 1, "TaskName": "nope"}, 422, "unknown_task_type", "TaskName", "/v1/task-types"),
        ({**SHORT, "params": {"path": 5}}, 422, "invalid_value", "params.path", ""),
        ({**SHORT, "params": {}}, 422, "invalid_value", "params", "path"),
        ({**SHORT, "TaskName": "x"}, 422, "invalid_value", "task_id", ""),
        ({**SHORT, "option": 1}, 422, "invalid_value", "option", ""),
        ({"task_name": "dumpfeature"}, 422, "invalid_value", "task_id", "missing"),
        ({"type": "dumpfeature", "payload_text": "x"}, 422, "invalid_value", "params", "schema"),
        (LONG_NUMBER, 422, "invalid_value", "params", "too many digits"),
        ({"type": "dumpfeature"}, 422, "invalid_value", "params", "schema"),
        ({"type": "resize", "params": 1, "payload": 1}, 422, "invalid_value", "payload", "one of"),
        ({"type": "resize", "options": {"queue": "x"}}, 422, "invalid_value", "options.queue", ""),
        ({"type": "resize", "options": {"max_retry": -1}}, 422, "invalid_value", "options.max_retry", ""),
        ({"type": "resize", "options": {"until": "start"}}, 422, "invalid_value", "options.until", ""),
        ({}, 422, "invalid_value", "type", "missing"),
        ([], 422, "invalid_value", "body", ""),
        (b"{", 400, "malformed_json", "", ""),
    ],
)
@run_async
async def test_a_wrong_body_names_the_field_and_the_remedy(
    redis_url: str, body: Any, status: int, code: str, field: str, remedy: str
) -> None:
    """And enqueues nothing."""
    async with serving(redis_url) as visitor:
        headers = {"content-type": "application/json"}
        answer = await visitor.ask("POST", "/v1/tasks", body, headers=headers)
        problem = check_problem(answer, status, code, field)
        assert remedy in problem.get("remedy", "")
        assert [] == [one for one in await visitor.operator.queues() if one != "default"]


@run_async
async def test_a_key_for_repeats_starts_one_task(redis_url: str) -> None:
    """Also if requests come at once, or after the task is done; another body is told."""
    async with serving(redis_url) as visitor:
        body = {"type": "deliver", "params": {"n": 1}}
        headers = {"Idempotency-Key": "order-1"}
        sent = [visitor.ask("POST", "/v1/tasks", body, headers=headers) for _ in range(20)]
        answers = await asyncio.gather(*sent)
        assert 1 == len({answer.json()["id"] for answer in answers})
        assert [201, *[200] * 19] == sorted((answer.status_code for answer in answers), reverse=True)
        other = await visitor.ask("POST", "/v1/tasks", {**body, "params": {"n": 2}}, headers=headers)
        check_problem(other, 422, "idempotency_key_reused", "Idempotency-Key")
        await visitor.settle(await visitor.take("deliver"), "complete")
        after = await visitor.ask("POST", "/v1/tasks", body, headers=headers)
        assert (200, answers[0].json()["id"]) == (after.status_code, after.json()["id"])
        short = await visitor.ask("POST", "/v1/tasks", SHORT, headers=headers)
        check_problem(short, 422, "invalid_value", "Idempotency-Key")


@pytest.mark.parametrize(
    "body",
    [
        {"task_id": 7, "task_name": "resize", "on_finished": "deliver"},
        {"TaskID": 7, "TaskName": "resize", "OnFinished": "deliver"},
        {"type": "resize", "options": {"task_id": "7", "on_finished": "deliver"}},
    ],
)
@run_async
async def test_the_end_of_a_task_enqueues_one_of_another_type(redis_url: str, body: dict[str, Any]) -> None:
    """Which a worker in any language leases."""
    async with serving(redis_url) as visitor:
        assert 201 == (await visitor.ask("POST", "/v1/tasks", body)).status_code
        await visitor.settle(await visitor.take("resize"), "fail", error="broken", retry=False)
        told = (await visitor.take("deliver"))["payload"]
        error = told.pop("error")
    assert {"id": "7", "type": "resize", "outcome": "archived"} == told
    assert "broken" in error


@run_async
async def test_an_end_is_told_to_a_type_that_there_is(redis_url: str) -> None:
    """The error names the field, and the most similar type."""
    async with serving(redis_url) as visitor:
        short = {"task_id": 7, "task_name": "resize", "on_finished": "delliver"}
        long = {"type": "resize", "options": {"on_finished": "delliver"}}
        for body, field in ((short, "on_finished"), (long, "options.on_finished")):
            answer = await visitor.ask("POST", "/v1/tasks", body)
            problem = check_problem(answer, 422, "unknown_task_type", field)
            assert "'deliver'" in problem["remedy"]


@run_async
async def test_a_used_task_id_is_a_conflict_in_the_long_form(redis_url: str) -> None:
    """The short form alone answers with the task."""
    async with serving(redis_url) as visitor:
        body = {"type": "resize", "options": {"task_id": "a"}}
        assert 201 == (await visitor.ask("POST", "/v1/tasks", body)).status_code
        check_problem(await visitor.ask("POST", "/v1/tasks", body), 409, "task_id_conflict")


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"result": {"n": 1}}, {"result": {"n": 1}}),
        ({"result_text": "plain"}, {"result_text": "plain"}),
        ({"result_base64": "/w=="}, {"result_base64": "/w=="}),
        ({}, {"result": None}),
    ],
)
@run_async
async def test_a_request_waits_for_the_result(redis_url: str, result: Any, shown: dict[str, Any]) -> None:
    """Both when it enqueues and later; until then a look is answered with 202."""
    async with serving(redis_url) as visitor:
        body = {"type": "resize", "options": {"task_id": "a/b c"}}
        waiting = asyncio.create_task(visitor.ask("POST", "/v1/tasks?wait=50", body))
        attempt = await visitor.take("resize")
        look = await visitor.ask("GET", "/v1/tasks/resize/a%2Fb%20c/result")
        assert (202, {"queue": "resize", "id": "a/b c", "ended": False}) == (look.status_code, look.json())
        later = asyncio.create_task(visitor.ask("GET", "/v1/tasks/resize/a%2Fb%20c/result?wait=50"))
        await visitor.settle(attempt, "complete", **result)
        expected = {"queue": "resize", "id": "a/b c", "ended": True, "state": "completed", **shown}
        for answer in (await waiting, await later):
            assert (200, expected) == (answer.status_code, answer.json())


@run_async
async def test_a_failed_task_tells_its_error(redis_url: str) -> None:
    """And a task without retention is not found once it is done."""
    async with serving(redis_url) as visitor:
        for name in ("failed", "gone"):
            await visitor.ask("POST", "/v1/tasks", {"type": "deliver", "options": {"task_id": name}})
        await visitor.settle(await visitor.take("deliver"), "fail", error="no route", retry=False)
        await visitor.settle(await visitor.take("deliver"), "complete")
        failed = (await visitor.ask("GET", "/v1/tasks/deliver/failed/result")).json()
        assert ("archived", "no route") == (failed["state"], failed["error"])
        for name in ("gone", "never"):
            answer = await visitor.ask("GET", f"/v1/tasks/deliver/{name}/result?wait=1")
            check_problem(answer, 404, "task_not_found")


@run_async
async def test_a_task_is_read_cancelled_and_deleted(redis_url: str) -> None:
    """A running one is cancelled before it can be deleted; the audit has both."""
    async with serving(redis_url) as visitor:
        await visitor.ask("POST", "/v1/tasks", {"type": "resize", "params": 1, "options": {"task_id": "a"}})
        read = (await visitor.ask("GET", "/v1/tasks/resize/a")).json()
        assert ("a", "pending", 1) == (read["id"], read["state"], read["payload"])
        await visitor.take("resize")
        check_problem(await visitor.ask("DELETE", "/v1/tasks/resize/a"), 409, "task_state")
        cancelled = await visitor.ask("POST", "/v1/tasks/resize/a:cancel", {"outcome": "archive"})
        assert ("a", "active") == (cancelled.json()["id"], cancelled.json()["state"])
        ended = await visitor.ask("GET", "/v1/tasks/resize/a/result?wait=50")
        assert "archived" == ended.json()["state"]
        assert 204 == (await visitor.ask("DELETE", "/v1/tasks/resize/a?reason=old")).status_code
        check_problem(await visitor.ask("GET", "/v1/tasks/resize/a"), 404, "task_not_found")
        verbs = [entry.verb for entry in (await visitor.operator.audit()).entries]
        assert ["delete_task", "cancel_task", "delete_task"] == [one for one in verbs if "_task" in one]


@run_async
async def test_a_task_is_run_and_archived(redis_url: str) -> None:
    """A running one is neither; the answers have no body, as the key may not read."""
    async with serving(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("tasks:write")
        body = {"type": "resize", "options": {"task_id": "a", "process_in": 600}}
        await visitor.ask("POST", "/v1/tasks", body, key=key)
        states = []
        for act in ("archive", "run"):
            answer = await visitor.ask("POST", f"/v1/tasks/resize/a:{act}", {"reason": "late"}, key=key)
            assert (204, b"") == (answer.status_code, answer.content)
            states.append(str((await visitor.operator.task("resize", "a")).state))
        assert ["archived", "pending"] == states
        again = await visitor.ask("POST", "/v1/tasks/resize/a:run", key=key)
        check_problem(again, 409, "task_state")
        gone = await visitor.ask("POST", "/v1/tasks/resize/b:archive", key=key)
        check_problem(gone, 404, "task_not_found")
        entries = (await visitor.operator.audit()).entries
        assert [("run_task", "late"), ("archive_task", "late")] == [
            (one.verb, one.reason) for one in entries if one.verb in {"run_task", "archive_task"}
        ][-2:]


@pytest.mark.parametrize(("own", "seconds"), [({}, 600), ({"delay": 30}, 30)])
@run_async
async def test_a_failed_task_waits_as_its_type_says(
    redis_url: str, own: dict[str, Any], seconds: int
) -> None:
    """Unless the worker says how long."""
    async with serving(redis_url, {"slow": {"retry": ["10m"], "max_retry": 3}}) as visitor:
        await visitor.ask("POST", "/v1/tasks", {"type": "slow", "options": {"task_id": "a"}})
        before = time.time()
        await visitor.settle(await visitor.take("slow"), "fail", error="no", **own)
        due = (await visitor.operator.task("slow", "a")).next_process_at
    assert due is not None
    assert seconds - 2 <= due.timestamp() - before <= seconds + 60


@run_async
async def test_a_wait_for_a_task_without_retention_ends_with_it(redis_url: str) -> None:
    """It is gone then, and that is an answer for the program that has enqueued it."""
    async with serving(redis_url) as visitor:
        body = {"type": "deliver", "options": {"task_id": "a"}}
        waiting = asyncio.create_task(visitor.ask("POST", "/v1/tasks?wait=50", body))
        await visitor.settle(await visitor.take("deliver"), "complete")
        answer = await waiting
    assert (200, {"queue": "deliver", "id": "a", "ended": True, "state": "gone"}) == (
        *(answer.status_code, answer.json()),
    )


@run_async
async def test_many_tasks_are_enqueued_in_one_request(redis_url: str, redis_client: RedisClient) -> None:
    """In their order, both forms mixed; an error of one affects no other, and names its place."""
    numbers = [{"type": "resize", "params": n, "options": {"task_id": str(n)}} for n in range(500)]
    items = [
        *numbers,
        SHORT,
        {"type": "rezise"},
        {"type": "resize", "options": {"max_retry": -1}},
        numbers[0],
        5,
    ]
    async with serving(redis_url) as visitor:
        answer = await visitor.ask("POST", "/v1/tasks:batch", {"tasks": items})
        results = answer.json()["results"]

    assert [*[201] * 501, 422, 422, 409, 422] == [one["status"] for one in results]
    assert [str(n) for n in range(500)] == Tasks(redis_client, "resize").ids("pending")
    assert ["tasks[501].type", "tasks[502].options.max_retry", "", "tasks[504].body"] == [
        one["problem"].get("field", "") for one in results if "problem" in one
    ]


@run_async
async def test_a_repeated_batch_with_a_key_enqueues_each_task_once(redis_url: str) -> None:
    """Each task has its own id, also if two are equal."""
    body = {"tasks": [{"type": "resize"}, {"type": "resize"}]}
    headers = {"Idempotency-Key": "one"}
    async with serving(redis_url) as visitor:
        first, second = [
            (await visitor.ask("POST", "/v1/tasks:batch", body, headers=headers)).json()["results"]
            for _ in range(2)
        ]
    ids = [one["task"]["id"] for one in first]
    assert (2, ids) == (len(set(ids)), [one["task"]["id"] for one in second])
    assert [201, 201, 200, 200] == [one["status"] for one in (*first, *second)]


@run_async
async def test_a_batch_answers_as_requests_of_their_own_do(redis_url: str) -> None:
    """For new tasks, for those that are there already, and for invalid ones."""
    variants: list[dict[str, Any]] = [
        {},
        {"process_in": 600},
        {"process_at": "2100-01-01T00:00:00Z"},
        {"process_at": "2000-01-01T00:00:00Z"},
        {"group": "g"},
        {"unique": 600, "unique_key": "k"},
        {"unique": 600, "unique_key": "k", "on_duplicate": "ignore"},
        {"unique": 600, "unique_key": "k", "on_duplicate": "return_existing"},
        {"unique": 600, "unique_key": "k", "on_duplicate": "replace_payload"},
        {"unique": 600, "unique_key": "k"},
        {"task_id": "a"},
        {"task_id": "a"},
        {"until": "start"},
    ]

    def make_bodies(name: str) -> list[dict[str, Any]]:
        short = [{"task_id": 5, "task_name": name}] * 2
        return [*({"type": name, "options": one} for one in variants), *short]

    def simplify(status: int, answer: dict[str, Any]) -> tuple[Any, ...]:
        due = answer.get("process_at") or ""
        return (
            *(status, answer.get("state"), answer.get("existing"), answer.get("code")),
            *(answer.get("field", "").rpartition("].")[2], due[:4]),
        )

    async with serving(redis_url, {"one": {}, "two": {}}) as visitor:
        sent = [await visitor.ask("POST", "/v1/tasks", body) for body in make_bodies("one")]
        alone = [simplify(one.status_code, one.json()) for one in sent]
        batch = await visitor.ask("POST", "/v1/tasks:batch", {"tasks": make_bodies("two")})
        results = batch.json()["results"]
    together = [simplify(one["status"], one.get("task") or one["problem"]) for one in results]
    assert alone == together
    assert {200, 201, 409, 422} == {status for status, *_ in together}


@run_async
async def test_a_key_of_a_batch_is_for_the_same_tasks(redis_url: str) -> None:
    """Another task at a place is told there."""
    headers = {"Idempotency-Key": "one"}
    async with serving(redis_url) as visitor:
        answers = [
            await visitor.ask("POST", "/v1/tasks:batch", {"tasks": tasks}, headers=headers)
            for tasks in (
                [{"type": "resize", "params": 1}, {"type": "resize"}],
                [{"type": "resize", "params": 2}, {"type": "resize"}],
            )
        ]
    assert [[201, 201], [422, 200]] == [[one["status"] for one in a.json()["results"]] for a in answers]
    problem = answers[1].json()["results"][0]["problem"]
    assert "idempotency_key_reused" == problem["code"]


@pytest.mark.parametrize("tasks", [[], [{}] * 1_001, {}])
@run_async
async def test_a_batch_has_1_to_1000_tasks(redis_url: str, tasks: Any) -> None:
    """Others are refused as a whole."""
    async with serving(redis_url) as visitor:
        answer = await visitor.ask("POST", "/v1/tasks:batch", {"tasks": tasks})
        check_problem(answer, 422, "invalid_value", "tasks")
