from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq.task import TaskState
from tests.contract.settling import archive
from tests.factories import NOW, Tasks, claim
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient

LOCK = "asynq:{default}:unique:email:deliver:99914b932bd37a50b983c5e7c90ae93b"


def fill(redis_client: RedisClient, tasks: Tasks, number: int, *, score: int = NOW.seconds) -> None:
    """Archive many tasks, quickly: all with the same message."""
    tasks.put(TaskState.ARCHIVED, "first", score=score)
    pipeline = redis_client.pipeline(transaction=False)
    for position in range(number):
        pipeline.copy(tasks.keys.task("first"), tasks.keys.task(f"{position:05}"))
    pipeline.delete(tasks.keys.task("first"))
    pipeline.delete(tasks.keys.archived)
    pipeline.execute()
    redis_client.zadd(tasks.keys.archived, {f"{position:05}": score for position in range(number)})


def test_room_is_made_for_new_tasks_oldest_first(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls ZCARD, ZRANGE, DEL or ZREM."""
    for age, task_id in enumerate(["new", "middle", "old"]):
        tasks.put(TaskState.ARCHIVED, task_id, score=NOW.seconds - age)
    tasks.active("a", "b")
    settled = perform(archive([claim("a"), claim("b")], max_size=3))
    assert 2 == settled.trimmed
    assert {"new", "a", "b"} == set(tasks.ids("archived"))
    assert {} == tasks.fields("old") == tasks.fields("middle")


def test_an_archive_that_is_just_full_enough_is_left_alone(perform: Perform, tasks: Tasks) -> None:
    """Two and one are three."""
    tasks.put(TaskState.ARCHIVED, "x", "y")
    tasks.active("a")
    assert 0 == perform(archive([claim("a")], max_size=3)).trimmed
    assert ["a", "x", "y"] == sorted(tasks.ids("archived"))


def test_tasks_from_the_cutoff_or_before_are_deleted(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls ZCOUNT.

    The cutoff itself is too old, the second after it is not.
    """
    for task_id, score in (("at", 100), ("before", 99), ("after", 101)):
        tasks.put(TaskState.ARCHIVED, task_id, score=score)
    tasks.active("a")
    assert 2 == perform(archive([claim("a")], cutoff=100)).trimmed
    assert ["after", "a"] == tasks.ids("archived")


def test_a_trimmed_task_releases_the_lock_it_owns(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Fails if the script no longer calls HGET or GET: a lock that another task has by now stays."""
    other = f"{LOCK}x"
    tasks.put(TaskState.ARCHIVED, "own", score=1, unique_key=LOCK)
    tasks.put(TaskState.ARCHIVED, "lost", score=2, unique_key=other)
    redis_client.hset(tasks.keys.task("own"), "unique_key", LOCK)
    redis_client.set(other, "somebody", ex=60)
    tasks.put(TaskState.ARCHIVED, "empty", score=3, extra={"unique_key": ""})
    tasks.active("a")
    assert 3 == perform(archive([claim("a")], cutoff=100)).trimmed
    assert (None, b"somebody") == (redis_client.get(LOCK), redis_client.get(other))


def test_a_refused_task_needs_no_room(perform: Perform, tasks: Tasks) -> None:
    """Nothing is deleted for a task that is not archived."""
    tasks.put(TaskState.ARCHIVED, "x", "y")
    assert 0 == perform(archive([claim("a")], max_size=2)).trimmed


def test_more_tasks_than_the_archive_holds_leave_the_last_ones(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """Each call archives no more than there is room for."""
    tasks.active("a", "b", "c", "d", "e")
    perform = BlockingPerformer(redis_client)
    settled = perform(archive([claim(task_id) for task_id in "abcde"], max_size=2))
    assert 3 == settled.trimmed
    assert 2 == redis_client.zcard(tasks.keys.archived)


@pytest.mark.usefixtures("damage_allowed")  # all have the message of one
def test_w11_nine_thousand_old_tasks_are_trimmed_in_several_calls(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """Asynq's script fails half-way at 8,000 ids; here no call deletes more than 1,000."""
    fill(redis_client, tasks, 9_000, score=1)
    tasks.active("a")
    perform = BlockingPerformer(redis_client)
    assert 9_000 == perform(archive([claim("a")], cutoff=100)).trimmed
    assert 9 == len(perform.calls)
    assert ["a"] == tasks.ids("archived")
    assert [tasks.keys.task("a").encode()] == redis_client.keys("*:t:*")


@pytest.mark.usefixtures("damage_allowed")  # all have the message of one
def test_h12_an_archive_over_its_size_is_brought_down_to_it(redis_client: RedisClient, tasks: Tasks) -> None:
    """The size may have been lowered."""
    fill(redis_client, tasks, 2_500)
    tasks.active("z")
    perform = BlockingPerformer(redis_client)
    assert 2_491 == perform(archive([claim("z")], max_size=10)).trimmed
    assert 3 == len(perform.calls)
    assert [*(f"{position:05}" for position in range(2_491, 2_500)), "z"] == tasks.ids("archived")


@pytest.mark.usefixtures("damage_allowed")
def test_an_archived_id_without_a_task_is_trimmed(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Its hash has no lock to release."""
    redis_client.zadd(tasks.keys.archived, {"ghost": 1})
    tasks.active("a")
    assert 1 == perform(archive([claim("a")], cutoff=100)).trimmed
    assert ["a"] == tasks.ids("archived")
