"""A Redis that dies, breaks connections, is full or forgets scripts, under a worker that goes on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import redis

from pyasynq import sync
from pyasynq.errors import RedisOutOfMemoryError
from tests.fix_worker import RedisProcess, Worker, enqueue, pending
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.invariants import RedisClient

CAREFUL = {"heartbeat_interval": 0.5, "syncer_interval": 0.5, "look_interval": 1.0}
"""Engine settings of tests in which Redis is away; leases are as long as ever."""


def ran_once(worker: Worker, ids: list[str]) -> None:
    """Fail unless every task ran exactly once."""
    runs = Counter(worker.all("(?:ran|ended) (.*)"))
    assert set(ids) == set(runs)
    assert [] == [task_id for task_id, times in runs.items() if times > 1]


def test_h01_outcomes_of_tasks_that_end_while_redis_is_dead_are_written_when_it_is_back(
    own_redis: RedisProcess,
) -> None:
    """Redis is killed and started on its append-only file; nothing runs twice."""
    with Worker(own_redis.url, engine=CAREFUL) as worker:
        ids = enqueue(own_redis.url, *["wait"] * 5, *["wait-in-thread"] * 5)
        worker.wait_for("started", times=10)
        own_redis.kill()
        worker.say("release")
        worker.wait_for("ended", times=10)
        worker.wait_for("Redis at .* is away")
        own_redis.start()
        with redis.Redis.from_url(own_redis.url) as client:
            wait_until(lambda: not client.keys("asynq:{default}:t:*"))
            assert [b"10"] == client.mget("asynq:{default}:processed")
        ids += enqueue(own_redis.url, "mark")
        worker.wait_for("ran ")
        assert 0 == worker.terminate()
    ran_once(worker, ids)


def test_h20_connections_that_are_killed_again_and_again_lose_no_task_and_run_none_twice(
    redis_url: str, redis_client: RedisClient
) -> None:
    """2,000 tasks; every connection but ours is killed after each 100 of them."""
    ids = enqueue(redis_url, *["mark"] * 2_000)
    with Worker(redis_url, engine=CAREFUL, concurrency=20) as worker:
        for done in range(100, 2_000, 100):
            worker.wait_for("ran ", times=done)
            redis_client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            redis_client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        worker.wait_for("ran ", times=2_000)
        wait_until(lambda: not redis_client.keys("asynq:{default}:t:*"))
        assert 0 == worker.terminate()
    ran_once(worker, ids)
    assert b"2000" == redis_client.get("asynq:{default}:processed")


def test_h25_a_full_redis_is_drained_and_takes_nothing_new(own_redis: RedisProcess) -> None:
    """Enqueueing raises its own error meanwhile; failures are written, and nothing runs twice."""
    ids = enqueue(own_redis.url, *["mark"] * 200)
    failing = enqueue(own_redis.url, *["raise"] * 20, payload=b"huge")
    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set("maxmemory", 1)
        with sync.Client(own_redis.url) as sender, pytest.raises(RedisOutOfMemoryError):
            sender.enqueue("mark")
        with Worker(own_redis.url, engine=CAREFUL) as worker:
            worker.wait_for("ran ", times=200)
            wait_until(lambda: client.zcard("asynq:{default}:retry") == 20)
            wait_until(lambda: len(client.keys("asynq:{default}:t:*")) == 20)
            wait_until(lambda: client.keys("asynq:servers:*"))
            with sync.Client(own_redis.url) as sender, pytest.raises(RedisOutOfMemoryError):
                sender.enqueue("mark")
            client.config_set("maxmemory", 0)
            [last] = enqueue(own_redis.url, "mark")
            worker.wait_for(f"ran {last}")
            assert 0 == worker.terminate()
        assert "could not be written" not in worker.text
        assert set(failing) == {name.decode() for name in client.zrange("asynq:{default}:retry", 0, -1)}
    ran_once(worker, [*ids, last])


def test_scripts_that_redis_forgets_are_sent_again(redis_url: str, redis_client: RedisClient) -> None:
    """SCRIPT FLUSH in the middle of the work."""
    ids = enqueue(redis_url, *["mark"] * 500)
    with Worker(redis_url, concurrency=10) as worker:
        for done in (50, 150, 250, 350):
            worker.wait_for("ran ", times=done)
            redis_client.script_flush()
        worker.wait_for("ran ", times=500)
        wait_until(lambda: not redis_client.keys("asynq:{default}:t:*"))
        assert 0 == worker.terminate()
    ran_once(worker, ids)
    assert "WARNING" not in worker.text


def test_a_paused_queue_rests_and_goes_on_when_it_is_resumed(
    redis_url: str, redis_client: RedisClient
) -> None:
    """Another queue is served meanwhile, and the end of the pause is noticed without a poll."""
    with Worker(redis_url, engine={"look_interval": 600.0}, queues={"default": 1, "other": 1}) as worker:
        [first] = enqueue(redis_url, "mark")
        worker.wait_for(f"ran {first}")
        redis_client.set("asynq:{default}:paused", 1)
        ids = enqueue(redis_url, "mark", "mark")
        [other] = enqueue(redis_url, "mark", queue="other")
        worker.wait_for(f"ran {other}")
        assert ids == pending(redis_client)
        redis_client.delete("asynq:{default}:paused")
        worker.wait_for("ran ", times=4)
        assert 0 == worker.terminate()
    ran_once(worker, [first, *ids, other])
