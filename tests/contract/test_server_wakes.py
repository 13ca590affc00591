"""Servers that Redis tells of tasks: what if it does not, and what if it tells many."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pyasynq._broker.wakeup import ServerWatcher
from pyasynq._server.settings import EngineSettings
from pyasynq.events import RoundFinished, TaskStarted
from tests.fix_engine import QUICK, Running, do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import pytest
    import redis

    from pyasynq._server.board import QueueView
    from tests.factories import Tasks


async def idle(running: Running) -> QueueView:
    """Wait until the server watches its empty queue; return the view of it."""
    assert running.server._engine is not None
    [view] = running.server._engine._intake.board.views
    while not (view.empty and view.armed):
        await running.recorder.wait(RoundFinished, new=True)
    return view


@run_async
async def test_h14_a_task_that_nobody_was_told_of_starts_within_six_seconds(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a slot moves while its list is empty: Redis says nothing then. With production's settings."""
    swallowed = asyncio.Event()

    def swallow(watcher: ServerWatcher, keys: list[bytes] | None) -> None:
        del watcher, keys
        swallowed.set()

    async with serving(redis_url, do_nothing, settings=EngineSettings()) as running:
        await idle(running)
        monkeypatch.setattr(ServerWatcher, "_invalidate", swallow)
        await running.client.enqueue("t", task_id="a")
        enqueued = time.monotonic()
        await swallowed.wait()
        await running.recorder.wait(TaskStarted)
        assert time.monotonic() - enqueued < 6
        await running.settled()


@run_async
async def test_a_server_that_is_told_in_vain_again_and_again_listens_less_often(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """As one of many idle ones; and it still takes what nobody else takes, long before its safety poll."""
    async with serving(redis_url, do_nothing, settings=QUICK) as running:
        view = await idle(running)
        while not view.damped:
            changes = view.changes
            with redis_client.pipeline() as pipeline:
                pipeline.lpush(tasks.keys.pending, "somebody else's")
                pipeline.rpop(tasks.keys.pending)
                pipeline.execute()
            while view.changes == changes or not (view.armed or view.damped):
                await running.recorder.wait(RoundFinished, new=True)
        enqueued = time.monotonic()
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
        assert time.monotonic() - enqueued < QUICK.safety_poll / 2
        await running.settled()
