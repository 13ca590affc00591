"""What the workers of `tests.chaos.limits` run: tasks that write down when they begin and end."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Final

import redis.asyncio

from pyasynq import App, context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUEUE: Final = "limited"
JOURNAL: Final = "journal"
NOTE: Final = """
local time = redis.call('TIME')
redis.call('RPUSH', KEYS[1], table.concat({ ARGV[1], ARGV[2], ARGV[3], time[1] * 1000000 + time[2] }, ' '))
"""
"""Writes down what happened to which task in which process, and the microsecond of Redis; Redis does one
thing after the other, so that the journal is in the order of the times."""


@contextlib.asynccontextmanager
async def connected(_app: App) -> AsyncIterator[redis.asyncio.Redis]:
    """One connection that is open before the first task, so that no note waits for one."""
    url = os.environ["PYASYNQ_REDIS_URL"]
    async with redis.asyncio.Redis.from_url(url, single_connection_client=True) as client:
        await client.ping()
        yield client


app = App(lifespan=connected)


async def _note(what: str) -> None:
    await context().state.eval(NOTE, 1, JOURNAL, what, context().task_id, os.getpid())


# A kill is not a fault of the tasks that it meets.
@app.task("limited:work", queue=QUEUE, crash_limit=1_000)
async def work(milliseconds: int) -> None:
    """Take some time between the two notes."""
    await _note("begin")
    await asyncio.sleep(milliseconds / 1000)
    await _note("end")
