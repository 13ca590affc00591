from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.dequeue import Dequeued, dequeue
from pyasynq.errors import RedisError
from pyasynq.task import TaskState
from tests.factories import NOW, PENDING_SINCE, TOKEN, Tasks

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient


def take(perform: Perform, *, room: bool | None, suspect_from: int = 2, limit: int = 10) -> Dequeued:
    """Dequeue with tasks of two crashes being suspects."""
    plan = dequeue("default", limit=limit, token=TOKEN, suspect_from=suspect_from, suspect_room=room, now=NOW)
    return perform(plan)


def crashed(redis_client: RedisClient, tasks: Tasks, crashes: int, *ids: str) -> None:
    """Note crashes in tasks."""
    for task_id in ids:
        redis_client.hset(tasks.keys.task(task_id), "x:crashes", crashes)


def summary(result: Dequeued) -> tuple[list[tuple[str, int]], int, bool]:
    """Return ids and crashes, the crashes of the suspect that waits, and whether the queue is empty."""
    return [(task.id, task.crashes) for task in result.tasks], result.suspect_waiting, result.empty


def test_h06_a_suspect_is_taken_alone(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """With room, the first suspect comes alone; the others keep their places, also those in front of it."""
    tasks.pending("a", "b", "suspect", "c", "second", "d")
    crashed(redis_client, tasks, 2, "suspect")
    crashed(redis_client, tasks, 5, "second")
    assert ([("suspect", 2)], 5, False) == summary(take(perform, room=True))
    assert ["suspect"] == tasks.ids("active")
    assert ["a", "b", "c", "second", "d"] == tasks.ids("pending")
    assert ([("second", 5)], 0, False) == summary(take(perform, room=True))
    assert ["a", "b", "c", "d"] == tasks.ids("pending")


def test_a_call_for_a_suspect_takes_nothing_else(perform: Perform, tasks: Tasks) -> None:
    """Another worker has taken it; the queue is not empty. (D03)"""
    tasks.pending("a", "b")
    assert ([], 0, False) == summary(take(perform, room=True))
    assert ["a", "b"] == tasks.ids("pending")


def test_without_room_the_tasks_behind_a_suspect_are_taken(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """It keeps its place and stays as it was; the queue has nothing else to give. (D03)"""
    tasks.pending("a", "s", "b", "t", "c")
    crashed(redis_client, tasks, 3, "s")
    crashed(redis_client, tasks, 2, "t")
    assert ([("a", 0), ("b", 0), ("c", 0)], 3, True) == summary(take(perform, room=False))
    assert ["s", "t"] == tasks.ids("pending")
    assert PENDING_SINCE == tasks.fields("s")["pending_since"]
    assert "x:attempt" not in tasks.fields("s")
    assert ([], 3, True) == summary(take(perform, room=False))
    assert ["s", "t"] == tasks.ids("pending")


def test_no_more_are_taken_behind_suspects_than_asked_for(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """However many are stepped over, in however many looks; what was not looked at does not move. (D03)"""
    suspects = [f"s{number}" for number in range(130)]
    tasks.pending(*suspects, "a", "b", "c")
    crashed(redis_client, tasks, 2, *suspects)
    assert ([("a", 0), ("b", 0)], 2, False) == summary(take(perform, room=False, limit=2))
    assert [*suspects, "c"] == tasks.ids("pending")


@pytest.mark.parametrize(("number", "found"), [(989, ["a"]), (1_010, [])])
def test_about_a_thousand_suspects_are_stepped_over(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, number: int, found: list[str]
) -> None:
    """One call of a script looks at no more; the queue is then looked at again after a rest. (D03)"""
    suspects = [f"s{number}" for number in range(number)]
    tasks.pending(*suspects, "a")
    crashed(redis_client, tasks, 2, *suspects)
    result = take(perform, room=False)
    assert (found, True) == ([task.id for task in result.tasks], result.empty)


@pytest.mark.parametrize(("number", "found"), [(99, ["s"]), (100, [])])
def test_a_suspect_is_looked_for_among_the_first_hundred(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, number: int, found: list[str]
) -> None:
    """Suspects keep their places at the front, so it is seldom behind others. (D03)"""
    tasks.pending(*(f"a{number}" for number in range(number)), "s", "b")
    crashed(redis_client, tasks, 2, "s")
    result = take(perform, room=True)
    assert (found, False) == ([task.id for task in result.tasks], result.empty)


def test_ghosts_behind_a_suspect_are_dropped(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Also when nothing is taken; the suspects around them keep their places. (D03)"""
    tasks.pending("s", "ghost", "t")
    crashed(redis_client, tasks, 2, "s", "t")
    redis_client.delete(tasks.keys.task("ghost"))
    result = take(perform, room=False)
    assert (1, ([], 2, True)) == (result.ghosts, summary(result))
    assert ["s", "t"] == tasks.ids("pending")


def test_the_bytes_of_a_call_bound_what_is_taken_behind_a_suspect(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The task that is too large stays; the queue is not empty. (D03)"""
    tasks.pending("s", "a")
    tasks.put(TaskState.PENDING, "large", payload=bytes(4_200_000))
    crashed(redis_client, tasks, 2, "s")
    assert ([("a", 0)], 2, False) == summary(take(perform, room=False))
    assert ["s", "large"] == tasks.ids("pending")


@pytest.mark.parametrize("key", ["active", "lease"])
def test_a_key_of_the_wrong_type_leaves_suspects_and_others_where_they_stood(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, key: str
) -> None:
    """What was popped goes back, in its order. (D03)"""
    tasks.pending("s", "a", "t", "b", "c")
    crashed(redis_client, tasks, 2, "s", "t")
    redis_client.set(getattr(tasks.keys, key), "x")
    with pytest.raises(RedisError, match="WRONGTYPE"):
        take(perform, room=False, limit=2)
    redis_client.delete(getattr(tasks.keys, key))
    assert ["s", "a", "t", "b", "c"] == tasks.ids("pending")
    assert [] == tasks.ids("active")


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
    assert ([("a", 0)], 0, False) == summary(take(perform, room=False, limit=1))


@pytest.mark.parametrize(
    ("ids", "limit"),
    [
        (["a", "s", "b", "t", "c"], 10),
        (["s", "t"], 10),
        (["s", "a", "b"], 1),
        (["a", "b", "s"], 2),
        (["ghost", "a", "s", "b"], 3),
        (["ghost", "a"], 10),
        (["a", "b", "c"], 2),
    ],
    ids=["between", "nothing else", "first", "not reached", "ghost", "ghost alone", "none"],
)
def test_a_call_that_knows_of_no_suspect_finds_the_same(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, ids: list[str], limit: int
) -> None:
    """It pops at once, and looks first if there was one after all; nothing else differs. (D03)"""
    seen = []
    for room in (False, None):
        redis_client.flushall()
        tasks.pending(*ids)
        redis_client.delete(tasks.keys.task("ghost"))
        crashed(redis_client, tasks, 2, *({"s", "t"} & set(ids)))
        result = take(perform, room=room, limit=limit)
        seen.append((summary(result)[:2], result.ghosts, tasks.ids("active"), tasks.ids("pending")))
    assert seen[0] == seen[1]


def test_a_pop_that_meets_a_key_of_the_wrong_type_puts_everything_back(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The tasks come back in the order that they had. (D03)"""
    tasks.pending("a", "b", "c")
    aside = tasks.keys.task("aside")
    redis_client.rename(tasks.keys.task("b"), aside)
    redis_client.set(tasks.keys.task("b"), "text")
    with pytest.raises(RedisError, match="WRONGTYPE"):
        take(perform, room=None)
    assert ["a", "b", "c"] == tasks.ids("pending")
    redis_client.rename(aside, tasks.keys.task("b"))
