"""Servers that Redis tells of tasks: what if it does not, and what if it tells many."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.take.intake import Intake
from pyasynq._redis.key_watcher import ServerWatcher
from pyasynq.events import HeartbeatWritten, RoundFinished, TaskStarted
from tests.fix_engine import Running, do_nothing, is_watched, serving, swallow_reports
from tests.run_async import run_async

if TYPE_CHECKING:
    import pytest
    import redis

    from pyasynq._engine.take.intake import Ask
    from pyasynq._engine.take.queue_board import ServedQueue
    from pyasynq.task import Task
    from tests.factories import Tasks


LAST_LOOK = 0.25
"""Seconds after the report of a task, for the last of many servers."""
NEVER = 1_000.0
"""Seconds between safety polls: far more than a test may take, so that only Redis can have told."""


async def idle(running: Running) -> ServedQueue:
    """Wait until the server watches its empty queue; return it."""
    [queue] = running.queues
    while not is_watched(queue):
        await running.recorder.wait(RoundFinished, new=True)
    return queue


def wake_in_vain(redis_client: redis.Redis, tasks: Tasks) -> None:
    """Have Redis tell of a task that is gone by then."""
    with redis_client.pipeline() as pipeline:
        pipeline.lpush(tasks.keys.pending, "somebody else's")
        pipeline.rpop(tasks.keys.pending)
        pipeline.execute()


def draw_the_last_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the server look for each task later than all others do."""
    monkeypatch.setattr(random, "uniform", lambda low, high: high)


def note_asks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that gets the monotonic time of each question for tasks from now on."""
    asked_at: list[float] = []
    ask = Intake._ask

    def noting(intake: Intake, *arguments: Any, **settings: Any) -> Ask:
        asked_at.append(time.monotonic())
        return ask(intake, *arguments, **settings)

    monkeypatch.setattr(Intake, "_ask", noting)
    return asked_at


@run_async
async def test_h14_a_task_without_a_wake_up_starts_within_six_seconds(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a slot moves while its list is empty: Redis says nothing then. The look finds it."""
    assert EngineSettings().look_interval < 6
    async with serving(redis_url, do_nothing, settings=EngineSettings()) as running:
        await idle(running)
        swallowed = swallow_reports(monkeypatch)
        await running.client.enqueue("t", task_id="a")
        await swallowed.wait()
        await running.recorder.wait(TaskStarted)
        await running.settled()


@run_async
async def test_one_of_many_servers_leaves_a_task_to_others_and_then_takes_it(
    redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for the task without asking for it, and asks when it is still there."""
    draw_the_last_place(monkeypatch)
    # The number of servers is known long before the queue is looked at anyway.
    settings = EngineSettings(heartbeat_interval=0.1, look_interval=NEVER)
    async with serving(redis_url, do_nothing, settings=settings) as running:
        await idle(running)
        redis_client.zadd("asynq:servers", {f"server {number}": 2**40 for number in range(500)})
        assert running.server._engine is not None
        board = running.server._engine._intake.board
        while board._servers <= 500:
            await running.recorder.wait(HeartbeatWritten, new=True)
        # A report from before, as after a new connection, would be followed by a look of its own.
        await idle(running)
        asked_at = note_asks(monkeypatch)
        enqueued = time.monotonic()
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
        assert min(asked_at) - enqueued >= LAST_LOOK
        await idle(running)
        await running.settled()


@run_async
async def test_a_task_begins_before_its_queue_is_watched_again(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No caller waits for the watch, but one may wait for the task."""
    began = False
    before_watches = []
    read_tracked = ServerWatcher._read_tracked

    async def begin(task: Task) -> None:
        nonlocal began
        began = True

    async def watch(watcher: ServerWatcher, *arguments: Any) -> bool:
        before_watches.append(began)
        return await read_tracked(watcher, *arguments)

    async with serving(redis_url, begin, settings=EngineSettings()) as running:
        await idle(running)
        monkeypatch.setattr(ServerWatcher, "_read_tracked", watch)
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
        await idle(running)
    assert before_watches
    assert all(before_watches)


@run_async
async def test_a_server_that_is_told_in_vain_asks_once(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch that it renews shows that nothing has come meanwhile."""
    async with serving(redis_url, do_nothing, settings=EngineSettings()) as running:
        queue = await idle(running)
        asked_at = note_asks(monkeypatch)
        changes = queue.state.changes
        wake_in_vain(redis_client, tasks)
        while queue.state.changes == changes:
            await running.recorder.wait(RoundFinished, new=True)
        await idle(running)
    assert 1 == len(asked_at)


@run_async
async def test_h14_a_task_that_comes_before_the_watch_is_taken_at_once(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the queue was found empty, and before Redis was asked to report the next one."""
    read_tracked = ServerWatcher._read_tracked
    late = asyncio.Event()

    async with serving(redis_url, do_nothing, settings=EngineSettings(look_interval=NEVER)) as running:
        await idle(running)

        async def enqueue_first(watcher: ServerWatcher, *arguments: Any) -> bool:
            if not late.is_set():
                late.set()
                await running.client.enqueue("t", task_id="late")
            return await read_tracked(watcher, *arguments)

        monkeypatch.setattr(ServerWatcher, "_read_tracked", enqueue_first)
        await running.client.enqueue("t", task_id="early")
        await running.finished("late")
        await running.settled()
