"""Handler that streams task events as JSON lines (NDJSON) while they are published."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, cast

from pyasynq._face_records.reports import EVENTS, describe_event

from .call import Lines
from .problem import ProblemError
from .records import encode_record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from pyasynq.info import TaskEvent

    from .call import ApiCall

MOST_EVENT_STREAMS: Final = 100
"""Number of open streams, including those of live pages, at which a new event stream is refused.

Streams are counted for each Redis and event loop.
"""
_REST_SECONDS: Final = 15.0
"""Seconds without an event after which an empty line is sent, to detect closed connections."""


async def handle_follow(call: ApiCall) -> Lines:
    """Stream the events of some queues as they are published."""
    for queue in call["queue"]:
        call.ask.require("follow", queue)
    channels = call.ask.target.channels()
    if "wsgi_environ" in call.ask.request.scope or channels.viewers >= MOST_EVENT_STREAMS:
        remedy = "Close other streams, or ask again for a shorter time."
        raise ProblemError(
            503, "too_many_streams", "No more streams are open here.", remedy, headers={"Retry-After": "10"}
        )
    return Lines(_stream_events(call))


async def _stream_events(call: ApiCall) -> AsyncGenerator[str]:
    channels = call.ask.target.channels()
    channels.viewers += 1
    found = call.operator.follow(
        call["queue"], kinds=call["kind"], types=call["type"], seconds=call["seconds"]
    )
    following = cast("AsyncGenerator[TaskEvent]", found)
    try:
        async with aclosing(following), aclosing(_with_keep_alives(following)) as events:
            async for event in events:
                if await call.ask.is_session_over():
                    return
                yield "" if event is None else json.dumps(encode_record(EVENTS, describe_event(event)))
    finally:
        channels.viewers -= 1


async def _with_keep_alives(events: AsyncIterator[TaskEvent]) -> AsyncGenerator[TaskEvent | None]:
    """Yield events, and None as a keep-alive after each interval without an event."""
    following = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            ended, _ = await asyncio.wait([following], timeout=_REST_SECONDS)
            if not ended:
                yield None
                continue
            event = following.result()
            if event is None:
                return
            following = asyncio.ensure_future(anext(events, None))
            yield event
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
