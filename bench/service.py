"""Measure the task service next to a bare application: `python -m bench.service [SECONDS]`.

One instance of the service and one bare Starlette application that echoes JSON, each in a process of its
own, under the same client with 64 connections, in turns. Printed are requests a second, the 99th percentile
of their time, and the ratio to the echo:

- `enqueue`: `POST /v1/tasks`;
- `batch`: tasks a second by `POST /v1/tasks:batch`, 1,000 each;
- `lease`: pairs of `POST /v1/leases` and `:complete`;
- `polls`: memory of a waiting poll, next to a request that a bare application parks; and the time from an
  enqueue to the answer of a poll while thousands wait.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import psutil
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from pyasynq.embedded import EmbeddedServer
from pyasynq.operations import Operator, User
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request

CONNECTIONS: Final = 64
BATCH: Final = 1_000
SECONDS: Final = 5.0
ROUNDS: Final = 3
MOST_POLLS: Final = 10_000
DELIVERIES: Final = 500
_FILE: Final = '[service]\nredis = "{url}"\nlisten = "127.0.0.1:{port}"\ndashboard = false\n[tasks.t]\n'
_TASK: Final = b'{"type": "t", "params": {"id": 7, "path": "/tmp/7"}}'


class Figures(NamedTuple):
    """What a load came to."""

    rate: float
    """Requests a second."""
    late: float
    """99th percentile of their time, in milliseconds."""


async def _echo(request: Request) -> Response:
    return Response(json.dumps(json.loads(await request.body())), media_type="application/json")


async def _park(_: Request) -> Response:
    await asyncio.Event().wait()
    return Response()


bare = Starlette(routes=[Route("/echo", _echo, methods=["POST"]), Route("/park", _park, methods=["POST"])])
"""The floor: what a request costs without the service."""


class Connection:
    """A connection to one server that is kept open; it parses no more than it must."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, path: str, body: bytes) -> None:
        """Send a request."""
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def receive(self) -> tuple[int, bytes]:
        """Return status and body of the next answer."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        _, _, rest = head.lower().partition(b"content-length:")
        size = int(rest.partition(b"\r\n")[0] or 0)
        return int(head[9:12]), await self._reader.readexactly(size)

    async def ask(self, path: str, body: bytes) -> bytes:
        """Return the body of an answer, which must be one of success."""
        self.send(path, body)
        status, content = await self.receive()
        if status >= 300:
            raise SystemExit(f"{path} answered {status}: {content[:200]!r}")
        return content

    def close(self) -> None:
        """Close it."""
        self._writer.close()


async def measure(port: int, seconds: float, once: Callable[[Connection], Awaitable[Any]]) -> Figures:
    """Do something again and again on all connections."""
    connections = [await Connection.open(port) for _ in range(CONNECTIONS)]
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def work(connection: Connection) -> None:
        while (begun := time.perf_counter()) < end:
            await once(connection)
            times.append(time.perf_counter() - begun)

    await asyncio.gather(*map(work, connections))
    for connection in connections:
        connection.close()
    times.sort()
    return Figures(len(times) / seconds, times[int(len(times) * 0.99)] * 1_000)


@asynccontextmanager
async def started(*command: str, port: int) -> AsyncIterator[psutil.Process]:
    """Run a program that listens at a port, for the time of a block."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *command)
    try:
        while True:
            try:
                (await Connection.open(port)).close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def lease_one(connection: Connection) -> None:
    """Lease a task and complete it."""
    leased = json.loads(await connection.ask("/v1/leases", b'{"queues": ["t"], "wait": 20}'))
    await connection.ask(f"/v1/attempts/{leased['tasks'][0]['token']}:complete", b"{}")


async def park(
    port: int, process: psutil.Process, path: str, body: bytes, number: int
) -> tuple[list[Connection], float]:
    """Park requests; return their connections, and the bytes of memory that each costs the server."""
    before = process.memory_info().rss
    connections = []
    for _ in range(number):
        connection = await Connection.open(port)
        connection.send(path, body)
        connections.append(connection)
    await asyncio.sleep(3.0)
    return connections, (process.memory_info().rss - before) / number


async def deliver(port: int, connections: list[Connection], process: psutil.Process) -> tuple[float, float]:
    """Enqueue tasks while requests are parked.

    Returns:
        the 99th percentile of the time to an answer, in milliseconds, and the server's CPU time of a
        delivery, in microseconds.
    """
    sent_at = 0.0
    times: list[float] = []
    producer = await Connection.open(port)
    waiting = {asyncio.create_task(one.receive()): one for one in connections}
    cpu = sum(process.cpu_times()[:2])
    for _ in range(min(DELIVERIES, len(connections) // 2)):
        sent_at = time.perf_counter()
        await producer.ask("/v1/tasks", _TASK)
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        times.append(time.perf_counter() - sent_at)
        for one in done:
            del waiting[one]
    cpu = sum(process.cpu_times()[:2]) - cpu
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    producer.close()
    times.sort()
    return times[int(len(times) * 0.99)] * 1_000, cpu / len(times) * 1e6


async def run(seconds: float, url: str, folder: Path) -> None:
    """Measure all, and print each line when it is known."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    polls = min(MOST_POLLS, (hard - 200) // 2)
    ours, floor = free_port(), free_port()
    file = folder / "service.toml"
    file.write_text(_FILE.format(url=url, port=ours), "utf-8")
    service = ("pyasynq", "service", str(file), "--no-logging", "--no-access-log")
    echo = ("uvicorn", "bench.service:bare", "--port", str(floor), "--log-level", "error")
    batch = json.dumps({"tasks": [json.loads(_TASK)] * BATCH}).encode()
    async with started(*service, port=ours) as our_process, started(*echo, port=floor) as bare_process:
        for number in range(ROUNDS):
            base = await measure(floor, seconds, lambda one: one.ask("/echo", _TASK))
            print(f"round {number + 1}: echo {base.rate:,.0f}/s, p99 {base.late:.1f} ms")
            enqueued = await measure(ours, seconds, lambda one: one.ask("/v1/tasks", _TASK))
            _tell("enqueue", enqueued, base)
            leased = await measure(ours, seconds, lease_one)
            _tell("lease", leased, base)
            many = await measure(ours, seconds, lambda one: one.ask("/v1/tasks:batch", batch))
            print(f"  batch    {many.rate * BATCH:,.0f} tasks/s")
        parked, bare_bytes = await park(floor, bare_process, "/park", b"{}", polls)
        for one in parked:
            one.close()
        await _drain(url)
        body = b'{"queues": ["t"], "wait": 55, "lease": 30}'
        few, _ = await park(ours, our_process, "/v1/leases", body, 100)
        late, cpu = await deliver(ours, few, our_process)
        print(f"100 polls: delivery p99 {late:.1f} ms, {cpu:.0f} us of CPU each")
        for one in few:
            one.close()
        await asyncio.sleep(1.0)
        many_parked, our_bytes = await park(ours, our_process, "/v1/leases", body, polls)
        print(
            f"{polls:,} polls: {our_bytes / 1024:.1f} KiB each, bare {bare_bytes / 1024:.1f} KiB: "
            f"{our_bytes / bare_bytes:.2f}"
        )
        late_many, cpu_many = await deliver(ours, many_parked, our_process)
        print(
            f"{polls:,} polls: delivery p99 {late_many:.1f} ms, {cpu_many:.0f} us of CPU each: "
            f"{cpu_many / cpu:.2f} of 100 polls"
        )
        for one in many_parked:
            one.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _tell(name: str, figures: Figures, base: Figures) -> None:
    ratio, late = figures.rate / base.rate, figures.late / base.late
    print(f"  {name:8} {figures.rate:,.0f}/s ({ratio:.2f}), p99 {figures.late:.1f} ms ({late:.1f})")


async def _drain(url: str) -> None:
    """Delete the tasks that the loads have left."""
    async with Operator(url, User.with_role("bench", "admin")) as operator:
        await operator.delete_all_tasks("t", "pending")


def main() -> None:
    """Measure, on a Redis of its own."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with EmbeddedServer() as server, tempfile.TemporaryDirectory(prefix="pyasynq-bench-") as name:
        asyncio.run(run(seconds, server.url, Path(name)))


if __name__ == "__main__":
    main()
