"""What a shutdown does with the tasks that run, on a real Redis."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from pyasynq._wire.messages import decode_task_message
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.events import (
    AttemptAbandoned,
    HeartbeatWritten,
    ServerStateChanged,
    TaskStarted,
)
from pyasynq.inspector import Inspector
from tests.fix_engine import Gate, Recorder, do_nothing, make_server, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import redis

    from pyasynq.task import Task
    from tests.factories import Tasks


@run_async
async def test_tasks_that_do_not_finish_in_time_are_put_back_in_front_in_order(
    redis_url: str, tasks: Tasks
) -> None:
    """W13: with `pending_since`; the exit code says so."""
    cleaned = []

    async def handle(task: Task) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(task.type)

    config = ServerConfig(concurrency=2, shutdown_timeout=0, cancel_timeout=5)
    async with serving(redis_url, handle, config) as running:
        for task_id in "abc":
            await running.client.enqueue("t", task_id=task_id)
        for task_id in "ab":
            await running.recorder.wait(TaskStarted, lambda event, wanted=task_id: event.task_id == wanted)  # type: ignore[misc]
    assert 3 == running.server.exit_code
    assert ["a", "b", "c"] == tasks.ids("pending")
    assert "pending_since" in tasks.fields("a")
    assert 0 == decode_task_message(tasks.fields("a")["msg"]).retried
    assert 2 == len(cleaned)


@run_async
async def test_a_thread_that_does_not_end_is_named_and_not_put_back(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """A server in somebody else's program cannot end the thread, so the task waits for its lease to lapse."""
    end = threading.Event()

    def handle(task: Task) -> None:
        del task
        end.wait()

    config = ServerConfig(shutdown_timeout=0, cancel_timeout=0)
    async with serving(redis_url, handle, config) as running:
        await running.client.enqueue("t", task_id="a")
        await running.recorder.wait(TaskStarted)
    await running.recorder.wait(AttemptAbandoned)
    assert ["a"] == tasks.ids("active")
    end.set()
    engine = running.server._engine
    assert engine is not None
    assert await engine._runner.running.wait_until_idle(5)


@run_async
async def test_a_stopped_server_takes_nothing_more(redis_url: str, tasks: Tasks) -> None:
    """TSTP's part: what runs goes on, what comes stays."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        running.server.stop()
        await running.client.enqueue("t", task_id="b")
        gate.open.set()
        await running.finished("a")
        await running.settled()
        assert "stopped" == running.server.state
    assert ["b"] == tasks.ids("pending")


@run_async
async def test_a_shutdown_when_idle_lets_what_runs_take_its_time(redis_url: str) -> None:
    """Nothing more is taken, and `shutdown_timeout` does not count."""
    gate = Gate()
    server = make_server(redis_url, ServerConfig(concurrency=1, shutdown_timeout=0, cancel_timeout=0))
    stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    server.events.subscribe(
        ServerStateChanged, lambda event: stopped.set_result(None) if event.state == "stopped" else None
    )
    async with Client(redis_url) as client, Inspector(redis_url) as inspector:
        running = asyncio.create_task(server.run(gate, signals=False))
        await client.enqueue("t", task_id="first")
        await gate.begun.wait()
        await client.enqueue("t", task_id="second")
        server.request_shutdown(when_idle=True)
        await stopped
        gate.open.set()
        assert 0 == await running
        assert not gate.cancelled
        info = await inspector.queue_info("default")
    assert (1, 0, 1) == (info.pending, info.active, info.processed)


@run_async
async def test_an_idle_server_that_is_to_shut_down_when_idle_does_so_at_once(redis_url: str) -> None:
    """Also when it is told before it has begun to take tasks."""
    server = make_server(redis_url)
    running = asyncio.create_task(server.run(do_nothing, signals=False))
    await asyncio.sleep(0)
    server.request_shutdown(when_idle=True)
    assert 0 == await running
    server = make_server(redis_url)
    recorder = Recorder(server.events)
    running = asyncio.create_task(server.run(do_nothing, signals=False))
    await recorder.wait(HeartbeatWritten)
    server.request_shutdown(when_idle=True)
    assert 0 == await running
