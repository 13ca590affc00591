from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.dequeue import Dequeued, DequeuedTask, dequeue, find_dequeued
from pyasynq._clock import Instant
from pyasynq._redis.plan import Replay
from tests.factories import LEASE_SCORE, NOW, PENDING_SINCE, TOKEN, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient


def take(perform: Perform, limit: int = 10, **arguments: Any) -> Dequeued:
    """Dequeue at NOW, up to ten tasks unless said otherwise."""
    arguments = {"token": TOKEN, "now": NOW, **arguments}
    return perform(dequeue("default", limit=limit, **arguments))


def taken_ids(result: Dequeued) -> list[str]:
    """Return the ids in the order in which they came."""
    return [task.id for task in result.tasks]


def test_tasks_are_taken_from_the_front_up_to_the_limit(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls RPOP or LPUSH onto active, or uses wrong ends."""
    tasks.active("older")
    tasks.pending("a", "b", "c")
    result = take(perform, 2)
    assert ["a", "b"] == taken_ids(result)
    assert ["c"] == tasks.ids("pending")
    assert ["older", "a", "b"] == tasks.ids("active")
    assert not result.empty


def test_a_dequeue_brings_messages_crashes_and_the_lease(perform: Perform, tasks: Tasks) -> None:
    """What Redis did and when comes back with the tasks."""
    tasks.pending("a")
    task = DequeuedTask("a", message_bytes("a"), 0, LEASE_SCORE, PENDING_SINCE)
    expected = Dequeued([task], 0, empty=True, suspect_waiting=False, lease_score=LEASE_SCORE, redis_now=NOW)
    assert expected == take(perform)


def test_a_taken_task_is_active_with_lease_and_token(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET, HDEL or ZADD; the end of a lease is rounded up."""
    tasks.pending("a")
    take(perform, token="server/7")
    assert {"msg": message_bytes("a"), "state": b"active", "x:attempt": b"server/7"} == tasks.fields("a")
    assert {"a": NOW.seconds + 31} == tasks.scores("lease")


def test_a_lease_from_a_whole_second_ends_on_one(perform: Perform, tasks: Tasks) -> None:
    """Nothing is added to a time without a fraction."""
    tasks.pending("a")
    assert NOW.seconds + 10 == take(perform, now=Instant(NOW.seconds), lease_seconds=10).lease_score
    assert {"a": NOW.seconds + 10} == tasks.scores("lease")


def test_h15_w23_without_a_time_redis_tells_it(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME.

    Leases follow the clock of Redis, not of this host's program.
    """
    tasks.pending("a")
    before = time.time_ns() // 1000
    result = take(perform, now=None)
    told = result.redis_now.seconds * 1_000_000 + result.redis_now.microseconds
    assert before <= told <= time.time_ns() // 1000
    assert result.redis_now.ceiling + 30 == result.lease_score == tasks.scores("lease")["a"]


def test_an_empty_queue_says_so(perform: Perform, tasks: Tasks) -> None:
    """A limit that was just reached says nothing about what is left."""
    assert take(perform).empty
    tasks.pending("a", "b")
    assert not take(perform, 2).empty
    assert take(perform, 2).empty


def test_a_paused_queue_gives_nothing(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls EXISTS: the queue counts as empty until it goes on."""
    tasks.pending("a")
    redis_client.set(tasks.keys.paused, 1)
    result = take(perform)
    assert ([], True, NOW) == (result.tasks, result.empty, result.redis_now)
    assert ["a"] == tasks.ids("pending")
    redis_client.delete(tasks.keys.paused)
    assert ["a"] == taken_ids(take(perform))


def test_h03_w07_a_ghost_is_dropped_and_the_next_task_taken(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Fails if the script no longer loops or calls DEL.

    Asynq leaves the id in active for ever and says "empty".
    """
    tasks.pending("a", "ghost", "b", "remains")
    redis_client.delete(tasks.keys.task("ghost"))
    redis_client.hdel(tasks.keys.task("remains"), "msg")
    result = take(perform, 2)
    assert ["a", "b"] == taken_ids(result)
    assert 1 == result.ghosts
    result = take(perform, 2)
    assert ([], 1, True) == (result.tasks, result.ghosts, result.empty)
    assert ["a", "b"] == tasks.ids("active") == sorted(tasks.scores("lease"))
    assert {} == tasks.fields("remains"), "what is left of a task would block its id"


def test_a_batch_ends_at_four_megabytes_of_messages(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls RPUSH.

    What does not fit goes back to the front, in the same order.
    """
    for task_id, size in (("a", 3_000_000), ("b", 900_000), ("c", 200_000), ("d", 1), ("e", 1)):
        tasks.pending(task_id, payload=b"x" * size)
    result = take(perform)
    assert (["a", "b"], False, False) == (taken_ids(result), result.empty, result.suspect_waiting)
    assert ["c", "d", "e"] == tasks.ids("pending")


@pytest.mark.parametrize(("spare", "expected"), [(0, ["a", "b"]), (-1, ["a"])])
def test_four_megabytes_fit_exactly(perform: Perform, tasks: Tasks, spare: int, expected: list[str]) -> None:
    """4,000,000 bytes are one batch, one more is not."""
    overhead = len(message_bytes("a", payload=b"x" * 2_000_000)) - 2_000_000
    tasks.pending("a", payload=b"x" * (2_000_000 - overhead))
    tasks.pending("b", payload=b"x" * (2_000_000 - overhead - spare))
    assert expected == taken_ids(take(perform))


def test_one_message_larger_than_a_batch_is_taken(perform: Perform, tasks: Tasks) -> None:
    """Or it would never be."""
    tasks.pending("a", payload=b"x" * 4_100_000)
    tasks.pending("b")
    assert ["a"] == taken_ids(take(perform))
    assert ["b"] == taken_ids(take(perform))


def test_a_thousand_tasks_are_the_most_of_one_call(redis_client: RedisClient, tasks: Tasks) -> None:
    """The limit of one call stays within Lua's limits, ghosts included."""
    redis_client.lpush(tasks.keys.pending, *(f"ghost{number}" for number in range(1000)))
    tasks.pending(*(f"{number}" for number in range(1001)))
    result = take(BlockingPerformer(redis_client), 5000)
    assert [f"{number}" for number in range(1000)] == taken_ids(result)
    assert 1000 == result.ghosts
    assert ["1000"] == tasks.ids("pending")


def test_h05_a_dequeue_is_never_sent_again() -> None:
    """After a lost reply its tasks are looked for by the token."""
    assert Replay.NEVER is next(dequeue("default", limit=1, token=TOKEN)).replay


def test_h05_tasks_of_a_lost_reply_are_found_by_their_token(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Fails if the script no longer calls LRANGE.

    HMGET or ZSCORE; other attempts' tasks are not taken for ours.
    """
    tasks.active("go", token="")
    tasks.active("other", token="server/2")
    tasks.active("a", crashes=2)
    tasks.active("b")
    tasks.active("newest", token="server/3")
    redis_client.zrem(tasks.keys.lease, "b")
    found = [
        DequeuedTask("a", message_bytes("a"), 2, LEASE_SCORE),
        DequeuedTask("b", message_bytes("b"), 0, 0),
    ]
    assert found == perform(find_dequeued("default", token=TOKEN))
    redis_client.zadd(tasks.keys.lease, {"b": LEASE_SCORE})


@pytest.mark.usefixtures("damage_allowed")
def test_h05_a_ghost_is_not_found(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """An id without a message is not a task that can run."""
    tasks.active("a")
    redis_client.hdel(tasks.keys.task("a"), "msg")
    assert [] == perform(find_dequeued("default", token=TOKEN))


def test_h05_only_the_newest_thousand_are_looked_at(perform: Perform, tasks: Tasks) -> None:
    """A call takes no more, and nothing newer comes before it than other calls of the same moment."""
    tasks.active("old")
    tasks.active(*(f"{number}" for number in range(1000)))
    found = perform(find_dequeued("default", token=TOKEN))
    assert [f"{number}" for number in range(1000)] == [task.id for task in found]
