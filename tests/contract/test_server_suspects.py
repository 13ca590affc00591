"""Tasks that may kill their worker, alongside the others that wait with them, on a real Redis."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.task import Task, TaskState
from tests.fix_engine import QUICK, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.factories import Tasks

SUSPECTS = [f"suspect-{number}" for number in range(12)]
OTHERS = [f"other-{number}" for number in range(300)]
AT_ONCE = dataclasses.replace(QUICK, silence_share=100.0, silence_longest=0.2, silence_least=0.2)
"""Silences of 0.2 s, as many as are wanted."""


class Notes:
    """A handler that notes the token and `x:begun` of the suspect as they are when each task starts."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.started: asyncio.Queue[str] = asyncio.Queue()
        self.tokens: list[tuple[str, bytes, bytes | None]] = []
        self.end = asyncio.Event()

    async def __call__(self, task: Task) -> None:
        del task
        fields = self._tasks.fields("suspect")
        token, begun = fields.get("x:attempt", b""), fields.get("x:begun")
        self.tokens.append((context().task_id, token, begun))
        self.started.put_nowait(context().task_id)
        await self.end.wait()


@run_async
async def test_long_suspects_do_not_starve_the_others(redis_url: str, tasks: Tasks) -> None:
    """Two kills of the worker made suspects of 12 harmless long tasks; the tasks behind them go first.

    Defect D03.
    """
    started: list[str] = []
    end = asyncio.Event()

    async def handle(task: Task) -> None:
        del task
        started.append(context().task_id)
        if context().task_id in SUSPECTS:
            await end.wait()

    for task_id in SUSPECTS:
        tasks.put(TaskState.PENDING, task_id, extra={"x:crashes": 2})
    tasks.pending(*OTHERS)
    async with serving(redis_url, handle, ServerConfig(concurrency=100), QUICK) as running:
        for task_id in OTHERS:
            await running.finished(task_id)
        early = [task_id for task_id in started if task_id in SUSPECTS]
        end.set()
        for task_id in early:
            await running.finished(task_id)
        await running.settled()
    assert [] == early


@run_async
async def test_others_start_along_with_a_suspect_when_its_quiet_period_is_over(
    redis_url: str, tasks: Tasks
) -> None:
    """Its token says that it is alone; Redis knows that it is not before the first of the others starts.

    Defect D03.
    """
    tasks.put(TaskState.PENDING, "suspect", extra={"x:crashes": 2})
    notes = Notes(tasks)
    async with serving(redis_url, notes, settings=AT_ONCE) as running:
        assert "suspect" == await notes.started.get()
        await running.client.enqueue("t", task_id="other")
        assert "other" == await notes.started.get()
        notes.end.set()
        await running.finished("other")
        await running.settled()
    (_, token, begun), seen_by_other = notes.tokens
    assert (True, None) == (token.endswith(b"!"), begun)
    assert ("other", token, token) == seen_by_other


@pytest.mark.parametrize("longest", [0.01, 0.2])
@run_async
async def test_a_suspect_starts_along_with_a_task_that_does_not_end(
    redis_url: str, tasks: Tasks, longest: float
) -> None:
    """After a silence that did not see its end, or without one because it has run for long; without proof.

    Defect D03.
    """
    notes = Notes(tasks)
    settings = dataclasses.replace(AT_ONCE, silence_longest=longest)
    async with serving(redis_url, notes, settings=settings) as running:
        await running.client.enqueue("t", task_id="long")
        assert "long" == await notes.started.get()
        tasks.put(TaskState.PENDING, "suspect", extra={"x:crashes": 2})
        assert "suspect" == await notes.started.get()
        notes.end.set()
        await running.finished("suspect")
        await running.settled()
    assert b"!" not in notes.tokens[1][1]


@run_async
async def test_a_suspect_waits_for_the_end_of_those_that_run(redis_url: str, tasks: Tasks) -> None:
    """Nothing is taken meanwhile, also from another queue. (D03)"""
    notes = Notes(tasks)
    settings = dataclasses.replace(AT_ONCE, silence_longest=1_000.0, silence_least=1.0)
    config = ServerConfig(queues={"default": 1, "second": 9}, concurrency=10, shutdown_timeout=5)
    async with serving(redis_url, notes, config, settings) as running:
        await running.client.enqueue("t", task_id="first")
        assert "first" == await notes.started.get()
        tasks.put(TaskState.PENDING, "suspect", extra={"x:crashes": 2})
        engine = running.server._engine
        assert engine is not None
        while not engine._intake._suspects.is_silent:
            await running.next_round("processor")
        await running.client.enqueue("t", task_id="behind", queue="second")
        await running.next_round("forwarder")
        assert notes.started.empty()
        notes.end.set()
        await running.finished("behind")
        await running.settled()
    assert ["first", "suspect", "behind"] == [task_id for task_id, _, _ in notes.tokens]
    assert notes.tokens[1][1].endswith(b"!")
