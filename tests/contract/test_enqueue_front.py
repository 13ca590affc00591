"""Tasks that are enqueued at the front of a queue."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq.errors import DuplicateTaskError, InvalidOptionError, TaskIDConflictError
from pyasynq.options import check_combination, check_unattended
from tests.contract.enqueueing import composed, enqueue, statuses
from tests.factories import NOW, PENDING_SINCE, Tasks, registered
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient


def test_they_are_taken_before_those_that_wait(perform: Perform, tasks: Tasks) -> None:
    """In the order of the call; fails if the script pushes at the wrong end."""
    tasks.pending("first")
    results = enqueue(perform, composed("a", front=True), composed("b", b"b", front=True, unique=60))
    assert ["enqueued", "enqueued"] == statuses(results)
    assert ["a", "b", "first"] == tasks.ids("pending")


def test_they_are_stored_as_others_are(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls HSET, or forgets the lock of a unique one."""
    plain, unique = composed("a", front=True), composed("b", b"b", front=True, unique=60)
    enqueue(perform, plain, unique)
    assert {"msg": plain.encoded, "state": b"pending", "pending_since": PENDING_SINCE} == tasks.fields("a")
    assert {"unique_key": unique.lock.encode(), "x:unique_ttl": b"60"}.items() <= tasks.fields("b").items()
    assert b"b" == redis_client.get(unique.lock)
    assert 0 < redis_client.ttl(unique.lock) <= 60


def test_an_id_or_a_lock_that_is_taken_refuses_them(perform: Perform, tasks: Tasks) -> None:
    """Each by its own error, which names the holder of the lock; the others are enqueued."""
    enqueue(perform, composed("a", unique=60))
    results = enqueue(
        perform,
        composed("a", b"x", front=True),
        composed("b", front=True, unique=60),
        composed("c", b"c", front=True),
    )
    errors = [result.error for result in results]
    assert ["conflict", "duplicate", "enqueued"] == statuses(results)
    assert isinstance(errors[0], TaskIDConflictError)
    assert isinstance(errors[1], DuplicateTaskError)
    assert "a" == errors[1].holder
    assert ["c", "a"] == tasks.ids("pending")


def test_an_ordered_queue_refuses_them(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Nothing is written, and the error says why; a queue that is ordered no more takes them."""
    redis_client.hset(tasks.keys.limits, "ordered", 1)
    results = enqueue(perform, composed("a", front=True), composed("b", b"b", front=True))
    assert ["refused", "refused"] == statuses(results)
    assert isinstance(results[0].error, InvalidOptionError)
    assert "the queue is ordered" in str(results[0].error)
    assert [] == tasks.ids("pending")
    redis_client.hset(tasks.keys.limits, "ordered", 0)
    assert ["enqueued"] == statuses(enqueue(perform, composed("a", front=True)))


def test_w25_one_that_was_stored_before_the_reply_was_lost_is_enqueued(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """Once, and where the first run has put it; another task with its id is refused."""
    replaying = BlockingPerformer(redis_client, replay=True)
    items = (composed("a", front=True), composed("b", b"b", front=True, unique=60))
    assert ["enqueued", "enqueued"] == statuses(enqueue(replaying, *items))
    assert ["a", "b"] == tasks.ids("pending")
    assert ["conflict"] == statuses(enqueue(replaying, composed("a", b"other", front=True)))


@pytest.mark.parametrize("seed", range(5))
def test_any_mix_of_both_ends_is_a_deque(perform: Perform, tasks: Tasks, seed: int) -> None:
    """The model: tasks of a call join either end, in the order of the call."""
    choices = random.Random(seed)
    model: deque[str] = deque()
    for round_ in range(8):
        names = [f"{round_}-{number}" for number in range(choices.randint(1, 4))]
        front = choices.random() < 0.5
        enqueue(perform, *(composed(name, name.encode(), front=front) for name in names))
        if front:
            model.extendleft(reversed(names))
        else:
            model.extend(names)
    assert list(model) == tasks.ids("pending")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("process_in", {"process_in": 5}),
        ("group", {"group": "g"}),
        ("once_for", {"once_for": 60, "task_id": "a"}),
        ("on_duplicate", {"unique": 60, "on_duplicate": "ignore"}),
    ],
)
def test_options_that_put_a_task_elsewhere_do_not_go_with_it(name: str, options: dict[str, Any]) -> None:
    """The error names the other one; without `front` they are as they were."""
    with pytest.raises(InvalidOptionError, match=f"front.*{name}="):
        check_combination({"front": True, **options})
    check_combination({"front": False, **options})


def test_schedules_refuse_it() -> None:
    """Their script knows one end."""
    with pytest.raises(InvalidOptionError, match="front"):
        check_unattended({"front": True})


def test_770_tasks_go_with_one_call(redis_client: RedisClient, tasks: Tasks) -> None:
    """More are split."""
    perform = BlockingPerformer(redis_client)
    items = [composed(str(number), str(number).encode(), front=True) for number in range(771)]
    runs = split_runs(items)
    assert [770, 1] == [len(run.tasks) for run in runs]
    perform(registered(enqueue_run(runs[0], now=NOW), runs[0].queue))
    assert [str(number) for number in range(770)] == tasks.ids("pending")
