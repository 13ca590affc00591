"""What a shutdown does with the tasks that run, on a real Redis."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from pyasynq._wire.messages import decode_task_message
from pyasynq.config import ServerConfig
from pyasynq.events import (
    AttemptAbandoned,
    TaskStarted,
)
from tests.fix_engine import Gate, serving
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
    assert await engine._runner.wait_until_idle(5)


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
