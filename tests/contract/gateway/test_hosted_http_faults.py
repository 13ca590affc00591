"""A host that misbehaves in every way of a table: each task ends as the table says."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.task import TaskInfo, TaskState
from tests.fix_service import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from pyasynq.operations import Operator

    Misbehave = Callable[[asyncio.StreamWriter], Awaitable[None]]

pytestmark = pytest.mark.usefixtures("redis_client")

EMPTY = b"Content-Length: 0\r\n\r\n"
WAIT = 600
DONE, RETRY, ARCHIVED = TaskState.COMPLETED, TaskState.RETRY, TaskState.ARCHIVED


def answer(data: bytes) -> Misbehave:
    """Answer with these bytes."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return send


def pour(head: bytes, more: bytes, pause: float = 0) -> Misbehave:
    """Begin an answer, and send more of it for as long as it is read."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(more)
            await writer.drain()
            await asyncio.sleep(pause)

    return send


def reset(data: bytes = b"") -> Misbehave:
    """Break the connection by RST, behind the beginning of an answer."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        one = writer.get_extra_info("socket")
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    return send


async def throttle_until_a_date(writer: asyncio.StreamWriter) -> None:
    """Answer 429, and name the moment from which the host may be called again."""
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=WAIT), usegmt=True)
    writer.write(f"HTTP/1.1 429 \r\nRetry-After: {at}\r\n".encode() + EMPTY)


@dataclass(frozen=True)
class Fault:
    """Misbehaviour of a host, and the end of the task.

    Attributes:
        misbehave: answers a request.
        state: of the task in the end.
        retried: retries that are spent.
        error: within its error.
        waits: whether it is to be tried again when the host has asked for it.
        timeout: of the task, in seconds.
    """

    misbehave: Misbehave
    state: TaskState
    retried: int
    error: str = ""
    waits: bool = False
    timeout: int = 30


BOMB = gzip.compress(b"\0" * 30_000_000)
FAULTS = {
    "error": Fault(answer(b"HTTP/1.1 500 \r\n" + EMPTY), RETRY, 1, "500"),
    "too-early": Fault(answer(b"HTTP/1.1 425 \r\n" + EMPTY), RETRY, 1, "425"),
    "wrong": Fault(answer(b"HTTP/1.1 422 \r\n" + EMPTY), ARCHIVED, 0, "422"),
    "gone": Fault(answer(b"HTTP/1.1 410 \r\n" + EMPTY), ARCHIVED, 0, "410"),
    "throttled-seconds": Fault(
        answer(b"HTTP/1.1 429 \r\nRetry-After: %d\r\n" % WAIT + EMPTY), RETRY, 0, "429", waits=True
    ),
    "throttled-date": Fault(throttle_until_a_date, RETRY, 0, "429", waits=True),
    "unavailable": Fault(
        answer(b"HTTP/1.1 503 \r\nRetry-After: %d\r\n" % WAIT + EMPTY), RETRY, 0, "503", waits=True
    ),
    "closed": Fault(answer(b""), RETRY, 1, "broke"),
    "reset": Fault(reset(), RETRY, 1, "broke"),
    "reset-in-head": Fault(reset(b"HTTP/1.1 200 OK\r\nContent-"), RETRY, 1, "broke"),
    "reset-in-body": Fault(reset(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), RETRY, 1, "broke"),
    "cut-body": Fault(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), RETRY, 1, "broke"),
    "silent": Fault(pour(b"", b"", 0.05), RETRY, 1, "time", timeout=2),
    "dripping-head": Fault(pour(b"HTTP/1.1 200 OK\r\nX-Drip: ", b"x", 0.05), RETRY, 1, "time", timeout=2),
    "dripping-body": Fault(
        pour(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x", 0.05), RETRY, 1, "time", timeout=2
    ),
    "endless-line": Fault(pour(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 65_536), RETRY, 1, "broke"),
    "endless-head": Fault(pour(b"HTTP/1.1 200 OK\r\n", b"X-More: x\r\n" * 4_096), RETRY, 1, "broke"),
    "endless-trailer": Fault(
        pour(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-More: x\r\n" * 4_096),
        RETRY,
        1,
        "broke",
    ),
    "endless-body": Fault(
        pour(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"400\r\n%b\r\n" % (b"x" * 1_024)),
        DONE,
        0,
    ),
    "bomb": Fault(
        answer(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(BOMB), BOMB)
        ),
        DONE,
        0,
    ),
    "no-http": Fault(answer(b"SSH-2.0-OpenSSH_9.2\r\n"), RETRY, 1, "broke"),
    "chain": Fault(answer(b"HTTP/1.1 302 \r\nLocation: /again\r\n" + EMPTY), RETRY, 1, "redirects"),
    "trap": Fault(answer(b""), RETRY, 1, "redirects"),
}


SLOW = {name for name, fault in FAULTS.items() if fault.timeout < 30}


@asynccontextmanager
async def listening(misbehave: Misbehave, requests: list[bytes]) -> AsyncIterator[int]:
    """Listen for the time of a block, note the first line of each request, and misbehave; return the port."""
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            requests.append(head.splitlines()[0])
            await reader.readexactly(len(b'{"id":1}'))
            await misbehave(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def wait_for_end(operator: Operator, queue: str) -> TaskInfo:
    """Return the task of a queue when its attempt has ended."""
    while True:
        task = await operator.task(queue, "a")
        if task.state in {DONE, RETRY, ARCHIVED}:
            return task
        await asyncio.sleep(0.05)


@pytest.mark.long
@run_async
async def test_each_fault_of_a_host_ends_as_the_table_says(redis_url: str) -> None:
    """One request each; a redirect is not followed, and nothing that was sent back is in an error."""
    requests: dict[str, list[bytes]] = {name: [] for name in FAULTS}
    trapped: list[bytes] = []
    async with AsyncExitStack() as stack:
        trap = await stack.enter_async_context(listening(answer(b""), trapped))
        hosts, types = {}, {}
        for name, fault in FAULTS.items():
            misbehave = fault.misbehave
            if name == "trap":
                location = f"HTTP/1.1 307 \r\nLocation: http://127.0.0.1:{trap}/\r\n"
                misbehave = answer(location.encode() + EMPTY)
            port = await stack.enter_async_context(listening(misbehave, requests[name]))
            hosts[f"127.0.0.1:{port}"] = {"addresses": ["127.0.0.1"]}
            types[name] = {
                "kind": "http",
                "url": f"http://127.0.0.1:{port}/{name}",
                "retention": "1h",
                "max_retry": 5,
                "retry": ["1h"],
                "timeout": fault.timeout,
            }
        visitor = await stack.enter_async_context(serving(redis_url, types, hosts=hosts))
        await visitor.service.start()
        ends: dict[str, TaskInfo] = {}
        # Slow faults come last: the first requests wait for the TLS settings.
        for names in (FAULTS.keys() - SLOW, SLOW):
            for name in names:
                body = {"type": name, "params": {"id": 1}, "options": {"task_id": "a"}}
                made = await visitor.ask("POST", "/v1/tasks", body)
                assert 201 == made.status_code, made.text
            ends |= {name: await wait_for_end(visitor.operator, name) for name in names}
        paused = [name for name in FAULTS if (await visitor.operator.queue(name)).paused]

    expected = {name: (fault.state, fault.retried, 1) for name, fault in FAULTS.items()}
    assert expected == {name: (end.state, end.retried, len(requests[name])) for name, end in ends.items()}
    assert {name: fault.error for name, fault in FAULTS.items()} == {
        name: fault.error if fault.error in ends[name].last_error else ends[name].last_error
        for name, fault in FAULTS.items()
    }
    due = {name: end.next_process_at for name, end in ends.items() if FAULTS[name].waits}
    now = datetime.now(UTC)
    assert all(at is not None and at - now < timedelta(seconds=WAIT * 1.1 + 2) for at in due.values()), due
    assert ["gone"] == paused
    assert [] == trapped
    results = {name: len(ends[name].result or b"") for name in ("bomb", "endless-body")}
    assert {"bomb": 20_000, "endless-body": 20_000} == results
    assert b"\x1f\x8b" == (ends["bomb"].result or b"")[:2]
