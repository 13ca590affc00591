"""Handler of `GET /v1/tasks/{queue}/{id}/events`: the states of one task as server-sent events."""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from pyasynq._face_records.tasks import describe_task
from pyasynq.errors import TaskNotFoundError
from pyasynq.gateway.leases.hang_up import ClientGoneError, HangUpWatch
from pyasynq.gateway.waits import WaitEndedError
from pyasynq.web.api.problem import ProblemError
from pyasynq.web.api.records import COMPONENTS, encode_record

from .problems import to_service_problem
from .results import describe_end

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Receive, Scope, Send

    from pyasynq.task import FinishedTask

    from .call import ServiceCall

MOST_FOLLOWED: Final = 500
"""Maximum number of streams of one instance, because each checks its task once a second."""
_LOOK_SECONDS: Final = 1.0
COMMENT_SECONDS: Final = 15.0
"""Seconds without an event after which a comment is sent, for proxies and to notice closed connections."""
_FIELDS: Final = ("state", "since", "due", "retried", "last_error")


async def serve_events(call: ServiceCall) -> Response:
    """Stream the states of a task until it ends, the client disconnects, or the instance shuts down."""
    queue, task_id = call.check_queue()
    await call.operator.task(queue, task_id)
    if call.parts.streams.open >= MOST_FOLLOWED:
        remedy = "Ask for the result with wait, or again after Retry-After."
        headers = {"Retry-After": "10"}
        raise ProblemError(503, "too_many_streams", "No more streams are open.", remedy, headers=headers)
    return _EventResponse(call, _follow(call, queue, task_id))


class StreamCount:
    """Number of open streams of one instance. Belongs to one event loop."""

    def __init__(self) -> None:
        self.open = 0


class _EventResponse(Response):
    """Streaming response that ends when the client disconnects or the instance shuts down.

    Args:
        call: the request.
        events: yields the encoded events and comments; ends after the last event.
    """

    def __init__(self, call: ServiceCall, events: AsyncGenerator[str]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(media_type="text/event-stream", headers=headers)
        del self.headers["content-length"]
        self._call = call
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        del scope, receive
        streams, waits = self._call.parts.streams, self._call.parts.waits
        watch = HangUpWatch(self._call.request)
        watch.start()
        streams.open += 1
        head = {"status": self.status_code, "headers": self.raw_headers}
        try:
            await send({"type": "http.response.start", **head})
            async with aclosing(self._events) as events:
                while text := await watch.run(waits.run(_next(events)), lambda _: None):
                    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        except (ClientGoneError, WaitEndedError):
            pass
        finally:
            streams.open -= 1
            await watch.stop()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _next(events: AsyncGenerator[str]) -> str | None:
    return await anext(events, None)


async def _follow(call: ServiceCall, queue: str, task_id: str) -> AsyncGenerator[str]:
    """Yield the encoded events of a task: `state` for each observed state, then `end` or `problem`."""
    seen = call.request.headers.get("last-event-id", "")
    sent_at = time.monotonic()
    ending = asyncio.create_task(call.parts.client.wait(queue, task_id))
    try:
        yield "retry: 3000\n\n"
        while True:
            name, fact = await _describe_state(call, queue, task_id, ending)
            if fact is not None and (event_id := _make_id(name, fact)) != seen:
                seen, sent_at = event_id, time.monotonic()
                yield f"event: {name}\nid: {event_id}\ndata: {msgspec.json.encode(fact).decode()}\n\n"
            elif time.monotonic() - sent_at >= COMMENT_SECONDS:
                sent_at = time.monotonic()
                yield ": still here\n\n"
            if name != "state":
                return
            await asyncio.wait({ending}, timeout=_LOOK_SECONDS)
    finally:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)


async def _describe_state(
    call: ServiceCall, queue: str, task_id: str, ending: asyncio.Task[FinishedTask]
) -> tuple[str, dict[str, Any] | None]:
    """Return name and content of the event for the task's present state."""
    try:
        if ending.done():
            return "end", describe_end(ending.result(), is_known=True)
        record = encode_record(COMPONENTS["Task"], describe_task(await call.operator.task(queue, task_id)))
    except TaskNotFoundError:
        return "state", None  # it has just ended
    except Exception as error:  # noqa: BLE001 - the status was sent already
        return "problem", to_service_problem(error).content()
    return "state", {"queue": queue, "id": task_id} | {name: record[name] for name in _FIELDS}


def _make_id(name: str, fact: dict[str, Any]) -> str:
    """Return the id of an event: equal for equal states, whichever instance sends it."""
    return hashlib.sha256(name.encode() + msgspec.json.encode(fact)).hexdigest()[:16]
