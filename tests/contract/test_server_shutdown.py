"""What a shutdown does with the tasks that run, on a real Redis."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from pyasynq._engine.engine import Engine
from pyasynq._wire.messages import decode_task_message
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.events import (
    AttemptAbandoned,
    HeartbeatWritten,
    ServerStateChanged,
    ShutdownHung,
    TaskStarted,
)
from pyasynq.inspector import Inspector
from pyasynq.server import Server, ServerState
from tests.fix_engine import QUICK, Gate, Recorder, do_nothing, make_server, serving
from tests.run_async import run_async
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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


@run_async
async def test_a_start_that_is_cancelled_at_its_very_end_leaves_nothing_running(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All services have started by then, and the server has not heard of it."""
    server = make_server(redis_url)
    start = Engine.start

    async def start_and_cancel(engine: Engine) -> None:
        await start(engine)
        asyncio.get_running_loop().call_soon(starting.cancel)

    monkeypatch.setattr(Engine, "start", start_and_cancel)
    starting = asyncio.create_task(server.start(do_nothing))
    with pytest.raises(asyncio.CancelledError):
        await starting
    # That no task is left, `run_async` sees.
    assert ServerState.CLOSED is server.state


@run_async
async def test_leases_are_renewed_while_the_lifespan_is_left(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """So the task of a thread that runs on is not run by another server meanwhile. (D08)"""
    begun, end = threading.Event(), threading.Event()
    leaving, may_leave = asyncio.Event(), asyncio.Event()

    def handle(task: Task) -> None:
        del task
        begun.set()
        end.wait()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        leaving.set()
        await may_leave.wait()

    config = ServerConfig(concurrency=1, shutdown_timeout=0, cancel_timeout=0)
    settings = dataclasses.replace(QUICK, shutdown_margin=30)
    server = Server(redis_url, config, lifespan=lifespan)
    server._settings = settings
    await server.start(handle)
    async with Client(redis_url) as client:
        await client.enqueue("t", task_id="a")
    await asyncio.to_thread(begun.wait)
    closing = asyncio.create_task(server.shutdown())
    await leaving.wait()
    before = redis_client.zscore(tasks.keys.lease, "a")
    assert before is not None
    await asyncio.to_thread(
        wait_until, lambda: (redis_client.zscore(tasks.keys.lease, "a") or 0) >= before + 2, seconds=10
    )
    may_leave.set()
    await closing
    end.set()
    engine = server._engine
    assert engine is not None
    assert await engine._runner.running.wait_until_idle(5)


@run_async
async def test_a_lifespan_that_does_not_end_is_given_up_in_a_program_of_somebody_else(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """It is cancelled, then left behind; an event says where it waits. (D14)"""
    may_end = asyncio.Event()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()

    server = Server(redis_url, ServerConfig(shutdown_timeout=0, cancel_timeout=0), lifespan=lifespan)
    recorder = Recorder(server.events)
    await server.start(do_nothing)
    await server.shutdown()
    hung = await recorder.wait(ShutdownHung)
    assert "the end of the lifespan" == hung.what
    assert "lifespan" in hung.where
    assert 3 == server.exit_code
    may_end.set()
    await asyncio.sleep(0)
