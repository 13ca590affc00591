"""Tokens that must change nothing, and clients that hang up."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._engine.run.attempt import Phase
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


NOT_FOUND = (404, "attempt_not_found")
LOST = (409, "lease_lost")
SETTLED = (409, "attempt_settled")
FENCES = {
    "stale": LOST,
    "another key's": NOT_FOUND,
    "a narrowed key's": NOT_FOUND,
    "altered": NOT_FOUND,
    "of another secret": NOT_FOUND,
    "invented": NOT_FOUND,
    "settled": SETTLED,
}
"""Status and code by what is wrong with a token, for each act."""
DONE = (204, None)
PLACES = ("pending", "active", "scheduled", "retry", "archived", "completed")
REPEATED = {("settled", "complete"): DONE}
"""Cells of the table in which a settle is answered as the first time."""


def read_all(tasks: Tasks) -> dict[str, Any]:
    """Return all that an act could change."""
    ids = {
        name: tasks.ids(name) for name in ("pending", "active", "scheduled", "retry", "archived", "completed")
    }
    names = {one for found in ids.values() for one in found}
    verdicts = tasks.client.zrange(tasks.keys.verdicts, 0, -1)
    return {
        **ids,
        **{name: tasks.fields(name) for name in names},
        "lease": tasks.scores("lease"),
        "verdicts": verdicts,
    }


def alter(token: str) -> str:
    """Return a token with another character in its middle."""
    return token[:20] + ("A" if token[20] != "A" else "B") + token[21:]


async def act_both_ways(
    service: Instance, token: str, act: str, key: str = "one"
) -> list[tuple[int, str | None]]:
    """Return status and code of an act that is sent alone, and of the same in a batch."""
    answer = await service.act(token, act, key, **ACTS[act])
    alone = answer.status_code, answer.json()["code"] if answer.status_code >= 400 else None
    item = {"act": act, "token": token, **ACTS[act]}
    [result] = (await service.post("/v1/attempts:batch", {"attempts": [item]}, key)).json()["results"]
    return [alone, (result["status"], result.get("problem", {}).get("code"))]


async def make_token(kind: str, one: Instance, stranger: Instance) -> str:
    """Return a token of task `a` with which something is wrong."""
    token: str = (await (stranger if kind == "of another secret" else one).take(lease=600))["token"]
    if kind == "settled":
        assert 204 == (await one.act(token, "complete", **ACTS["complete"])).status_code
    return {"altered": alter(token), "invented": "%F0%9F%92%A9"}.get(kind, token)


@pytest.mark.parametrize("kind", FENCES)
@run_async
async def test_a_token_that_is_not_that_of_the_attempt_changes_nothing(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each act, alone and in a batch, through the instance that leased it and through another. (T-fence)"""
    tasks.pending("a", retention=600)
    monkeypatch.setattr("pyasynq.consumer._consumer.DEFAULT_ENGINE_SETTINGS", RECOVERY)
    async with (
        leasing(redis_url) as one,
        leasing(redis_url) as two,
        leasing(redis_url, keyring=Keyring([b"x" * 32])) as stranger,
    ):
        if kind == "stale":
            token = (await one.take(lease=1))["token"]
            task = await two.take(lease=600)
            assert ("a", 1, 0) == (task["id"], task["attempt"], task["crashes"])
        else:
            token = await make_token(kind, one, stranger)
        if kind == "a narrowed key's":
            one.keys["one"] = two.keys["one"] = Key(queues=("other",))
        key = "two" if kind == "another key's" else "one"
        before = read_all(tasks)
        for act in ACTS:
            expected = [REPEATED.get((kind, act), FENCES[kind])] * 2
            assert [expected] * 2 == [await act_both_ways(service, token, act, key) for service in (one, two)]
            assert before == read_all(tasks)


@pytest.mark.parametrize("act", ACTS)
@run_async
async def test_a_token_works_through_another_instance(redis_url: str, tasks: Tasks, act: str) -> None:
    """Alone and in a batch; a settle is answered again as the first time, by each instance. (T-fence)"""
    tasks.pending("a", retention=600)
    async with leasing(redis_url) as one, leasing(redis_url) as two:
        token = (await one.take(lease=600))["token"]
        expected = [(200, None) if act == "extend" else DONE] * 2
        for service in (two, one):
            assert expected == await act_both_ways(service, token, act)
    places = {"extend": "active", "complete": "completed", "fail": "retry", "snooze": "retry"}
    assert ["a"] == tasks.ids(places.get(act, "pending"))


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

        async def find_late(queue: str, task_id: str, receipt: str, *, confirm: bool = True) -> Attempt:
            nonlocal searches
            searches += 1
            attempt = await find(queue, task_id, receipt, confirm=confirm)
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


@pytest.mark.parametrize("act", ["complete", "fail", "snooze", "release"])
@run_async
async def test_a_settle_through_the_instance_that_leased_the_task_is_one_call(
    redis_url: str, tasks: Tasks, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance knows the attempt; Redis checks the lease when it settles."""

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("Redis was asked for the attempt")

    tasks.pending("a")
    async with leasing(redis_url) as one:
        token = (await one.take(lease=600))["token"]
        monkeypatch.setattr("pyasynq._engine.consumer_engine.find_attempt", refuse)
        assert 204 == (await one.act(token, act, **ACTS[act])).status_code
    assert [] == tasks.ids("active")


@run_async
async def test_a_settle_is_refused_once_its_lease_has_lapsed_and_another_worker_has_the_task(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the instance that leased it believes that the lease is still valid."""
    tasks.pending("a")
    monkeypatch.setattr("pyasynq.consumer._consumer.DEFAULT_ENGINE_SETTINGS", RECOVERY)
    async with leasing(redis_url) as one, leasing(redis_url) as two:
        token = (await one.take(lease=1))["token"]
        consumer = one.leases._served._consumer
        assert consumer is not None
        [attempt] = consumer._running()._roster.snapshot()
        # As if the clock of this process stood still.
        attempt.lease_until += 600
        assert "a" == (await two.take(lease=600))["id"]
        assert Phase.RUNNING is attempt.phase
        answer = await one.act(token, "complete")
        assert LOST == (answer.status_code, answer.json()["code"])
    assert ["a"] == tasks.ids("active")


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
