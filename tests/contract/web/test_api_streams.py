"""Streams of `/api/v1`: events as lines, until their time is over or the client has gone."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.task_events import encode_event
from pyasynq.task import TaskState
from pyasynq.web import Everyone, dashboard
from pyasynq.web.api import events
from tests.factories import NOW, Tasks
from tests.run_async import run_async
from tests.visiting import StreamClient, stream_scope, visiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyasynq.web import Dashboard
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")


class Listener(StreamClient):
    """A client's connection, as an ASGI server would hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body" and message["body"]:
            await self.lines.put(message["body"])


@asynccontextmanager
async def listening(site: Dashboard, query: str) -> AsyncIterator[Listener]:
    """Hold a stream of events open; at its end the client is gone, and the stream with it."""
    listener = Listener()
    scope = stream_scope("/api/v1/events", query)
    serving = asyncio.create_task(site(scope, listener.receive, listener.send))
    try:
        yield listener
    finally:
        listener.gone.set()
        await serving
        await site.aclose()


async def first_line(client: RedisClient, listener: Listener, **facts: Any) -> dict[str, Any]:
    """Publish an event again and again until a listener, who begins with the newest, has got one."""
    event = encode_event("retried", "emails", NOW, task_id="a", type="t", **facts)
    while listener.lines.empty():
        client.xadd("asynq:{emails}:x:events", {"event": event})
        client.expire("asynq:{emails}:x:events", 60)
        await asyncio.sleep(0)
    line: dict[str, Any] = json.loads(await listener.lines.get())
    return line


@run_async
async def test_events_come_as_lines(redis_url: str, redis_client: RedisClient) -> None:
    """With what the command line shows of them. A client that goes away leaves nothing behind."""
    Tasks(redis_client, "emails").put(TaskState.RETRY, "a")
    async with listening(dashboard(redis_url), "queue=emails&seconds=3600") as listener:
        line = await first_line(redis_client, listener, error="no user 42")
    assert ("retried", "emails", "a", "no user 42") == (
        line["kind"],
        line["queue"],
        line["task_id"],
        line["error"],
    )


@run_async
async def test_a_viewer_sees_no_error_in_full(redis_url: str, redis_client: RedisClient) -> None:
    """Numbers and names in it are left out, as everywhere."""
    Tasks(redis_client, "emails").put(TaskState.RETRY, "a")
    site = dashboard(redis_url, auth=Everyone("viewer"))
    async with listening(site, "queue=emails") as listener:
        line = await first_line(redis_client, listener, error="no user 42")
    assert "42" not in line["error"]


@run_async
async def test_a_silent_stream_sends_empty_lines(
    redis_url: str, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty line reveals a dead connection."""
    monkeypatch.setattr(events, "_REST_SECONDS", 0.01)
    Tasks(redis_client, "emails").pending("a")
    async with listening(dashboard(redis_url), "queue=emails&seconds=3600") as listener:
        assert b"\n" == await listener.lines.get()


@run_async
async def test_streams_are_bounded(
    redis_url: str, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further ones are told when to ask again."""
    monkeypatch.setattr(events, "MOST_EVENT_STREAMS", 0)
    Tasks(redis_client, "emails").pending("a")
    async with visiting(redis_url) as visitor:
        answer = await visitor.get("api/v1/events?queue=emails")
    assert (503, "too_many_streams") == (answer.status_code, answer.json()["code"])
    assert answer.headers["retry-after"]
