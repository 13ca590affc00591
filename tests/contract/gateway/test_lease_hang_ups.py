"""Clients that hang up on a real HTTP server, at every byte."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import uvicorn

from pyasynq.client import Client
from tests.byte_proxy import ByteProxy, Direction
from tests.fix_engine import QUICK
from tests.fix_leases import leasing, until
from tests.ports import HOST, free_port
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from tests.factories import Tasks
    from tests.fix_leases import Instance

RECOVERY = dataclasses.replace(QUICK, lease=1, own_slack=0)
NO_RECOVERY = dataclasses.replace(QUICK, look_interval=1_000)
SETTINGS = "pyasynq.consumer._consumer.DEFAULT_ENGINE_SETTINGS"


@asynccontextmanager
async def listening(service: Instance) -> AsyncIterator[int]:
    """Serve an instance on a port."""
    port = free_port()
    config = uvicorn.Config(service.app, host=HOST, port=port, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        yield port
    finally:
        server.should_exit = True
        await task


async def send(port: int, **options: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a lease request, and return the connection."""
    reader, writer = await asyncio.open_connection(HOST, port)
    body = json.dumps({"queues": ["default"], **options}).encode()
    head = (
        "POST /v1/leases HTTP/1.1\r\nHost: service\r\nAuthorization: Bearer one\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


@run_async
async def test_a_poll_ends_when_its_client_hangs_up(redis_url: str) -> None:
    """Whether it closes the connection or breaks it; the next task is another worker's at once."""
    async with leasing(redis_url) as service, Client(redis_url) as client, listening(service) as port:
        connections = [await send(port, wait=55) for _ in range(20)]
        await until(lambda: service.leases.waiting == 20)
        for number, (_, writer) in enumerate(connections):
            if number % 2:
                writer.close()
            else:
                writer.transport.abort()
        await until(lambda: service.leases.waiting == 0)
        await client.enqueue("t", b"1", task_id="a")
        task = await service.take()
        assert ("a", 1, 0) == (task["id"], task["attempt"], task["crashes"])
        await service.act(task["token"], "complete")


@run_async
async def test_a_client_that_hangs_up_within_its_request_is_not_a_bug(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At any byte of it: nothing is leased, and the log stays quiet."""
    async with leasing(redis_url) as service, listening(service) as port:
        head = b"POST /v1/leases HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer one\r\n"
        content = (
            head + b"Content-Type: application/json\r\nContent-Length: 24\r\n\r\n{" + b'"queues": ["default"]'
        )
        for end in range(0, len(content), 5):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.write(content[:end])
            await writer.drain()
            writer.close()
        assert 204 == (await service.lease(wait=0)).status_code
    assert [] == [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


@run_async
async def test_no_task_is_leased_without_an_owner_for_longer_than_a_lease(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in the answer its client hangs up: what was sent already comes again after it. (T-lease)"""
    monkeypatch.setattr(SETTINGS, NO_RECOVERY)
    async with leasing(redis_url) as service, listening(service) as port:
        tasks.pending("whole")
        reader, writer = await send(port, lease=60)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        [whole] = json.loads(await reader.readexactly(length))["tasks"]
        writer.close()
        assert 204 == (await service.act(whole["token"], "complete")).status_code
        cuts = range(0, len(head) + length, 7)
        tasks.pending(*(f"t{cut}" for cut in cuts))
        for cut in cuts:
            reader, writer = await send(port, lease=1)
            await reader.readexactly(cut)
            writer.transport.abort()
        monkeypatch.setattr(SETTINGS, RECOVERY)
        found: dict[str, tuple[int, bool]] = {}
        async with leasing(redis_url) as another:
            while len(found) < len(cuts):
                for task in (await another.lease(limit=100)).json()["tasks"]:
                    found[task["id"]] = task["attempt"], task["crashes"]
                    assert 204 == (await another.act(task["token"], "complete")).status_code
        assert {(1, 0)} == set(found.values())
    assert [] == [*tasks.ids("active"), *tasks.ids("archived"), *tasks.ids("retry")]


@pytest.mark.long
@run_async
async def test_workers_that_hang_up_never_make_a_task_poison(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 workers in four rounds, cut at every byte of the answer in turn. (T-lease)

    So each task could have reached the crash limit, which is 3.
    """
    monkeypatch.setattr(SETTINGS, NO_RECOVERY)
    names = {f"t{number:03}" for number in range(250)}
    async with leasing(redis_url) as service, listening(service) as port:
        tasks.pending("whole", *sorted(names))
        reader, writer = await send(port, lease=60)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        writer.close()
        [whole] = json.loads(body)["tasks"]
        await service.act(whole["token"], "complete")
        cuts = itertools.cycle(range(len(head) + len(body)))
        with ByteProxy(f"redis://{HOST}:{port}") as proxy:
            for _ in range(4):
                await hang_up(proxy, itertools.islice(cuts, len(names)))
                monkeypatch.setattr(SETTINGS, RECOVERY)
                async with leasing(redis_url) as another:
                    task = await another.take(lease=60)
                    await another.act(task["token"], "release")
                    await until(lambda: len(tasks.ids("pending")) == len(names))
        assert {b"3", b"4"} & {tasks.fields(name).get("x:lapses") for name in names}
        found: dict[str, int] = {}
        while found.keys() != names:
            for task in (await service.lease(limit=100, lease=60)).json()["tasks"]:
                found[task["id"]] = task["crashes"]
                assert 204 == (await service.act(task["token"], "complete")).status_code
    assert {0} == set(found.values())
    assert [] == [*tasks.ids("active"), *tasks.ids("archived"), *tasks.ids("retry")]


async def hang_up(proxy: ByteProxy, cuts: Iterable[int]) -> None:
    """Lease a task for a second through a proxy that cuts the answer after each number of bytes."""
    port = int(proxy.url.rpartition(":")[2].split("/")[0])
    for cut in cuts:
        proxy.cut_after(Direction.REPLIES, cut)
        reader, writer = await send(port, lease=1, wait=55)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
