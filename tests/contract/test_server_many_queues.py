"""How often a server asks its queues for tasks, when it serves many and has little to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.take.intake import Intake
from pyasynq._redis.key_watcher import ServerWatcher
from pyasynq.config import ServerConfig
from pyasynq.events import RoundFinished
from tests.fix_engine import Running, do_nothing, is_watched, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq._engine.take.intake import Ask
    from pyasynq._redis.connection_async import AsyncConnection

QUEUES = 40
TASKS = 30
MOST_ASKS_PER_TASK = 3
NO_POLLS = EngineSettings(look_interval=1_000.0)
"""Settings under which no queue is asked because time has passed."""


def count_asks(monkeypatch: pytest.MonkeyPatch) -> list[Ask]:
    """Return a list that gets each dequeue call from now on."""
    asks: list[Ask] = []
    ask = Intake._ask

    def count(intake: Intake, *arguments: Any, **settings: Any) -> Ask:
        asks.append(ask(intake, *arguments, **settings))
        return asks[-1]

    monkeypatch.setattr(Intake, "_ask", count)
    return asks


async def all_watched(running: Running) -> None:
    """Wait until the server has nothing to ask and nothing to watch."""
    assert running.server._engine is not None
    board = running.server._engine._intake.board
    while board.to_watch() or board.to_ask(running.server._engine._clock.monotonic()):
        await running.recorder.wait(RoundFinished, new=True)


@pytest.mark.parametrize("concurrency", [1, 100])
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "weighted"])
@run_async
async def test_a_task_costs_few_dequeue_calls_however_many_queues_are_empty(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, *, strict: bool, concurrency: int
) -> None:
    """The end of the last running task is not a reason to ask the other queues. (D61)"""
    queues = {f"q{number}": number + 1 for number in range(QUEUES)}
    config = ServerConfig(queues=queues, concurrency=concurrency, strict_priority=strict)
    async with serving(redis_url, do_nothing, config, NO_POLLS) as running:
        await all_watched(running)
        asks = count_asks(monkeypatch)
        for number in range(TASKS):
            await running.client.enqueue("t", task_id=str(number), queue=f"q{number * 7 % QUEUES}")
            await running.finished(str(number))
            await running.settled()
        await all_watched(running)
    assert TASKS <= len(asks) <= MOST_ASKS_PER_TASK * TASKS


@run_async
async def test_empty_queues_are_watched_together(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task does not wait until each of the other queues has had a round trip of its own."""
    exchanges: list[int] = []
    read_tracked = ServerWatcher._read_tracked

    async def count(watcher: ServerWatcher, connection: AsyncConnection, keys: list[str]) -> bool:
        exchanges.append(len(keys))
        return await read_tracked(watcher, connection, keys)

    monkeypatch.setattr(ServerWatcher, "_read_tracked", count)
    config = ServerConfig(queues={f"q{number}": 1 for number in range(QUEUES)}, concurrency=100)
    async with serving(redis_url, do_nothing, config, NO_POLLS) as running:
        await running.client.enqueue("t", task_id="a", queue="q0")
        await running.finished("a")
        await all_watched(running)
        assert all(is_watched(queue) for queue in running.queues)
    assert sum(exchanges) >= 2 * QUEUES
    assert len(exchanges) < QUEUES
