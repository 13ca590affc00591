"""Consumers that are killed: what they held comes back, and nothing else changes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.fix_worker import QUICK, Program, Worker, active, enqueue, pending, task_field
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.invariants import RedisClient

PROGRAM = """
import asyncio, dataclasses, sys
from pyasynq import Consumer
from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS

async def main():
    consumer = Consumer(sys.argv[1])
    consumer._settings = dataclasses.replace(DEFAULT_ENGINE_SETTINGS, lease=2, heartbeat_interval=0.5)
    async with consumer:
        async with consumer.take(limit=2) as attempts:
            leased = await consumer.lease(duration=2)
            for attempt in (*attempts, *leased):
                print("holds", attempt.id, flush=True)
            if sys.argv[2] == "hold":
                await asyncio.Event().wait()
            await attempts[0].done()
            print("receipt", leased[0].receipt, flush=True)

asyncio.run(main())
"""


@pytest.mark.long
def test_h06_h08_what_a_killed_consumer_held_is_pending_again(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Taken and leased alike: at the front, unchanged except a counter, within the promise.

    The lease was never extended, so that its end counts as a lapse; the other two are crashes.
    """
    ids = enqueue(redis_url, "mark", "mark", "mark", max_retry=0)
    before = [task_field(redis_client, task_id, "msg") for task_id in ids]
    with Program(sys.executable, "-c", PROGRAM, redis_url, "hold") as victim:
        victim.wait_for("holds", times=3)
        victim.kill()
    assert set(ids) == active(redis_client)
    # It only recovers: the queue is paused.
    redis_client.set("asynq:{default}:paused", 1)
    with Worker(redis_url, engine=QUICK) as finder:
        finder.wait_for("pending again after crash 1", times=2)
        finder.wait_for("its lease ended without a sign of its worker, 1 time in a row")
        assert 0 == finder.terminate()
    assert set(ids) == set(pending(redis_client))
    assert before == [task_field(redis_client, task_id, "msg") for task_id in ids]
    assert [b"1", b"1", None] == [task_field(redis_client, task_id, "x:crashes") for task_id in ids]
    assert [None, None, b"1"] == [task_field(redis_client, task_id, "x:lapses") for task_id in ids]


def test_a_consumer_that_ends_in_good_order_leaves_no_trace_but_its_leases(
    redis_url: str, redis_client: RedisClient
) -> None:
    """One is done, one back in front, and one still leased out."""
    ids = enqueue(redis_url, "mark", "mark", "mark")
    with Program(sys.executable, "-c", PROGRAM, redis_url, "end") as consumer:
        consumer.wait_for("receipt")
        assert 0 == consumer.end()
    assert {ids[2]} == active(redis_client)
    assert [ids[1]] == pending(redis_client)
    assert not redis_client.exists(f"asynq:{{default}}:t:{ids[0]}")
    assert not list(redis_client.scan_iter("asynq:servers:{*"))
    with Worker(redis_url, engine=QUICK, max_tasks=2) as finder:
        finder.wait_for("ran ", times=2)
        assert 0 == finder.end()
    wait_until(lambda: not redis_client.keys("asynq:{default}:t:*"))
