from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.leases import Recovered, RecoverTask, list_server_tasks, recover
from tests.factories import LEASE_SCORE, NOW, PENDING_SINCE, TOKEN, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient

EXPIRED = NOW.seconds - 60


def seen(task_id: str, token: str = TOKEN, lease_score: int | None = EXPIRED) -> RecoverTask:
    """Return a task as the recoverer saw it."""
    return RecoverTask(task_id, token, lease_score)


def recovered(perform: Perform, *tasks: RecoverTask, **arguments: Any) -> dict[str, int]:
    """Recover at NOW; return crashes, or lapses, by id."""
    found: list[Recovered] = perform(recover("default", tasks, **({"now": NOW} | arguments)))
    return {task.id: task.losses for task in found}


def dump(redis_client: RedisClient) -> dict[bytes, bytes]:
    """Return everything that is in Redis."""
    return {key: redis_client.dump(key) for key in redis_client.keys("*")}


def test_h08_recovered_tasks_come_first_in_the_order_given(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls RPUSH, LREM or ZREM or pushes at the wrong end."""
    tasks.pending("waiting")
    tasks.active("a", "b", "c", lease=EXPIRED)
    tasks.active("runs")
    recovered(perform, seen("a"), seen("b"), seen("c"))
    assert ["a", "b", "c", "waiting"] == tasks.ids("pending")
    assert ["runs"] == tasks.ids("active") == list(tasks.scores("lease"))


def test_h06_h23_a_recovered_task_has_one_more_crash_and_spent_no_retry(
    perform: Perform, tasks: Tasks
) -> None:
    """Fails if the script no longer calls HINCRBY, HSET or HDEL; Asynq spends a retry."""
    tasks.active("a", lease=EXPIRED)
    tasks.active("b", lease=EXPIRED, crashes=2)
    assert {"a": 1, "b": 3} == recovered(perform, seen("a"), seen("b"))
    assert {
        "msg": message_bytes("a"),
        "state": b"pending",
        "pending_since": PENDING_SINCE,
        "x:crashes": b"1",
    } == tasks.fields("a")
    assert {} == tasks.counts()


def test_a_lapse_is_not_counted_as_a_crash(perform: Perform, tasks: Tasks) -> None:
    """Each has a number of its own, and damage in it is taken for none."""
    token = f"{TOKEN}/leased"
    tasks.active("first", token=token, lease=EXPIRED, crashes=2)
    tasks.active("third", token=token, lease=EXPIRED, extra={"x:lapses": 2})
    tasks.active("damaged", token=token, lease=EXPIRED, extra={"x:lapses": b"many"})
    lapsed = [seen(name, token)._replace(has_lapsed=True) for name in ("first", "third", "damaged")]
    assert {"first": 1, "third": 3, "damaged": 1} == recovered(perform, *lapsed)
    first, third = tasks.fields("first"), tasks.fields("third")
    assert (b"1", b"2") == (first["x:lapses"], first["x:crashes"])
    assert b"3" == third["x:lapses"]
    assert "x:crashes" not in third


@pytest.mark.parametrize(
    "other",
    [seen("a", "server/2"), seen("a", ""), seen("a", lease_score=EXPIRED - 1), seen("a", lease_score=None)],
)
def test_h04_a_task_that_is_not_as_it_was_seen_stays(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, other: RecoverTask
) -> None:
    """Fails if the script no longer calls HMGET or ZSCORE.

    Asynq pulls it from under the worker that has it.
    """
    tasks.active("a", lease=EXPIRED)
    before = dump(redis_client)
    assert {} == recovered(perform, other)
    assert before == dump(redis_client)


def test_h04_a_lease_that_was_renewed_in_time_is_not_expired(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The cutoff is tested in the same call: own tasks at five seconds, those of Go at thirty."""
    for task_id, token, age in (("own", TOKEN, 4), ("go", "", 29), ("own5", TOKEN, 5), ("go30", "", 30)):
        tasks.active(task_id, token=token, lease=NOW.seconds - age)
    looked_at = [
        seen("own", lease_score=NOW.seconds - 4),
        seen("go", "", NOW.seconds - 29),
        seen("own5", lease_score=NOW.seconds - 5),
        seen("go30", "", NOW.seconds - 30),
    ]
    assert {"own5", "go30"} == recovered(perform, *looked_at).keys()
    assert {"own", "go"} == set(tasks.ids("active"))


def test_h08_the_tasks_of_a_server_known_to_be_dead_need_not_wait(perform: Perform, tasks: Tasks) -> None:
    """Without a cutoff, but only with a token that names it; Go's keep their grace."""
    tasks.active("a", token="dead/1")
    tasks.active("go", token="", lease=NOW.seconds - 29)
    found = perform(list_server_tasks("default", server_id="dead"))
    looked_at = [
        *(seen(*task[:1], task.token, task.lease_score) for task in found),
        seen("go", "", NOW.seconds - 29),
    ]
    assert {"a": 1} == recovered(perform, *looked_at, own_slack=None)


def test_h15_w23_without_a_time_redis_tells_it(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME: this lease lies in the future of Redis."""
    tasks.active("a", lease=LEASE_SCORE)
    assert {} == recovered(perform, seen("a", lease_score=LEASE_SCORE), now=None)


def test_h07_an_active_task_without_a_lease_is_recovered(perform: Perform, tasks: Tasks) -> None:
    """If it still has none."""
    tasks.active("a", lease=None)
    tasks.active("go", token="", lease=None)
    tasks.active("leased")
    looked_at = [seen("a", lease_score=None), seen("go", "", None), seen("leased", lease_score=None)]
    assert {"a": 1, "go": 1} == recovered(perform, *looked_at)


def test_h03_a_ghost_is_dropped(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls DEL.

    Id and lease go, and what is left of a hash that would block the id.
    """
    tasks.active("ghost", "remains", lease=EXPIRED)
    redis_client.delete(tasks.keys.task("ghost"))
    redis_client.hdel(tasks.keys.task("remains"), "msg")
    assert {} == recovered(perform, seen("ghost", ""), seen("remains"), foreign_slack=5)
    assert [] == tasks.ids("active") == list(tasks.scores("lease"))
    assert {} == tasks.fields("remains")


def test_a_lease_of_a_task_that_is_not_active_is_removed(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """It would be listed for ever; the task stays where it is."""
    tasks.pending("a")
    redis_client.zadd(tasks.keys.lease, {"a": EXPIRED})
    assert {} == recovered(perform, seen("a", ""))
    assert ["a"] == tasks.ids("pending")
    assert {} == tasks.scores("lease")


def test_h24_one_occurrence_is_removed_from_the_end_where_old_tasks_stand(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """A damaged list holds the id twice: the one at the tail goes."""
    tasks.active("a", "b", lease=EXPIRED)
    redis_client.lpush(tasks.keys.active, "a")
    recovered(perform, seen("a"))
    assert ["b", "a"] == tasks.ids("active")
    redis_client.lrem(tasks.keys.active, 1, "a")


def test_a_recovery_that_is_sent_again_counts_one_crash(redis_client: RedisClient, tasks: Tasks) -> None:
    """The second run finds nothing as it was seen."""
    tasks.active("a", lease=EXPIRED)
    recovered(BlockingPerformer(redis_client, replay=True), seen("a"))
    assert b"1" == tasks.fields("a")["x:crashes"]
    assert ["a"] == tasks.ids("pending")


def test_tasks_of_several_calls_come_first_in_the_order_given(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """Each call puts its tasks in front of what is there, so the last ones must go first."""
    ids = [f"{number:04}" for number in range(1_001)]
    tasks.active(*ids, lease=EXPIRED)
    perform = BlockingPerformer(redis_client)
    assert set(ids) == recovered(perform, *map(seen, ids)).keys()
    assert 2 == len(perform.calls)
    assert ids == tasks.ids("pending")
