"""Compare the task service with a minimal application: `python -m bench.service [SECONDS]`.

One instance of the service and one bare Starlette application that echoes JSON, each in a process of its own,
under the same client with 64 connections, in turns. Printed are requests a second, the 99th percentile of
their time, and the ratio to the echo:

- `enqueue`: `POST /v1/tasks`;
- `batch`: tasks a second by `POST /v1/tasks:batch`, 1,000 each;
- `lease`: pairs of `POST /v1/leases` and `:complete`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from pyasynq.embedded import EmbeddedServer
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request

CONNECTIONS: Final = 64
BATCH: Final = 1_000
SECONDS: Final = 5.0
ROUNDS: Final = 3
_FILE: Final = '[service]\nredis = "{url}"\nlisten = "127.0.0.1:{port}"\ndashboard = false\n[tasks.t]\n'
_TASK: Final = b'{"type": "t", "params": {"id": 7, "path": "/tmp/7"}}'


class Figures(NamedTuple):
    """Result of one load."""

    rate: float
    """Requests a second."""
    late: float
    """99th percentile of the response time, in milliseconds."""


async def _echo(request: Request) -> Response:
    return Response(json.dumps(json.loads(await request.body())), media_type="application/json")


bare = Starlette(routes=[Route("/echo", _echo, methods=["POST"])])
"""Minimal application: the cost of a request without the service."""


class Connection:
    """A keep-alive connection to one server, with a minimal HTTP parser."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to a port of this machine."""
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
        """Send a request, and return the body of the answer, which must be a success."""
        self.send(path, body)
        status, content = await self.receive()
        if status >= 300:
            raise SystemExit(f"{path} answered {status}: {content[:200]!r}")
        return content

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def measure(port: int, seconds: float, once: Callable[[Connection], Awaitable[Any]]) -> Figures:
    """Repeat a request on all connections, and return the figures."""
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
async def started(*command: str, port: int) -> AsyncIterator[None]:
    """Run a program that listens at a port, during a block."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *command)
    try:
        while True:
            try:
                (await Connection.open(port)).close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        yield
    finally:
        process.kill()
        await process.wait()


async def lease_one(connection: Connection) -> None:
    """Lease a task and complete it."""
    leased = json.loads(await connection.ask("/v1/leases", b'{"queues": ["t"], "wait": 20}'))
    await connection.ask(f"/v1/attempts/{leased['tasks'][0]['token']}:complete", b"{}")


async def run(seconds: float, url: str, folder: Path) -> None:
    """Run all measurements, and print each line as soon as it is known."""
    ours, floor = free_port(), free_port()
    file = folder / "service.toml"
    file.write_text(_FILE.format(url=url, port=ours), "utf-8")
    service = ("pyasynq", "service", str(file), "--no-logging", "--no-access-log")
    echo = ("uvicorn", "bench.service:bare", "--port", str(floor), "--log-level", "error")
    batch = json.dumps({"tasks": [json.loads(_TASK)] * BATCH}).encode()
    async with started(*service, port=ours), started(*echo, port=floor):
        for number in range(ROUNDS):
            base = await measure(floor, seconds, lambda one: one.ask("/echo", _TASK))
            print(f"round {number + 1}: echo {base.rate:,.0f}/s, p99 {base.late:.1f} ms")
            enqueued = await measure(ours, seconds, lambda one: one.ask("/v1/tasks", _TASK))
            _tell("enqueue", enqueued, base)
            leased = await measure(ours, seconds, lease_one)
            _tell("lease", leased, base)
            many = await measure(ours, seconds, lambda one: one.ask("/v1/tasks:batch", batch))
            print(f"  batch    {many.rate * BATCH:,.0f} tasks/s")


def _tell(name: str, figures: Figures, base: Figures) -> None:
    ratio, late = figures.rate / base.rate, figures.late / base.late
    print(f"  {name:8} {figures.rate:,.0f}/s ({ratio:.2f}), p99 {figures.late:.1f} ms ({late:.1f})")


def main() -> None:
    """Run the measurements on a separate Redis server."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with EmbeddedServer() as server, tempfile.TemporaryDirectory(prefix="pyasynq-bench-") as name:
        asyncio.run(run(seconds, server.url, Path(name)))


if __name__ == "__main__":
    main()
