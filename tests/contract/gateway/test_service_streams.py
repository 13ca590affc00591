"""Tasks as lines of JSON: enqueued as they come, answered in order, with bounded memory."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.gateway.test_service_limits import connecting
from tests.factories import Tasks
from tests.fix_service import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from tests.fix_service import Visitor
    from tests.invariants import RedisClient

pytestmark = pytest.mark.usefixtures("redis_client")
PLACE = "/v1/tasks:batch"
LINES = "application/x-ndjson"
HEAD = (
    b"POST /v1/tasks:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def line(name: str = "resize", **fields: Any) -> bytes:
    """Return a task as a line."""
    return json.dumps({"type": name, **fields}).encode() + b"\n"


def chunk(content: bytes) -> bytes:
    """Return a chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(content), content)


async def stream(visitor: Visitor, *pieces: bytes, **headers: str) -> httpx.Response:
    """Send pieces of a body as lines."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return await visitor.client.post(PLACE, content=body(), headers={"content-type": LINES, **headers})


def read(answer: httpx.Response) -> list[dict[str, Any]]:
    """Return the lines of an answer."""
    assert (200, LINES) == (answer.status_code, answer.headers["content-type"])
    return [json.loads(one) for one in answer.text.splitlines()]


@run_async
async def test_each_line_is_answered_in_order(redis_url: str, redis_client: RedisClient) -> None:
    """However the lines are cut into pieces; an error of one affects no other, and names its place."""
    lines = [line(params=n, options={"task_id": str(n)}) for n in range(1_200)]
    lines[3:3] = [b"\n", line("rezise"), b"{\n", b'{"task_id": 5000, "task_name": "resize"}\n']
    text = b"".join(lines).removesuffix(b"\n")
    pieces = [text[at : at + 777] for at in range(0, len(text), 777)]
    async with serving(redis_url) as visitor:
        results = read(await stream(visitor, *pieces))

    assert [*[201] * 3, 422, 400, *[201] * 1_198] == [one["status"] for one in results]
    assert "tasks[3].type" == results[3]["problem"]["field"]
    ids = [one["task"]["id"] for one in results if "task" in one]
    assert ids == Tasks(redis_client, "resize").ids("pending")


@run_async
async def test_results_come_while_tasks_are_sent(redis_url: str) -> None:
    """So a client may wait for one before it sends the next; its hang-up ends the stream."""
    async with serving(redis_url) as visitor, connecting(visitor) as (reader, writer):
        writer.write(HEAD)
        await reader.readuntil(b"\r\n\r\n")
        for number in range(3):
            writer.write(chunk(line(options={"task_id": str(number)})))
            await reader.readuntil(b"\r\n")
            result = json.loads(await reader.readuntil(b"\n"))
            assert (201, str(number)) == (result["status"], result["task"]["id"])
            await reader.readuntil(b"\r\n")
        writer.write(chunk(line(options={"task_id": "half"})[:-5]))
        await writer.drain()
        writer.close()
        gate = visitor.service._gate
        while gate.inflight:  # noqa: ASYNC110 - the other side ends by itself
            await asyncio.sleep(0.01)
        assert 3 == (await visitor.operator.queue("resize")).pending


@run_async
async def test_a_stream_with_a_key_is_enqueued_once(redis_url: str) -> None:
    """Sent again, for example after it broke, each line finds its task."""
    lines = [line(params=n) for n in range(5)]
    async with serving(redis_url) as visitor:
        headers = {"Idempotency-Key": "import-1"}
        first = read(await stream(visitor, b"".join(lines[:3]), **headers))
        second = read(await stream(visitor, b"".join(lines), **headers))
    assert [201] * 3 + [200] * 3 + [201] * 2 == [one["status"] for one in (*first, *second)]
    assert [one["task"]["id"] for one in first] == [one["task"]["id"] for one in second[:3]]


@run_async
async def test_a_batch_is_answered_in_lines_on_request(redis_url: str) -> None:
    """By the header Accept."""
    async with serving(redis_url) as visitor:
        body = {"tasks": [{"type": "resize"}, {"type": "rezise"}]}
        answer = await visitor.ask("POST", PLACE, body, headers={"accept": f"text/plain, {LINES}; q=1"})
        assert [201, 422] == [one["status"] for one in read(answer)]


@pytest.mark.parametrize(
    ("sent", "code"),
    [(chunk(line()) + chunk(b"x" * 3_000), "body_too_large"), (chunk(line()), "body_too_slow")],
)
@run_async
async def test_a_stream_that_cannot_go_on_says_why(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, sent: bytes, code: str
) -> None:
    """In its last line, after the results."""
    monkeypatch.setattr("pyasynq.gateway.api.task_stream.BODY_SECONDS", 0.3)
    async with (
        serving(redis_url, settings={"max_body": 2_000}) as visitor,
        connecting(visitor) as (reader, writer),
    ):
        writer.write(HEAD + sent)
        answer = await reader.readuntil(b"0\r\n\r\n")
        lines = [json.loads(one) for one in answer.splitlines() if one.startswith(b"{")]
    assert [201, code] == [lines[0]["status"], lines[1]["problem"]["code"]]


@run_async
async def test_a_stream_ends_with_its_instance(redis_url: str) -> None:
    """It tells how many results there are."""
    async with serving(redis_url) as visitor:
        await visitor.ask("GET", "/ready")
        visitor.service.end_waits()
        [last] = read(await stream(visitor, line()))
    assert ("shutting_down", 0) == (last["problem"]["code"], last["problem"]["results"])
