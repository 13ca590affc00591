"""Limits of the task service: full queues, too much work, and bodies that are too large or too slow."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from pyasynq.gateway.api import enqueue_batch
from pyasynq.gateway.api.enqueue import prepare_task
from pyasynq.gateway.api.load import LoopLag
from tests.contract.gateway.test_leases import check_problem
from tests.fix_leases import until
from tests.fix_service import serving
from tests.ports import HOST, free_port
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from pyasynq.task import EnqueueResult, Task
    from tests.fix_service import Visitor

pytestmark = pytest.mark.usefixtures("redis_client")
FULL = {"resize": {"max_pending": 3}, "deliver": {}}


async def enqueue(visitor: Visitor, name: str = "resize", **options: Any) -> int:
    """Enqueue a task; return the status."""
    answer = await visitor.ask("POST", "/v1/tasks", {"type": name, "options": options})
    return answer.status_code


@run_async
async def test_a_full_queue_takes_no_more_until_it_is_shorter(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance counts what it lets in, and looks once a second; other types are not full."""
    now = [100.0]
    async with serving(redis_url, FULL) as visitor:
        monkeypatch.setattr(visitor.service._parts.back_pressure, "_monotonic", lambda: now[0])
        assert [201] * 3 == [await enqueue(visitor) for _ in range(3)]
        answer = await visitor.ask("POST", "/v1/tasks", {"type": "resize"})
        check_problem(answer, 429, "queue_full")
        assert "1" == answer.headers["retry-after"]
        assert 201 == await enqueue(visitor, "deliver")
        await visitor.take("resize")
        assert 429 == await enqueue(visitor)
        now[0] += 1.1
        assert [201, 429] == [await enqueue(visitor) for _ in range(2)]


@run_async
async def test_all_instances_see_a_full_queue_and_batches_are_cut(redis_url: str) -> None:
    """The tasks of a batch that fit are enqueued, and each of the others is told."""
    async with serving(redis_url, FULL) as one, serving(redis_url, FULL) as two:
        items = [{"type": "resize"}, {"type": "deliver"}] * 4
        answer = await one.ask("POST", "/v1/tasks:batch", {"tasks": items})
        results = answer.json()["results"]
        assert [201, 201, 201, 201, 201, 201, 429, 201] == [result["status"] for result in results]
        assert 429 == await enqueue(two)


@run_async
async def test_requests_above_the_number_that_is_worked_on_are_refused(redis_url: str) -> None:
    """Long polls do not count, and probes are always answered."""
    async with serving(redis_url, settings={"max_inflight": 2}) as visitor:
        await visitor.ask("GET", "/v1/task-types")
        go = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            await go.wait()
            yield b'{"type": "deliver"}'

        headers = {"content-type": "application/json"}
        waits = []
        for count in range(1, 6):
            wait = visitor.ask("POST", "/v1/leases", {"queues": ["resize"], "wait": 50})
            waits.append(asyncio.create_task(wait))
            await until(lambda count=count: visitor.service.waiting == count)  # type: ignore[misc]
        gate = visitor.service._gate
        works = [
            asyncio.create_task(visitor.client.post("/v1/tasks", content=body(), headers=headers))
            for _ in range(2)
        ]
        await until(lambda: gate.inflight == 2)
        answer = await visitor.ask("GET", "/v1/task-types")
        check_problem(answer, 503, "overloaded")
        assert "1" == answer.headers["retry-after"]
        assert [200, 200] == [(await visitor.ask("GET", path)).status_code for path in ("/live", "/ready")]
        go.set()
        assert [201, 201] == [(await work).status_code for work in works]
        assert 200 == (await visitor.ask("GET", "/v1/task-types")).status_code
        visitor.service.end_waits()
        assert [204] * 5 == [(await wait).status_code for wait in waits]
        assert 0 == gate.inflight


@run_async
async def test_an_instance_works_on_two_batches_at_once(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pile of large batches would block the event loop for seconds, so that everything is refused."""
    async with serving(redis_url) as visitor:
        client = visitor.service._parts.client
        enqueue_many = client.enqueue_many
        running, most = 0, 0

        async def enqueue_and_count(tasks: Iterable[Task]) -> list[EnqueueResult]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                return await enqueue_many(tasks)
            finally:
                running -= 1

        monkeypatch.setattr(client, "enqueue_many", enqueue_and_count)
        batch = {"tasks": [{"type": "deliver"}] * 50}
        answers = await asyncio.gather(*(visitor.ask("POST", "/v1/tasks:batch", batch) for _ in range(6)))
        assert [200] * 6 == [answer.status_code for answer in answers]
        assert 2 == most


@run_async
async def test_other_requests_have_turns_between_the_tasks_of_a_batch(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hundred tasks, in the part before they are sent and in the part after it."""
    turns: Counter[int] = Counter()
    turn = 0

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def prepare_and_count(*arguments: Any) -> Any:
        turns[turn] += 1
        return await prepare_task(*arguments)

    monkeypatch.setattr(enqueue_batch, "prepare_task", prepare_and_count)
    async with serving(redis_url) as visitor:
        counting = asyncio.create_task(count_turns())
        answer = await visitor.ask("POST", "/v1/tasks:batch", {"tasks": [{"type": "deliver"}] * 1_000})
        counting.cancel()
        assert {201} == {result["status"] for result in answer.json()["results"]}
        assert [100] * 10 == list(turns.values())


@run_async
async def test_a_busy_instance_begins_nothing_but_ends_what_it_has(redis_url: str) -> None:
    """So its work gets less; one late tick is a pause, and not overload."""
    async with serving(redis_url) as visitor:
        await enqueue(visitor)
        task = await visitor.take("resize")
        lag = visitor.service._gate.lag
        lag.stop()
        for late in (0.0, 0.2, 0.2):
            lag.note(late)
        assert 200 == (await visitor.ask("GET", "/v1/task-types")).status_code
        lag.note(0.2)
        check_problem(await visitor.ask("GET", "/v1/task-types"), 503, "overloaded")
        await visitor.settle(task, "complete")
        lag.note(0.01)
        assert 200 == (await visitor.ask("GET", "/v1/task-types")).status_code


@pytest.mark.parametrize("count", [200, pytest.param(2_000, marks=pytest.mark.long)])
@run_async
async def test_polls_that_wait_are_never_refused_for_load(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """However many come at once, and however late the loop is: two get tasks, the others nothing."""
    async with serving(redis_url, settings={"max_inflight": 1}) as visitor:
        await visitor.ask("GET", "/v1/task-types")
        monkeypatch.setattr(LoopLag, "is_overloaded", True)
        poll = {"queues": ["resize"], "wait": 55, "lease": 600}
        polls = [asyncio.create_task(visitor.ask("POST", "/v1/leases", poll)) for _ in range(count)]
        await until(lambda: visitor.service.waiting == count)
        check_problem(await visitor.ask("POST", "/v1/leases", {**poll, "wait": 0}), 503, "overloaded")
        monkeypatch.setattr(LoopLag, "is_overloaded", False)
        assert 204 == (await visitor.ask("POST", "/v1/leases", {**poll, "wait": 0})).status_code
        assert [201] * 2 == [await enqueue(visitor) for _ in range(2)]
        await until(lambda: visitor.service.waiting == count - 2)
        visitor.service.end_waits()
        answers = [await one for one in polls]
    assert {200: 2, 204: count - 2} == Counter(answer.status_code for answer in answers)


@run_async
async def test_looks_for_tasks_that_do_not_wait_are_work(redis_url: str) -> None:
    """They count while they are worked on, as other requests do."""
    async with serving(redis_url, settings={"max_inflight": 1}) as visitor:
        await visitor.ask("GET", "/v1/task-types")
        looks = [visitor.ask("POST", "/v1/leases", {"queues": ["resize"], "wait": 0}) for _ in range(9)]
        statuses = Counter(answer.status_code for answer in await asyncio.gather(*looks))
        assert {204, 503} == set(statuses)
        assert 0 == visitor.service._gate.inflight


@run_async
async def test_a_blocked_loop_is_noticed() -> None:
    """By a timer that comes late each time."""
    lag = LoopLag()
    lag.start()
    try:
        seen = [lag.is_overloaded]
        for _ in range(6):
            time.sleep(0.17)  # noqa: ASYNC251 - the loop is to be blocked
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        seen.append(lag.is_overloaded)
        assert [False, True] == seen
        await until(lambda: not lag.is_overloaded)
    finally:
        lag.stop()


@asynccontextmanager
async def connecting(visitor: Visitor) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve an instance on a port for the time of a block, and connect to it."""
    port = free_port()
    config = uvicorn.Config(visitor.service, host=HOST, port=port, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            yield reader, writer
        finally:
            writer.close()
    finally:
        server.should_exit = True
        await task


BODY = json.dumps({"type": "deliver", "params": "x" * 100}).encode()
HEAD = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def chunk(content: bytes) -> bytes:
    """Return a chunk of a body whose length is not told."""
    return b"%x\r\n%b\r\n" % (len(content), content)


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (HEAD + b"Content-Length: 99999999\r\n\r\n", 413, "body_too_large"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b" " * 3_000), 413, "body_too_large"),
        (HEAD + b"Content-Length: 500\r\n\r\n" + BODY, 408, "body_too_slow"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(BODY), 408, "body_too_slow"),
        (
            HEAD
            + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(gzip.compress(BODY, mtime=0))
            + gzip.compress(BODY, mtime=0),
            415,
            "unsupported_encoding",
        ),
        (HEAD + b"Content-Length: 10\r\n\r\n" + BODY, 400, "malformed_json"),
    ],
    ids=["announced", "chunked", "too little", "no end", "compressed", "too much"],
)
@run_async
async def test_a_body_that_lies_is_refused(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, sent: bytes, status: int, code: str
) -> None:
    """The connection is closed, and nothing is enqueued, whatever length was told."""
    monkeypatch.setattr("pyasynq.web.api.json_body.BODY_SECONDS", 0.2)
    async with (
        serving(redis_url, settings={"max_body": 2_000}) as visitor,
        connecting(visitor) as (reader, writer),
    ):
        writer.write(sent)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split()[0])
        problem = json.loads(await reader.readexactly(length))
        assert (status, code) == (problem["status"], problem["code"])
        if status != 415:
            await reader.read()
        assert "deliver" not in await visitor.operator.queues()
