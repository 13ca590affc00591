"""Which queue a worker serves when, burst and max_tasks, waking up, and being idle."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from pyasynq import ServerConfig, Task, sync
from tests.factories import message_bytes
from tests.fix_worker import Monitor, Worker, enqueue, pending

if TYPE_CHECKING:
    from tests.invariants import RedisClient

WEIGHTS = {"critical": 6, "default": 3, "low": 1}
IN_ALL = 20_000
NEVER = 600.0
"""For intervals that no test lasts."""


def fill(url: str, **numbers: int) -> None:
    """Put this many tasks into each queue."""
    with sync.Client(url) as client:
        for queue, number in numbers.items():
            results = client.enqueue_many(Task("count", queue=queue) for _ in range(number))
            assert number == sum(1 for result in results if result)


def order_of(worker: Worker) -> list[str]:
    """Return the queues of the tasks that a worker has run, in the order of their starts."""
    assert 0 == worker.end(within=60)
    [starts] = worker.all("starts (.*)")
    return starts.split(",")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("concurrency", "prefetch", "number"),
    [(1, 0, 2_000), (50, ServerConfig().prefetch, IN_ALL)],
    ids=["one slot", "prefetch"],
)
def test_weights_share_out_the_work_within_five_percent_while_all_queues_are_full(
    redis_url: str, redis_client: RedisClient, concurrency: int, prefetch: int, number: int
) -> None:
    """Until the first queue runs dry; none waits longer than ten times its share and one buffer."""
    fill(redis_url, critical=number // 2, default=number * 3 // 10, low=number // 5)
    with Worker(redis_url, queues=WEIGHTS, concurrency=concurrency, prefetch=prefetch, burst=True) as worker:
        order = order_of(worker)
    assert number == len(order)
    left = Counter(critical=number // 2, default=number * 3 // 10, low=number // 5)
    dry = 0
    while all(left.values()):
        left[order[dry]] -= 1
        dry += 1
    shares = Counter(order[:dry])
    for queue, weight in WEIGHTS.items():
        share = weight / sum(WEIGHTS.values())
        assert abs(shares[queue] / dry - share) <= 0.05 * share
        # What one call brings starts at once, in any order. Tasks taken ahead are put back when they wait
        # for too long, as on a machine that stands still: then their queue waits for another buffer.
        longest = max(concurrency, 10 / share) + prefetch
        places = [-1, *(place for place, name in enumerate(order[:dry]) if name == queue), dry]
        assert max(after - before for before, after in pairwise(places)) <= longest
    assert not redis_client.keys("asynq:*:t:*")


def test_strict_order_serves_a_queue_only_while_the_heavier_ones_are_empty(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Not a single task runs out of this order."""
    fill(redis_url, low=300, critical=300, default=300)
    with Worker(redis_url, queues=WEIGHTS, strict_priority=True, concurrency=7, burst=True) as worker:
        assert ["critical"] * 300 + ["default"] * 300 + ["low"] * 300 == order_of(worker)


def test_a_queue_that_cannot_fill_its_share_leaves_it_to_the_others(
    redis_url: str, redis_client: RedisClient
) -> None:
    """All slots work although the heaviest queue is empty."""
    ids = enqueue(redis_url, *["wait"] * 10, queue="low")
    with Worker(redis_url, queues=WEIGHTS, concurrency=10) as worker:
        worker.wait_for("started", times=10)
        worker.say("release")
        worker.wait_for("ended", times=10)
        assert 0 == worker.terminate()
    assert set(ids) == set(worker.all("ended (.*)"))


def test_burst_also_runs_what_its_tasks_enqueue_and_leaves_what_is_not_due(
    redis_url: str, redis_client: RedisClient
) -> None:
    """It exits with 0 when all its queues are empty and nothing runs."""
    enqueue(redis_url, Task("chain", b"3"))
    [later] = enqueue(redis_url, "mark", process_in=3600)
    [elsewhere] = enqueue(redis_url, "mark", queue="other")
    with Worker(redis_url, burst=True) as worker:
        assert 0 == worker.end()
    assert 3 == len(worker.all("chained (.*)"))
    assert [later.encode()] == redis_client.zrange("asynq:{default}:scheduled", 0, -1)
    assert [elsewhere] == pending(redis_client, "other")
    assert not redis_client.keys("asynq:servers*")


def test_max_tasks_takes_exactly_this_many(redis_url: str, redis_client: RedisClient) -> None:
    """The worker exits with 0 when these tasks are done."""
    ids = enqueue(redis_url, *["mark"] * 20)
    with Worker(redis_url, max_tasks=7, concurrency=5) as worker:
        assert 0 == worker.end()
    assert set(ids[:7]) == set(worker.all("ran (.*)"))
    assert ids[7:] == pending(redis_client)


@pytest.mark.sample(1)
@pytest.mark.parametrize("state", ["pending", "scheduled"])
def test_h14_an_idle_worker_is_woken_for_what_a_go_client_enqueues(
    redis_url: str, redis_client: RedisClient, state: str
) -> None:
    """Raw commands as Go sends them, and no poll that could have found the task."""
    quiet = {"look_interval": NEVER}
    with Worker(redis_url, engine=quiet, delayed_task_check_interval=NEVER) as worker:
        [first] = enqueue(redis_url, "mark")
        worker.wait_for(f"ran {first}")
        for number in range(2):
            task_id = f"go-{number}"
            _enqueue_as_go(redis_client, task_id, state)
            worker.wait_for(f"ran {task_id}")
        assert 0 == worker.terminate()


def _enqueue_as_go(client: RedisClient, task_id: str, state: str) -> None:
    client.sadd("asynq:queues", "default")
    key = f"asynq:{{default}}:t:{task_id}"
    client.hset(key, mapping={"msg": message_bytes(task_id, type="mark"), "state": state})
    if state == "pending":
        client.hset(key, "pending_since", time.time_ns())
        client.lpush("asynq:{default}:pending", task_id)
    else:
        client.zadd("asynq:{default}:scheduled", {task_id: int(time.time()) + 1})


@pytest.mark.long
def test_an_idle_worker_sends_at_most_three_commands_a_second(
    redis_url: str, redis_client: RedisClient
) -> None:
    """From one writing of its record to the next but one, all services together.

    A script that is run for the first time costs two more: it is refused, loaded, and run again.
    """
    record = "SET asynq:servers:"
    with Monitor(redis_client) as monitor, Worker(redis_url) as worker:
        # The start writes two: before and after it is active. Connections are still made until the third.
        monitor.wait_for_scripts_with(record, 5)
        assert 0 == worker.terminate()
    first, second = monitor.scripts_with(record)[2:5:2]
    seconds = monitor.calls[second][0] - monitor.calls[first][0]
    commands = [command for _, command, _ in monitor.calls[first:second]]
    loads = sum(command.startswith("SCRIPT LOAD") for command in commands)
    assert (len(commands) - 2 * loads) / seconds <= 3
