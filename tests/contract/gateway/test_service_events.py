"""States of one task as server-sent events."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.gateway.test_leases import check_problem
from tests.contract.gateway.test_service_limits import connecting
from tests.fix_service import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.fix_service import Visitor

pytestmark = pytest.mark.usefixtures("redis_client")
PLACE = "/v1/tasks/resize/a/events"
BODY = {"type": "resize", "options": {"task_id": "a"}}


async def read_event(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next event of a chunked answer, with its data decoded; comments are events without one."""
    await reader.readuntil(b"\r\n")
    text = (await reader.readuntil(b"\n\n")).decode()
    await reader.readuntil(b"\r\n")
    fields = dict(one.split(": ", 1) for one in text.strip().splitlines())
    return {name: json.loads(value) if name == "data" else value for name, value in fields.items()}


async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, last: str = "") -> None:
    """Ask for the events of the task, and read the head of the answer."""
    seen = f"Last-Event-ID: {last}\r\n" if last else ""
    writer.write(f"GET {PLACE} HTTP/1.1\r\nHost: localhost\r\n{seen}\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert "text/event-stream" in head
    assert {"retry": "3000"} == await read_event(reader)


async def is_idle(visitor: Visitor) -> None:
    """Wait until no request is worked on; the limit of the test ends that."""
    while visitor.service._gate.inflight:  # noqa: ASYNC110 - the other side ends by itself
        await asyncio.sleep(0.01)


@run_async
async def test_the_states_of_a_task_come_until_its_end(redis_url: str) -> None:
    """With its result; then the stream is over."""
    async with serving(redis_url) as visitor, connecting(visitor) as (reader, writer):
        await visitor.ask("POST", "/v1/tasks", BODY)
        await begin(reader, writer)
        first = await read_event(reader)
        attempt = await visitor.take("resize")
        second = await read_event(reader)
        await visitor.settle(attempt, "complete", result={"n": 1})
        events = [first, second, await read_event(reader)]
        assert b"0\r\n\r\n" == await reader.readexactly(5)
        await is_idle(visitor)

    assert [("state", "pending"), ("state", "active"), ("end", "completed")] == [
        (one["event"], one["data"]["state"]) for one in events
    ]
    assert {"n": 1} == events[2]["data"]["result"]
    assert 3 == len({one["id"] for one in events})


@run_async
async def test_a_seen_state_is_not_sent_again(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the id of the last event, through any instance; comments come meanwhile."""
    monkeypatch.setattr("pyasynq.gateway.api.task_events.COMMENT_SECONDS", 0.0)
    async with serving(redis_url) as one, serving(redis_url) as two:
        await one.ask("POST", "/v1/tasks", BODY)
        async with connecting(one) as (reader, writer):
            await begin(reader, writer)
            first = await read_event(reader)
        await is_idle(one)
        async with connecting(two) as (reader, writer):
            await begin(reader, writer, first["id"])
            assert {"": "still here"} == await read_event(reader)
            await visitor_delete(two)
            event = await read_event(reader)
            while "event" not in event:
                event = await read_event(reader)
    assert "end" == event["event"]
    # An instance that has not subscribed by then learns only that the task is gone.
    assert event["data"]["state"] in {"deleted", "gone"}


async def visitor_delete(visitor: Visitor) -> None:
    """Delete the task."""
    assert 204 == (await visitor.ask("DELETE", "/v1/tasks/resize/a")).status_code


@run_async
async def test_the_end_of_an_instance_ends_the_stream(redis_url: str) -> None:
    """The reader comes back to another one."""
    async with serving(redis_url) as visitor, connecting(visitor) as (reader, writer):
        await visitor.ask("POST", "/v1/tasks", BODY)
        await begin(reader, writer)
        await read_event(reader)
        visitor.service.end_waits()
        assert b"0\r\n\r\n" == await reader.readexactly(5)
        assert 0 == visitor.service._parts.streams.open


@run_async
async def test_what_cannot_be_followed_is_told_at_once(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a problem, before the stream begins."""
    async with serving(redis_url) as visitor:
        check_problem(await visitor.ask("GET", PLACE), 404, "queue_not_found")
        await visitor.ask("POST", "/v1/tasks", BODY)
        monkeypatch.setattr("pyasynq.gateway.api.task_events.MOST_FOLLOWED", 0)
        answer = await visitor.ask("GET", PLACE)
        check_problem(answer, 503, "too_many_streams")
        assert "10" == answer.headers["retry-after"]
