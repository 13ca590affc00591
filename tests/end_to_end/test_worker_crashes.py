"""Workers that are killed: their tasks come back, and nothing else changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._wire.messages import decode_task_message
from tests.fix_worker import QUICK, Worker, active, enqueue, pending, task_field
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.invariants import RedisClient

PROMISE = 10
"""Seconds after the end of its lease within which the task of a killed worker is pending again."""


def redis_seconds(client: RedisClient) -> float:
    """Return what time it is on Redis."""
    seconds, microseconds = client.time()
    return int(seconds) + int(microseconds) / 1e6


@pytest.mark.long
def test_h06_h08_tasks_of_a_killed_worker_are_pending_within_ten_seconds_after_their_lease(
    redis_url: str, redis_client: RedisClient
) -> None:
    """At the front, unchanged except the counted crash; of all settings only the lease is shorter here.

    A crash is not a failure: they have no retries left, and another worker runs them to their end.
    """
    with Worker(redis_url, engine={"lease": 2}) as finder:
        # It goes on to recover what others leave.
        finder.stop_taking(redis_client)
        ids = enqueue(redis_url, "wait", "wait-in-thread", "wait", "mark", max_retry=0)
        before = [task_field(redis_client, task_id, "msg") for task_id in ids]
        with Worker(redis_url, engine={"lease": 2, "heartbeat_interval": 0.5}, concurrency=3) as victim:
            victim.wait_for("started", times=3)
            victim.kill()
            killed_at = redis_seconds(redis_client)
        assert set(ids[:3]) == active(redis_client)
        finder.wait_for("pending again", times=3)
        assert redis_seconds(redis_client) - killed_at < 2 + PROMISE
    waiting = pending(redis_client)
    assert (set(ids[:3]), ids[3:]) == (set(waiting[:3]), waiting[3:])
    assert before == [task_field(redis_client, task_id, "msg") for task_id in ids]
    assert [b"1"] * 3 == [task_field(redis_client, task_id, "x:crashes") for task_id in ids[:3]]
    with Worker(redis_url, max_tasks=4) as last:
        last.wait_for("started", times=1)
        last.say("release")
        assert 0 == last.end()
    assert set(ids[:3]) == set(last.all("ended (.*)"))
    assert not redis_client.keys("asynq:{default}:t:*")


def test_h06_a_task_that_kills_every_worker_is_archived_as_poison(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Named so in its error; its neighbour is done."""
    quicker = QUICK | {"lease": 1, "own_slack": 0, "silence_share": 100.0}
    [poison, good] = enqueue(redis_url, "die", "mark")
    for _ in range(2):
        with Worker(redis_url, engine=quicker, concurrency=1, crash_limit=2) as victim:
            victim.wait_for(f"dies {poison}")
            assert -9 == victim.end()
    with Worker(redis_url, engine=quicker, crash_limit=2) as last:
        last.wait_for(f"task {poison} of queue default was archived as poison: its worker crashed 2 times")
        wait_until(lambda: not redis_client.exists(f"asynq:{{default}}:t:{good}"))
        assert 0 == last.terminate()
    assert [] == last.all("dies (.*)")
    assert b"archived" == task_field(redis_client, poison, "state")
    message = decode_task_message(task_field(redis_client, poison, "msg") or b"")
    assert message.error_msg.startswith(
        "poison: its worker crashed 2 times while running it, last on server "
    )
    assert 0 == message.retried
