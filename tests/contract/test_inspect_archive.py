"""The archive stays within its size and age, also when tasks are archived by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.inspecting.actions import Moved
from pyasynq.task import TaskState
from tests.contract.test_inspect_actions import LIMITS, LOCK, archive
from tests.factories import NOW, Tasks
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient


def test_w10_h12_an_archive_by_hand_deletes_what_it_trims(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Asynq leaves the hashes. Room is made first, for each call's tasks; what is too old goes too."""
    tasks.put(TaskState.ARCHIVED, "old", score=NOW.seconds - 3_600, unique_key=LOCK)
    tasks.put(TaskState.ARCHIVED, "a", score=NOW.seconds - 10)
    tasks.put(TaskState.ARCHIVED, "b", score=NOW.seconds - 5)
    tasks.put(TaskState.SCHEDULED, "c", "d")
    moved = perform(archive("c", "d", limits=LIMITS._replace(max_size=3)))
    assert Moved(2, {}, trimmed=2) == moved
    assert ["b", "c", "d"] == tasks.ids("archived")
    assert redis_client.get(LOCK) is None


def test_w11_h12_any_number_of_archived_tasks_can_be_trimmed(redis_client: RedisClient, tasks: Tasks) -> None:
    """Each further call trims at most 1,000 tasks."""
    redis_client.zadd(tasks.keys.archived, {f"{number}": 1 for number in range(2_500)})
    tasks.pending("a")
    perform = BlockingPerformer(redis_client)
    assert 2_500 == perform(archive("a")).trimmed
    assert ["inspect/archive", "task/trim_archived", "task/trim_archived"] == [
        call.script.name  # type: ignore[union-attr]
        for call in perform.calls
    ]


def test_a_refused_archive_makes_no_room(perform: Perform, tasks: Tasks) -> None:
    """The archive is as large as it may be, and stays so."""
    tasks.put(TaskState.ARCHIVED, "a", "b")
    assert Moved(0, {"a": "archived"}) == perform(archive("a", limits=LIMITS._replace(max_size=2)))


def test_the_tail_of_the_archive_stays_within_its_size(redis_client: RedisClient, tasks: Tasks) -> None:
    """More tasks than it may hold come in calls of that many."""
    tasks.pending(*"abcde")
    perform = BlockingPerformer(redis_client)
    assert Moved(5, {}, 3) == perform(archive(*"abcde", limits=LIMITS._replace(max_size=2)))
    assert 2 == len(tasks.ids("archived"))
