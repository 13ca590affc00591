"""The script that takes from an ordered queue: the head, when the one before it has come to its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.dequeue import Dequeued, DequeuedTask, DequeueRules, DequeueTerms, LimitedBy, dequeue
from pyasynq._clock import Instant
from pyasynq.limits import QueueLimits
from pyasynq.task import TaskState
from tests.factories import LEASE_SCORE, NOW, PENDING_SINCE, TOKEN, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient

DECLARED = DequeueTerms(DequeueRules.ORDERED, QueueLimits(ordered=True))
RATED = DequeueTerms(DequeueRules.ORDERED, QueueLimits(rate=2.0, burst=1, ordered=True))
KNOWN = DequeueTerms(DequeueRules.ORDERED)
HELD = (DequeueRules.ORDERED, LimitedBy.ORDER, 0.0)


def take(perform: Perform, terms: DequeueTerms = DECLARED, **arguments: Any) -> Dequeued:
    """Dequeue from the queue `default`, as a server that declares it as ordered unless said otherwise."""
    arguments = {"limit": 10, "token": TOKEN, "now": NOW, **arguments}
    return perform(dequeue("default", terms=terms, **arguments))


def ids(result: Dequeued) -> list[str]:
    """Return the ids of what was taken."""
    return [task.id for task in result.tasks]


def held(result: Dequeued) -> tuple[DequeueRules, LimitedBy, float]:
    """Return by which rules nothing more was taken, and for how long."""
    return result.rules, result.limited_by, result.wait


def test_one_task_is_taken_and_holds_the_queue(perform: Perform, tasks: Tasks) -> None:
    """However many the caller has room for."""
    tasks.pending("a", "b")
    expected = Dequeued(
        [DequeuedTask("a", message_bytes("a"), 0, LEASE_SCORE, PENDING_SINCE)],
        0,
        empty=False,
        suspect_waiting=False,
        lease_score=LEASE_SCORE,
        redis_now=NOW,
        rules=DequeueRules.ORDERED,
        limited_by=LimitedBy.ORDER,
    )
    assert expected == take(perform)
    assert (["a"], ["b"]) == (tasks.ids("active"), tasks.ids("pending"))
    assert ({"a": LEASE_SCORE}, TOKEN.encode()) == (tasks.scores("lease"), tasks.fields("a")["x:attempt"])
    assert ([], *HELD) == (ids(again := take(perform)), *held(again))
    assert not again.empty


def test_the_last_task_leaves_the_queue_empty(perform: Perform, tasks: Tasks) -> None:
    """Nothing is kept back then."""
    tasks.pending("a")
    result = take(perform)
    assert (["a"], True, LimitedBy.NOTHING) == (ids(result), result.empty, result.limited_by)
    result = take(perform)
    assert ([], True, LimitedBy.NOTHING) == (ids(result), result.empty, result.limited_by)


def test_the_lists_hold_the_queue_and_not_the_leases(perform: Perform, tasks: Tasks) -> None:
    """The head of a dead worker is the head until it is recovered."""
    tasks.pending("b")
    tasks.active("a", lease=NOW.seconds - 60)
    assert ([], *HELD) == (ids(result := take(perform)), *held(result))
    tasks.client.zrem(tasks.keys.lease, "a")
    assert [] == ids(take(perform))
    tasks.client.delete(tasks.keys.active, tasks.keys.task("a"))
    assert ["b"] == ids(take(perform))


def test_a_task_that_waits_for_another_try_holds_the_queue(perform: Perform, tasks: Tasks) -> None:
    """Until it is forwarded, run, archived or deleted; what is scheduled or archived holds nothing."""
    tasks.pending("b")
    tasks.put(TaskState.SCHEDULED, "later")
    tasks.put(TaskState.ARCHIVED, "failed")
    tasks.put(TaskState.RETRY, "a", score=NOW.seconds + 60)
    assert ([], *HELD) == (ids(result := take(perform)), *held(result))
    tasks.client.delete(tasks.keys.retry, tasks.keys.task("a"))
    assert ["b"] == ids(take(perform))


@pytest.mark.parametrize("terms", [DECLARED, KNOWN], ids=["declared", "known"])
def test_a_paused_queue_gives_nothing(perform: Perform, tasks: Tasks, terms: DequeueTerms) -> None:
    """It counts as empty until it goes on."""
    tasks.client.hset(tasks.keys.limits, "ordered", 1)
    tasks.pending("a")
    tasks.client.set(tasks.keys.paused, 1)
    result = take(perform, terms)
    assert ([], True, DequeueRules.ORDERED) == (ids(result), result.empty, result.rules)
    tasks.client.delete(tasks.keys.paused)
    assert ["a"] == ids(take(perform, terms))


def test_a_declaration_makes_the_queue_ordered_for_all(perform: Perform, tasks: Tasks) -> None:
    """Callers that do not know the order take nothing and get its rules, by any script."""
    assert take(perform).empty
    assert {b"ordered": b"1"} == tasks.client.hgetall(tasks.keys.limits)
    tasks.pending("a")
    for terms in (DequeueTerms(), DequeueTerms(DequeueRules.LIMITED, QueueLimits(max_run=5))):
        result = take(perform, terms)
        assert ([], DequeueRules.ORDERED, False) == (ids(result), result.rules, result.empty)
    assert ["a"] == ids(take(perform, KNOWN))


def test_an_inspector_is_not_overruled_by_a_declaration(perform: Perform, tasks: Tasks) -> None:
    """The caller learns by which rules the queue goes and has taken nothing."""
    tasks.pending("a")
    tasks.client.hset(tasks.keys.limits, "ordered", 0)
    result = take(perform)
    assert ([], DequeueRules.UNORDERED, False) == (ids(result), result.rules, result.empty)
    assert {b"ordered": b"0"} == tasks.client.hgetall(tasks.keys.limits)
    result = take(perform, DequeueTerms(DequeueRules.UNORDERED))
    assert (["a"], DequeueRules.UNORDERED) == (ids(result), result.rules)


def test_a_queue_whose_order_has_ended_gives_nothing_to_who_thinks_otherwise(
    perform: Perform, tasks: Tasks
) -> None:
    """Only a declaration orders it again."""
    tasks.pending("a", "b")
    result = take(perform, KNOWN)
    assert ([], DequeueRules.PLAIN, False) == (ids(result), result.rules, result.empty)
    assert not tasks.client.exists(tasks.keys.limits)
    tasks.client.hset(tasks.keys.limits, "concurrency", 1)
    assert DequeueRules.LIMITED is take(perform, KNOWN).rules
    assert (["a"], DequeueRules.ORDERED) == (ids(result := take(perform)), result.rules)


def test_ghosts_in_front_are_passed(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """An id without a task does not use up a turn."""
    tasks.pending("ghost", "a", "b")
    redis_client.delete(tasks.keys.task("ghost"))
    result = take(perform)
    assert (["a"], 1) == (ids(result), result.ghosts)


def test_h06_a_suspect_waits_for_room(perform: Perform, tasks: Tasks) -> None:
    """Nothing else keeps it back, also where a last token is left."""
    tasks.pending("a", "b")
    tasks.client.hset(tasks.keys.task("a"), "x:crashes", 2)
    result = take(perform, RATED, suspect_from=2)
    assert ([], 2, LimitedBy.NOTHING) == (ids(result), result.suspect_waiting, result.limited_by)
    assert (True, ["a", "b"]) == (result.empty, tasks.ids("pending"))
    result = take(perform, suspect_from=2, suspect_room=True)
    assert (["a"], 2) == (ids(result), result.tasks[0].crashes)


def test_nothing_is_passed_in_an_ordered_queue(perform: Perform, tasks: Tasks) -> None:
    """A call for a suspect takes the task in front, or nothing. (D03)"""
    tasks.pending("a", "suspect")
    tasks.client.hset(tasks.keys.task("suspect"), "x:crashes", 2)
    result = take(perform, suspect_from=2, suspect_room=True)
    assert ([], 0, False) == (ids(result), result.suspect_waiting, result.empty)
    assert ["a", "suspect"] == tasks.ids("pending")


def test_a_rate_holds_for_an_ordered_queue_too(perform: Perform, tasks: Tasks) -> None:
    """One token for each task, and none for a try that takes nothing."""
    tasks.active("head")
    tasks.pending("next")
    assert ([], *HELD) == (ids(result := take(perform, RATED)), *held(result))
    assert not tasks.client.exists(tasks.keys.bucket)
    tasks.client.flushdb()
    assert take(perform, RATED).empty
    assert not tasks.client.exists(tasks.keys.bucket)
    tasks.pending("a", "b")
    assert ["a"] == ids(take(perform, RATED))
    tasks.client.delete(tasks.keys.active, tasks.keys.lease, tasks.keys.task("a"))
    result = take(perform, RATED)
    assert ([], DequeueRules.ORDERED, LimitedBy.RATE, 0.5) == (ids(result), *held(result))
    turn = NOW.plus(result.wait)
    held_turn = turn.seconds * 1_000_000 + turn.microseconds
    assert 0.25 == take(perform, RATED._replace(held_turn=held_turn), now=NOW.plus(0.25)).wait
    assert ["b"] == ids(take(perform, RATED, now=NOW.plus(0.5)))


def test_a_stored_rate_wins(perform: Perform, tasks: Tasks) -> None:
    """Over that of the server."""
    tasks.client.hset(tasks.keys.limits, mapping={"rate": 1, "period": 10, "burst": 1})
    tasks.pending("a", "b")
    assert ["a"] == ids(take(perform, DECLARED))
    tasks.client.delete(tasks.keys.active, tasks.keys.lease, tasks.keys.task("a"))
    assert (DequeueRules.ORDERED, LimitedBy.RATE, 10.0) == held(take(perform))


def test_a_lease_from_a_whole_second_ends_on_one(perform: Perform, tasks: Tasks) -> None:
    """Nothing is added to a time without a fraction."""
    tasks.pending("a")
    assert NOW.seconds + 10 == take(perform, now=Instant(NOW.seconds), lease_seconds=10).lease_score


def test_h15_w23_without_a_time_redis_tells_it(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME."""
    tasks.pending("a")
    before = time.time_ns() // 1000
    result = take(perform, now=None)
    told = result.redis_now.seconds * 1_000_000 + result.redis_now.microseconds
    assert before <= told <= time.time_ns() // 1000
    assert result.redis_now.ceiling + 30 == tasks.scores("lease")["a"]


def test_a_large_message_is_taken_all_the_same(redis_client: RedisClient, tasks: Tasks) -> None:
    """The limit of bytes is for those that follow."""
    tasks.pending("a", payload=b"x" * 5_000_000)
    assert ["a"] == ids(take(BlockingPerformer(redis_client)))
