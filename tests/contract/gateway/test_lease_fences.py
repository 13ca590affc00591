"""Tokens that must change nothing, and clients that hang up."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.client import Client
from pyasynq.gateway.leases import Keyring
from tests.fix_engine import QUICK
from tests.fix_leases import Key, leasing, until
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.consumer import Attempt
    from tests.factories import Tasks
    from tests.fix_drivers import OwnServer
    from tests.fix_leases import Instance

RECOVERY = dataclasses.replace(QUICK, lease=1, own_slack=0)
ACTS: dict[str, dict[str, Any]] = {
    "extend": {"lease": 600},
    "complete": {"result": 1},
    "fail": {"error": "x"},
    "snooze": {"delay": 5},
    "release": {},
}


async def check_refused(service: Instance, token: str, code: str, key: str = "one") -> None:
    """Check that a token changes nothing, whatever is asked with it."""
    for act, body in ACTS.items():
        answer = await service.act(token, act, key, **body)
        assert ({"attempt_not_found": 404, "lease_lost": 409}[code], code) == (
            answer.status_code,
            answer.json()["code"],
        )
        item = {"act": act, "token": token, **body}
        [result] = (await service.post("/v1/attempts:batch", {"attempts": [item]}, key)).json()["results"]
        assert code == result["problem"]["code"]


@run_async
async def test_foreign_altered_and_invented_tokens_change_nothing(redis_url: str, tasks: Tasks) -> None:
    """Through the instance that leased the task and through another."""
    tasks.pending("a")
    async with (
        leasing(redis_url) as one,
        leasing(redis_url) as two,
        leasing(redis_url, keyring=Keyring([b"x" * 32])) as stranger,
    ):
        tasks.pending("b")
        token = (await one.take())["token"]
        foreign = (await stranger.take())["token"]
        before = tasks.fields("a"), tasks.fields("b"), tasks.scores("lease")
        for service in (one, two):
            await check_refused(service, token, "attempt_not_found", key="two")
            await check_refused(service, foreign, "attempt_not_found")
            await check_refused(
                service, token[:20] + ("A" if token[20] != "A" else "B") + token[21:], "attempt_not_found"
            )
            await check_refused(service, "%F0%9F%92%A9", "attempt_not_found")
        one.keys["one"] = Key(queues=("other",))
        await check_refused(one, token, "attempt_not_found")
        one.keys["one"] = Key()
        assert before == (tasks.fields("a"), tasks.fields("b"), tasks.scores("lease"))
        assert 204 == (await one.act(token, "release")).status_code
        assert 204 == (await stranger.act(foreign, "release")).status_code


@run_async
async def test_a_stale_token_changes_nothing_when_another_worker_has_the_task(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease has lapsed, and the task was given out again."""
    monkeypatch.setattr("pyasynq.consumer._consumer.DEFAULT_ENGINE_SETTINGS", RECOVERY)
    tasks.pending("a")
    async with leasing(redis_url) as one, leasing(redis_url) as two:
        stale = (await one.take(lease=1))["token"]
        task = await two.take(lease=60)
        assert ("a", 1, 0) == (task["id"], task["attempt"], task["crashes"])
        before = tasks.fields("a"), tasks.scores("lease")
        for service in (one, two):
            await check_refused(service, stale, "lease_lost")
        assert before == (tasks.fields("a"), tasks.scores("lease"))
        assert 204 == (await one.act(task["token"], "complete")).status_code
        await check_refused(two, stale, "lease_lost")
    assert {} == tasks.fields("a")


@pytest.mark.parametrize("act", ACTS)
@run_async
async def test_an_extension_between_the_search_for_an_attempt_and_its_act(
    redis_url: str, tasks: Tasks, act: str
) -> None:
    """A worker's renewal through another instance overtakes it; what it asked for is done all the same."""
    tasks.pending("a")
    async with leasing(redis_url) as one, leasing(redis_url) as two:
        token = (await one.take(lease=2))["token"]
        consumer = one.leases._served._consumer
        assert consumer is not None
        find, searches = consumer.find, 0

        async def find_late(queue: str, task_id: str, receipt: str) -> Attempt:
            nonlocal searches
            searches += 1
            attempt = await find(queue, task_id, receipt)
            if searches == 1:
                assert 200 == (await two.act(token, "extend", lease=3_000)).status_code
            return attempt

        consumer.find = find_late  # type: ignore[method-assign]
        answer = await one.act(token, act, **ACTS[act])
        assert (200 if act == "extend" else 204) == answer.status_code
        assert 2 == searches
        if act == "extend":
            assert 204 == (await one.act(answer.json()["token"], "complete")).status_code
    assert [] == tasks.ids("active")


def make_scope(body: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Return the ASGI scope and the body of a lease request."""
    content = json.dumps(body).encode()
    headers = [(b"authorization", b"Bearer one"), (b"content-type", b"application/json")]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/leases",
        "raw_path": b"/v1/leases",
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("service", 80),
        "state": {},
    }, content


async def call(
    service: Instance, body: dict[str, Any], send: Callable[[Any], Any], gone: asyncio.Event
) -> None:
    """Send a lease request whose client hangs up when the event is set."""
    scope, content = make_scope(body)
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": content, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    await service.app(scope, receive, send)


@run_async
async def test_a_client_that_hangs_up_while_it_waits_takes_nothing(redis_url: str, tasks: Tasks) -> None:
    """Its poll is over at once; the next task is for others."""
    async with leasing(redis_url) as service, Client(redis_url) as client:
        await service.lease(wait=0)
        gone = asyncio.Event()

        async def send(_: Any) -> None:
            await asyncio.sleep(0)

        poll = asyncio.create_task(call(service, {"queues": ["default"], "wait": 55}, send, gone))
        await until(lambda: service.leases.waiting)
        gone.set()
        await poll
        assert 0 == service.leases.waiting
        await client.enqueue("t", b"1", task_id="a")
        task = await service.take()
        assert "a" == task["id"]
        await service.act(task["token"], "release")
    assert ["a"] == tasks.ids("pending")


@pytest.mark.parametrize("when", ["before the body", "error at the start", "error at the body"])
@run_async
async def test_tasks_go_back_when_their_answer_cannot_be_sent(
    redis_url: str, tasks: Tasks, when: str
) -> None:
    """To the front, in their order, without a retry or a crash."""
    tasks.pending("a", "b", "c")
    async with leasing(redis_url) as service:
        gone = asyncio.Event()

        async def send(message: Any) -> None:
            if when == f"error at the {message['type'].rpartition('.')[2]}":
                raise OSError("the connection is closed")
            if message["type"] == "http.response.start" and when == "before the body":
                gone.set()
                for _ in range(5):
                    await asyncio.sleep(0)

        try:
            await call(service, {"queues": ["default"], "limit": 2}, send, gone)
        except OSError:
            assert when != "before the body"
        answer = await service.lease(limit=3)
        back = answer.json()["tasks"]
        while len(back) < 3:
            back += (await service.lease(limit=3)).json()["tasks"]
        assert {("a", 1, 0), ("b", 1, 0), ("c", 1, 0)} == {
            (one["id"], one["attempt"], one["crashes"]) for one in back
        }
        for task in back:
            await service.act(task["token"], "complete")


@run_async
async def test_an_outage_of_redis_is_told_and_the_outcome_may_be_sent_again(own_server: OwnServer) -> None:
    """The settle goes on; the same again is answered when Redis has confirmed it."""
    own_server.stop()
    own_server.start("--appendonly", "yes", "--appendfsync", "always")
    async with Client(own_server.url) as client, leasing(own_server.url, settle_seconds=0.3) as service:
        await client.enqueue("t", b"1", task_id="a")
        task = await service.take()
        own_server.stop()
        answer = await service.act(task["token"], "complete")
        assert (503, True) == (answer.status_code, "retry-after" in answer.headers)
        own_server.start("--appendonly", "yes", "--appendfsync", "always")
        while (answer := await service.act(task["token"], "complete")).status_code != 204:
            assert 503 == answer.status_code
