from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.contract.enqueueing import composed, enqueue, statuses
from tests.factories import NOW, Tasks
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient


def test_a_scheduled_task_is_a_hash_of_message_and_state(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls HSET or ZADD; it is not pending since any time."""
    task = composed("a", process_in=60)
    assert ["enqueued"] == statuses(enqueue(perform, task))
    assert {"msg": task.encoded, "state": b"scheduled"} == tasks.fields("a")
    assert ["a"] == tasks.ids("scheduled")


def test_h13_a_due_time_is_the_first_whole_second_that_is_not_too_early(
    perform: Perform, tasks: Tasks
) -> None:
    """Asynq cuts the fraction off, so its tasks run up to a second early."""
    on_the_second = NOW._replace(microseconds=0).plus(60).to_datetime()
    enqueue(
        perform,
        composed("on", process_at=on_the_second),
        composed("after", process_at=on_the_second + timedelta(microseconds=1)),
    )
    assert {"on": NOW.seconds + 60, "after": NOW.seconds + 61} == tasks.scores("scheduled")


def test_an_id_that_exists_is_not_scheduled(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls EXISTS."""
    tasks.pending("a")
    before = tasks.fields("a")
    results = enqueue(perform, composed("a", process_in=60), composed("b", process_in=60))
    assert ["conflict", "enqueued"] == statuses(results)
    assert before == tasks.fields("a")
    assert ["b"] == tasks.ids("scheduled")
    assert ["conflict"] == statuses(enqueue(perform, composed("a", process_in=60)))


def test_w25_a_task_scheduled_before_the_reply_was_lost_is_enqueued(
    redis_client: RedisClient, tasks: Tasks, perform: Perform
) -> None:
    """Fails if the script no longer compares the stored message (HGET)."""
    tasks.pending("b")
    replay = BlockingPerformer(redis_client, replay=True)
    first, other = composed("a", process_in=60), composed("b", b"other", process_in=60)
    assert ["enqueued", "conflict"] == statuses(enqueue(replay, first, other))
    assert ["conflict"] == statuses(enqueue(perform, first))
    assert ["a"] == tasks.ids("scheduled")
