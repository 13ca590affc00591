"""Leases over HTTP: what each request does to a task, and what its answer is."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._wire.messages import decode_task_message
from pyasynq.client import Client
from pyasynq.consumer import ConsumerConfig
from pyasynq.inspector import Inspector
from tests.fix_leases import leasing, until
from tests.run_async import run_async

if TYPE_CHECKING:
    import httpx

    from tests.factories import Tasks
    from tests.fix_leases import Instance
    from tests.invariants import RedisClient

DONE: tuple[str, dict[str, Any]] = "complete", {"result": {"n": 1}}
FAILED: tuple[str, dict[str, Any]] = "fail", {"error": "no route"}
OUTCOMES: dict[str, tuple[str, dict[str, Any]]] = {
    "complete": DONE,
    "fail": FAILED,
    "archive": ("fail", {"error": "never", "retry": False}),
    "snooze": ("snooze", {"delay": 60}),
    "cancel": ("cancel", {"reason": "withdrawn"}),
    "release": ("release", {}),
}


def check_problem(answer: httpx.Response, status: int, code: str, field: str = "") -> dict[str, Any]:
    """Compare a problem with what it must be, and return its members."""
    problem: dict[str, Any] = answer.json()
    assert (status, code, field) == (answer.status_code, problem["code"], problem.get("field", ""))
    assert "application/problem+json" == answer.headers["content-type"]
    return problem


@run_async
async def test_a_leased_task_has_all_that_a_worker_needs(redis_url: str) -> None:
    """Times have a zone; the payload is the JSON that was enqueued."""
    async with Client(redis_url) as client, leasing(redis_url) as service:
        info = await client.enqueue(
            "resize", b'{"path":"\xc3\xbc"}', headers={"trace": "1"}, max_retry=3, timeout=600
        )
        task = await service.take(lease=30)
        assert {"id": info.id, "type": "resize", "queue": "default", "payload": {"path": "ü"}} == {
            name: task[name] for name in ("id", "type", "queue", "payload")
        }
        assert ({"trace": "1"}, 1, 3, 0) == tuple(
            task[name] for name in ("headers", "attempt", "max_retry", "crashes")
        )
        left = datetime.fromisoformat(task["lease_until"]).timestamp() - time.time()
        assert 0 < left <= 32
        assert datetime.fromisoformat(task["deadline"]) > datetime.fromisoformat(task["lease_until"])
        assert 204 == (await service.act(task["token"], "complete")).status_code


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"[1, 2]", {"payload": [1, 2]}),
        (b"null", {"payload": None}),
        (b"not json", {"payload_text": "not json"}),
        (b"\xff\x00", {"payload_base64": "/wA="}),
        (b'"\xff"', {"payload_base64": "Iv8i"}),
        (b"[" * 100 + b"]" * 100, {"payload_text": "[" * 100 + "]" * 100}),
        (b"", {}),
    ],
)
@run_async
async def test_a_payload_of_any_bytes_reaches_the_worker(
    redis_url: str, tasks: Tasks, payload: bytes, shown: dict[str, Any]
) -> None:
    """As JSON, as text or in Base64."""
    tasks.pending("a", payload=payload)
    async with leasing(redis_url) as service:
        task = await service.take()
        assert shown == {name: task[name] for name in task if name.startswith("payload")}
        await service.act(task["token"], "complete")


@run_async
async def test_a_poll_ends_without_a_task_or_with_the_first(redis_url: str, tasks: Tasks) -> None:
    """It is answered as soon as there is one."""
    async with Client(redis_url) as client, leasing(redis_url) as service:
        empty = await service.lease(wait=0)
        assert (204, b"") == (empty.status_code, empty.content)
        poll = asyncio.create_task(service.lease(wait=55))
        await client.enqueue("t", b"1", task_id="a")
        [task] = (await poll).json()["tasks"]
        assert "a" == task["id"]
        await service.act(task["token"], "release")
    assert ["a"] == tasks.ids("pending")


@run_async
async def test_waiting_polls_need_no_connection(
    redis_url: str, redis_client: RedisClient, tasks: Tasks
) -> None:
    """One consumer waits for all of them."""
    async with leasing(redis_url) as service:
        tasks.pending("a")
        await service.act((await service.take())["token"], "complete")  # all connections are open then
        before = len(redis_client.client_list())
        polls = [asyncio.create_task(service.lease(wait=55)) for _ in range(100)]
        await service.lease(wait=0.1)
        assert 100 == service.leases.waiting
        # On a cluster, a service of the consumer may open its connection to another node meanwhile.
        assert len(redis_client.client_list()) <= before + 3
        await service.leases.close()
        assert {204} == {(await poll).status_code for poll in polls}
        assert "shutting_down" == (await service.lease()).json()["code"]


@run_async
async def test_an_instance_that_ends_answers_polls_and_still_settles(redis_url: str, tasks: Tasks) -> None:
    """Its workers go to another instance for the next task."""
    tasks.pending("a")
    async with leasing(redis_url) as service:
        task = await service.take()
        poll = asyncio.create_task(service.lease(wait=55))
        await until(lambda: service.leases.waiting)
        service.leases.end_waits()
        assert 204 == (await poll).status_code
        refused = check_problem(await service.lease(wait=0), 503, "shutting_down")
        assert "another instance" in refused["remedy"]
        extended = await service.act(task["token"], "extend")
        assert 204 == (await service.act(extended.json()["token"], "complete")).status_code
        await service.leases.close()
        check_problem(await service.act(task["token"], "complete"), 503, "shutting_down")
    assert {} == tasks.fields("a")


@run_async
async def test_several_tasks_come_in_their_order_and_up_to_a_size(redis_url: str, tasks: Tasks) -> None:
    """What is too much goes back to the front; the first task always comes."""
    tasks.pending("a", "b", "c", payload=b'"' + b"x" * 98 + b'"')
    async with leasing(redis_url) as service:
        answer = await service.lease(limit=3, max_bytes=250)
        first, second = answer.json()["tasks"]
        assert ["a", "b"] == [first["id"], second["id"]]
        third = await service.take(max_bytes=1)
        assert ("c", 1) == (third["id"], third["attempt"])
        for task in (third, second, first):
            await service.act(task["token"], "release")
    assert ["a", "b", "c"] == tasks.ids("pending")


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("name", OUTCOMES)
@run_async
async def test_each_outcome_settles_the_task_and_may_be_sent_again(
    redis_url: str, tasks: Tasks, name: str, elsewhere: bool
) -> None:
    """The same again is answered as the first time, through any instance; another outcome is refused."""
    tasks.pending("a", retention=60)
    act, body = OUTCOMES[name]
    async with leasing(redis_url) as one, leasing(redis_url) as two:
        token = (await one.take())["token"]
        assert 204 == (await one.act(token, act, **body)).status_code
        state = {
            "complete": "completed",
            "fail": "retry",
            "archive": "archived",
            "snooze": "retry" if tasks.ids("retry") else "scheduled",
            "release": "pending",
            "cancel": "",
        }[name]
        assert ["a"] == (tasks.ids(state) if state else ["a"])
        before = tasks.fields("a")
        assert bool(before) == bool(state), "a cancelled task is gone"
        again = two if elsewhere else one
        assert 204 == (await again.act(token, act, **body)).status_code
        for other, other_body in OUTCOMES.values():
            if (other, other_body) != (act, body):
                problem = check_problem(await again.act(token, other, **other_body), 409, "attempt_settled")
                assert act == problem["settled_as"]
        check_problem(await again.act(token, "extend"), 409, "attempt_settled")
        assert before == tasks.fields("a")


@run_async
async def test_results_are_stored_as_they_are_sent(redis_url: str, tasks: Tasks) -> None:
    """JSON without a change, text in UTF-8, bytes from Base64; only one of them."""
    tasks.pending("a", "b", "c", "d", retention=60)
    async with leasing(redis_url) as service:
        tokens = [(await service.take())["token"] for _ in range(4)]
        raw = await service.client.post(
            f"/v1/attempts/{tokens[0]}:complete",
            content=b'{"result": {"a":  1.0} }',
            headers={"authorization": "Bearer one", "content-type": "application/json"},
        )
        assert 204 == raw.status_code
        await service.act(tokens[1], "complete", result_text="ü")
        await service.act(tokens[2], "complete", result_base64="/wA=")
        both = await service.act(tokens[3], "complete", result_text="x", result=1)
        check_problem(both, 422, "invalid_value", "result")
        assert 204 == (await service.act(tokens[3], "complete")).status_code
    assert [b'{"a":  1.0}', "ü".encode(), b"\xff\x00"] == [tasks.fields(one)["result"] for one in "abc"]
    assert "result" not in tasks.fields("d")


@run_async
async def test_a_failure_spends_a_retry_unless_it_says_not_to(redis_url: str, tasks: Tasks) -> None:
    """The error is the task's, and the delay is obeyed."""
    tasks.pending("a", "b", retry=5)
    async with leasing(redis_url) as service:
        first, second = (await service.lease(limit=2)).json()["tasks"]
        since = int(time.time())
        await service.act(first["token"], "fail", error="no route", delay=3_600)
        await service.act(second["token"], "fail", error="busy", delay=7_200, spend=False)
    messages = [decode_task_message(tasks.fields(one)["msg"]) for one in "ab"]
    assert [(1, "no route"), (0, "busy")] == [(one.retried, one.error_msg) for one in messages]
    scores = tasks.scores("retry")
    assert since + 3_600 <= scores["a"] <= since + 3_630
    assert since + 7_200 <= scores["b"] <= since + 7_230


@run_async
async def test_a_lease_is_extended_with_progress(redis_url: str, tasks: Tasks) -> None:
    """The answer has a new token; the earlier one still names the attempt."""
    tasks.pending("a")
    async with leasing(redis_url) as one, leasing(redis_url) as two, Inspector(redis_url) as inspector:
        task = await one.take(lease=20)
        progress = {"done": 3, "total": 10, "note": "page 3"}
        answer = await two.act(task["token"], "extend", lease=600, progress=progress)
        extended = answer.json()
        assert (200, {"token", "lease_until", "deadline"}) == (answer.status_code, extended.keys())
        assert datetime.fromisoformat(extended["lease_until"]).timestamp() == tasks.scores("lease")["a"]
        assert tasks.scores("lease")["a"] > time.time() + 500
        await until(lambda: "x:progress" in tasks.fields("a"))
        told = (await inspector.task_info("default", "a")).progress
        assert told is not None
        assert (3, 10, "page 3") == (told.done, told.total, told.note)
        assert 200 == (await one.act(task["token"], "extend", lease=300)).status_code
        assert 204 == (await one.act(extended["token"], "complete")).status_code
    assert {} == tasks.fields("a")


@pytest.mark.parametrize("act", ["extend", "complete", "fail"])
@run_async
async def test_a_worker_hears_of_a_cancellation(redis_url: str, tasks: Tasks, act: str) -> None:
    """From its next request, through any instance; the task is settled as the request says."""
    tasks.pending("a")
    async with leasing(redis_url) as one, leasing(redis_url) as two, Inspector(redis_url) as inspector:
        task = await one.take()
        await inspector.cancel("a", "default", "archive")
        await until(lambda: tasks.ids("archived"))
        body = {"error": "x"} if act == "fail" else {}
        for service in (one, two):
            problem = check_problem(await service.act(task["token"], act, **body), 410, "attempt_over")
            assert ("cancelled", "archive") == (problem["reason"], problem["outcome"])


@run_async
async def test_a_worker_hears_that_its_time_is_over(redis_url: str, tasks: Tasks) -> None:
    """The task is retried, and not by this attempt."""
    tasks.pending("a", timeout=1)
    async with leasing(redis_url) as service:
        task = await service.take()
        await until(lambda: tasks.ids("retry"))
        for act in ("extend", "complete"):
            assert (
                "timed-out"
                == check_problem(await service.act(task["token"], act), 410, "attempt_over")["reason"]
            )


@run_async
async def test_a_batch_is_answered_item_by_item(redis_url: str, tasks: Tasks) -> None:
    """A wrong item does not stop the others, and is named by its place."""
    tasks.pending("a", "b", "c")
    async with leasing(redis_url) as service:
        first, second, third = (task["token"] for task in (await service.lease(limit=3)).json()["tasks"])
        answer = await service.post(
            "/v1/attempts:batch",
            {
                "attempts": [
                    {"act": "complete", "token": first},
                    {"act": "complete", "token": first},
                    {"act": "extend", "token": second, "lease": 90},
                    {"act": "fail", "token": third, "eror": "x"},
                    {"act": "snooze", "token": third[:-1] + "!", "delay": 1},
                    {"act": "complete", "token": third, "result": [1]},
                ]
            },
        )
        results = answer.json()["results"]
        assert [204, 204, 200, 422, 404, 204] == [one["status"] for one in results]
        assert "attempts[3].eror" == results[3]["problem"]["field"]
        assert "error" in results[3]["problem"]["remedy"]
        assert 204 == (await service.act(results[2]["extended"]["token"], "release")).status_code
    assert ["b"] == tasks.ids("pending")


@run_async
async def test_a_wrong_request_names_the_field_and_the_remedy(redis_url: str) -> None:
    """Nothing is leased for it."""
    async with leasing(redis_url, queues=lambda: ["emails", "reports"]) as service:
        problem = check_problem(await service.lease("emails", wate=3), 422, "invalid_value", "wate")
        assert "wait" in problem["remedy"]
        for field, value in {"wait": 56, "limit": 0, "lease": 0.5, "max_bytes": 0, "queues": []}.items():
            check_problem(
                await service.post("/v1/leases", {"queues": ["emails"], field: value}),
                422,
                "invalid_value",
                field,
            )
        problem = check_problem(await service.lease("email"), 404, "queue_not_found", "queues")
        assert "emails" in problem["remedy"]
        hidden = await service.lease("report", key="emails")
        assert "reports" not in hidden.text
        check_problem(hidden, 404, "queue_not_found", "queues")
        check_problem(await service.lease("emails", key="unknown"), 401, "no_key")
        check_problem(await service.lease("emails", key="none"), 403, "missing_scope")
        check_problem(await service.act("x", "fail"), 422, "invalid_value", "error")
        large = await service.act("x", "fail", error="x" * 1_000_001)
        check_problem(large, 413, "body_too_large")


@run_async
async def test_a_lease_longer_than_the_service_allows_is_refused(redis_url: str) -> None:
    """By the name that the worker gave it."""
    async with leasing(redis_url, config=ConsumerConfig(max_lease=60)) as service:
        check_problem(await service.lease(lease=61), 422, "invalid_value", "lease")


@run_async
async def test_a_result_above_the_limit_is_refused_and_settles_nothing(redis_url: str, tasks: Tasks) -> None:
    """The worker may send a smaller one."""
    tasks.pending("a")
    async with leasing(redis_url, config=ConsumerConfig(max_result=10)) as service:
        task = await service.take()
        check_problem(
            await service.act(task["token"], "complete", result="x" * 20), 413, "result_too_large", "result"
        )
        assert ["a"] == tasks.ids("active")
        assert 204 == (await service.act(task["token"], "complete", result="x")).status_code


@run_async
async def test_a_fifo_queue_keeps_its_order_across_instances(redis_url: str, tasks: Tasks) -> None:
    """A failed task keeps the others waiting until it is done, however many workers there are."""
    tasks.pending(*"abcdef")
    done: list[str] = []

    async def work(service: Instance) -> None:
        while len(done) < 6:
            answer = await service.lease(wait=0.5)
            for task in answer.json()["tasks"] if answer.status_code == 200 else ():
                if task["id"] == "b" and task["attempt"] == 1:
                    await service.act(task["token"], "fail", error="not yet", delay=0)
                else:
                    done.append(task["id"])
                    await service.act(task["token"], "complete")

    async with leasing(redis_url) as one, leasing(redis_url) as two, Inspector(redis_url) as inspector:
        await inspector.set_queue_limits("default", ordered=True)
        await asyncio.gather(*(work(service) for service in (one, two, one, two)))
    assert list("abcdef") == done


@run_async
async def test_the_limit_of_a_queue_holds_across_instances(redis_url: str, tasks: Tasks) -> None:
    """It is in Redis; a settle through either instance makes room."""
    tasks.pending(*"abcdef")
    async with leasing(redis_url) as one, leasing(redis_url) as two, Inspector(redis_url) as inspector:
        await inspector.set_queue_limits("default", max_run=2)
        first = await one.take()
        second = await two.take()
        assert [204, 204] == [(await service.lease(limit=5, wait=0.2)).status_code for service in (one, two)]
        await two.act(first["token"], "complete")
        third = await one.take()
        assert 204 == (await two.lease(limit=5, wait=0.2)).status_code
        for task in (second, third):
            await one.act(task["token"], "complete")
        assert 3 == len(tasks.ids("pending"))
