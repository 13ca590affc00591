"""What a worker holds after many tasks: no more than after a few."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyasynq import Task, sync
from tests.fix_worker import Worker
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.invariants import RedisClient

FEW, MANY = 2_000, 10_000
CONCURRENCY = 20


def is_empty(redis_client: RedisClient) -> bool:
    """Return whether all tasks have run and been settled."""
    return not redis_client.exists("asynq:{default}:pending", "asynq:{default}:active")


@pytest.mark.long
def test_ten_thousand_tasks_leave_nothing_in_the_process(redis_url: str, redis_client: RedisClient) -> None:
    """Coroutines and threads, successes, failures and tasks of unknown types."""
    kinds = ["nothing", "nothing-in-thread", "nothing", "raise", "nobody", "nothing"]
    with Worker(redis_url, concurrency=CONCURRENCY, log_level="CRITICAL") as worker:
        for number in (FEW, MANY):
            with sync.Client(redis_url) as client:
                made = (
                    Task(kinds[at % len(kinds)], b"SystemExit", max_retry=0, timeout=60)
                    for at in range(number)
                )
                assert all(client.enqueue_many(made))
                # The report runs alone: other coroutines that still run are not a leak.
                wait_until(lambda: is_empty(redis_client))
                client.enqueue("report", task_id=f"report-{number}")
            worker.wait_for("report", times=1 if number == FEW else 2)
        wait_until(lambda: not redis_client.llen("asynq:{default}:active"))
        assert 0 == worker.terminate()
    after_few, after_many = map(json.loads, worker.all("report (.*)"))
    assert 1 == after_many["attempts"]
    assert after_many["tasks"] <= after_few["tasks"] + 2
    assert after_many["threads"] <= CONCURRENCY + 5
    assert after_many["objects"] - after_few["objects"] < 500
