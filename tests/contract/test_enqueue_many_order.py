"""Tasks of one `enqueue_many` join their queue in their order, also through middleware."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pyasynq.client import Client
from pyasynq.task import Task
from tests.factories import Tasks
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq.client import CallNext, ClientMiddleware
    from pyasynq.task import TaskInfo
    from tests.invariants import RedisClient


async def pass_on(task: Task, call_next: CallNext) -> TaskInfo:
    """Enqueue the task at once."""
    return await call_next(task)


async def pass_on_later(task: Task, call_next: CallNext) -> TaskInfo:
    """Enqueue the task in a later iteration of the loop."""
    await asyncio.sleep(0)
    return await call_next(task)


@pytest.mark.parametrize("middleware", [None, pass_on, pass_on_later])
@run_async
async def test_tasks_keep_their_order(
    redis_url: str, redis_client: RedisClient, middleware: ClientMiddleware | None
) -> None:
    """The first call makes the connections, which was when batches overtook one another."""
    for turn in range(3):
        async with Client(redis_url, middleware=[middleware] if middleware else []) as client:
            made = await client.enqueue_many(
                [Task("t", task_id=f"{turn}-{number}") for number in range(1_200)]
            )
        assert all(made)
    expected = [f"{turn}-{number}" for turn in range(3) for number in range(1_200)]
    assert expected == Tasks(redis_client, "default").ids("pending")


@run_async
async def test_an_error_of_one_task_affects_no_other(redis_url: str, redis_client: RedisClient) -> None:
    """Tasks that leave together have results of their own."""
    tasks = [Task("t", task_id="a"), Task("t", task_id="a"), Task("t", timeout=-1), Task("t", task_id="b")]
    async with Client(redis_url, middleware=[pass_on]) as client:
        made = await client.enqueue_many(tasks, on_error="return")
    assert [True, False, False, True] == [bool(one) for one in made]
    assert ["a", "b"] == Tasks(redis_client, "default").ids("pending")


@run_async
async def test_a_closed_client_fails_each_task(redis_url: str) -> None:
    """None waits for ever."""
    client = Client(redis_url, middleware=[pass_on_later])
    tasks = [Task("t") for _ in range(10)]
    made, _ = await asyncio.gather(client.enqueue_many(tasks, on_error="return"), client.close())
    assert 10 == len(made)
