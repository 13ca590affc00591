"""The concurrency of a host over two processes of the service, one of which is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from pyasynq import Client
from pyasynq.operations import Operator, User
from pyasynq.task import TaskInfo, TaskState
from tests.contract.gateway.test_hosted_http import hosting
from tests.ports import free_port
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TASKS = 12
AT_ONCE = 3
RATE, BURST = 20, 3
CLOCKS = 0.005
"""Seconds by which the clock of Redis and that of this process may differ on one machine."""


def find_task(request: Any) -> str:
    """Return the id of the task of a request."""
    return str(request.headers["X-Pyasynq-Task-Id"])


async def wait_for_end(operator: Operator, task_id: str) -> TaskInfo:
    """Return a task when it is done."""
    while True:
        task = await operator.task("deliver", task_id)
        if task.state is TaskState.COMPLETED:
            return task
        await asyncio.sleep(0.05)


@asynccontextmanager
async def running(file: Path, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run an instance of the service for the time of a block; its requests say its name."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pyasynq", "service", str(file), "--no-logging"),
        env={**os.environ, "INSTANCE": name},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


@pytest.mark.long
@run_async
async def test_the_limits_of_a_host_hold_when_an_instance_is_killed(redis_url: str, tmp_path: Path) -> None:
    """Its slots lapse, and its tasks run again: all tasks end, never more of them at once than may run."""
    now = most = 0
    ended: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
    arrivals: list[float] = []
    turn = asyncio.Event()

    async def hold(request: web.Request) -> web.Response:
        nonlocal now, most
        now += 1
        most = max(most, now)
        arrivals.append(time.time())
        try:
            await turn.wait()
        finally:
            # The task is cancelled when its caller dies.
            now -= 1
            ended[find_task(request)].set()
        return web.Response()

    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(hosting())
        host.answer = hold
        address = f"127.0.0.1:{host.port}"
        rule = {
            "addresses": ["127.0.0.1"],
            "concurrency": AT_ONCE,
            "rate": f"{RATE}/s+{BURST}",
            "secret_headers": {"X-Instance": "env:INSTANCE"},
        }
        kind = {"kind": "http", "url": f"http://{address}/", "retention": "1h", "timeout": "10m"}
        begin = time.time()
        processes = {}
        for name in "ab":
            settings: dict[str, Any] = {
                "service": {"redis": redis_url, "listen": f"127.0.0.1:{free_port()}", "dashboard": False},
                "hosts": {address: rule},
                "tasks": {"deliver": kind},
            }
            file = tmp_path / f"{name}.json"
            file.write_text(json.dumps(settings), "utf-8")
            processes[name] = await stack.enter_async_context(running(file, name))
        client = await stack.enter_async_context(Client(redis_url))
        operator = await stack.enter_async_context(Operator(redis_url, User.with_role("root", "admin")))
        for number in range(TASKS):
            await client.enqueue("deliver", b"{}", queue="deliver", task_id=str(number), retention=3_600)
        first, *_ = await host.wait_for(AT_ONCE)
        killed = first.headers["X-Instance"]
        processes[killed].kill()
        await processes[killed].wait()
        lost = {find_task(one) for one in host.requests if one.headers["X-Instance"] == killed}
        # The host notices that their connections have ended.
        await asyncio.gather(*(ended[name].wait() for name in lost))
        turn.set()
        tasks = [await wait_for_end(operator, str(number)) for number in range(TASKS)]

    assert {str(number): 1 + (str(number) in lost) for number in range(TASKS)} == Counter(
        find_task(one) for one in host.requests
    )
    assert AT_ONCE == most
    assert {0} == {task.retried for task in tasks if task.id not in lost}
    for place, arrival in enumerate(sorted(arrivals)):
        assert arrival - begin >= (place + 1 - BURST) / RATE - CLOCKS
