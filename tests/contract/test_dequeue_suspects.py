from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.dequeue import Dequeued, dequeue
from tests.factories import NOW, PENDING_SINCE, TOKEN, Tasks

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient


def take(perform: Perform, *, room: bool, suspect_from: int = 2, limit: int = 10) -> Dequeued:
    """Dequeue with tasks of two crashes being suspects."""
    plan = dequeue("default", limit=limit, token=TOKEN, suspect_from=suspect_from, suspect_room=room, now=NOW)
    return perform(plan)


def crashed(redis_client: RedisClient, tasks: Tasks, crashes: int, *ids: str) -> None:
    """Note crashes in tasks."""
    for task_id in ids:
        redis_client.hset(tasks.keys.task(task_id), "x:crashes", crashes)


def summary(result: Dequeued) -> tuple[list[tuple[str, int]], bool, bool]:
    """Return ids and crashes, whether a suspect waits, and whether the queue is empty."""
    return [(task.id, task.crashes) for task in result.tasks], result.suspect_waiting, result.empty


def test_h06_a_suspect_is_taken_alone(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """With room, a suspect at the front comes alone; the tasks behind it go back in their order."""
    tasks.pending("suspect", "a", "b")
    crashed(redis_client, tasks, 2, "suspect")
    assert ([("suspect", 2)], False, False) == summary(take(perform, room=True))
    assert ["suspect"] == tasks.ids("active")
    assert ["a", "b"] == tasks.ids("pending")


def test_h06_without_room_a_suspect_waits_at_the_front(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Nothing overtakes it, and it stays as it was."""
    tasks.pending("suspect", "a")
    crashed(redis_client, tasks, 3, "suspect")
    assert ([], True, False) == summary(take(perform, room=False))
    assert ["suspect", "a"] == tasks.ids("pending")
    assert PENDING_SINCE == tasks.fields("suspect")["pending_since"]
    assert "x:attempt" not in tasks.fields("suspect")


def test_h06_the_walk_ends_in_front_of_a_suspect(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Neighbours already taken are not put beside it, room or not."""
    tasks.pending("a", "b", "suspect", "c")
    crashed(redis_client, tasks, 2, "suspect")
    assert ([("a", 0), ("b", 0)], True, False) == summary(take(perform, room=True))
    assert ["suspect", "c"] == tasks.ids("pending")


def test_h06_two_suspects_come_one_by_one(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """The second one waits for the next call."""
    tasks.pending("s", "t")
    crashed(redis_client, tasks, 2, "s", "t")
    assert [("s", 2)] == summary(take(perform, room=True))[0]
    assert ["t"] == tasks.ids("pending")


def test_h06_fewer_crashes_make_no_suspect(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Sees `>=` become `>` and the other way round."""
    tasks.pending("a", "b", "c")
    crashed(redis_client, tasks, 1, "a", "b")
    assert [("a", 1), ("b", 1), ("c", 0)] == summary(take(perform, room=False))[0]


def test_h06_without_the_feature_nothing_is_a_suspect(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """`suspect_from` 0 does not mean that every task is one."""
    tasks.pending("a", "b")
    crashed(redis_client, tasks, 9, "a")
    assert [("a", 9), ("b", 0)] == summary(take(perform, room=False, suspect_from=0))[0]


def test_h06_a_ghost_in_front_of_a_suspect_takes_no_room(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Nothing has been taken yet, so the suspect is."""
    tasks.pending("ghost", "suspect")
    redis_client.delete(tasks.keys.task("ghost"))
    crashed(redis_client, tasks, 2, "suspect")
    result = take(perform, room=True)
    assert (1, [("suspect", 2)]) == (result.ghosts, summary(result)[0])


def test_h06_a_suspect_beyond_the_limit_is_not_seen(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The next call meets it."""
    tasks.pending("a", "suspect")
    crashed(redis_client, tasks, 2, "suspect")
    assert ([("a", 0)], False, False) == summary(take(perform, room=False, limit=1))
