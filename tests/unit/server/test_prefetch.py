"""How many tasks may be taken before there is a slot for them."""

from __future__ import annotations

import math

import pytest

from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.take.prefetch import Prefetch
from tests.attempts import attempt

MILLISECOND = 0.001


@pytest.fixture
def prefetch() -> Prefetch:
    """At most a hundred, all of which would be run within 20 ms; none waits for more than 50 ms."""
    settings = EngineSettings(
        prefetch_span=20 * MILLISECOND, prefetch_patience=50 * MILLISECOND, prefetch_bytes=1_000
    )
    return Prefetch(100, settings, {"default": 1, "light": 1, "heavy": 3})


def learn(prefetch: Prefetch, seconds: float, times: int, *, slots: int = 1) -> None:
    """Let this many attempts end, one after the other in each of this many slots."""
    for number in range(times):
        prefetch.ended(seconds)
        prefetch.learn(1_000.0 + number * seconds / slots)


def test_nothing_is_taken_ahead_before_some_hundred_tasks_have_been_short(prefetch: Prefetch) -> None:
    """A server that has just started knows nothing of the tasks."""
    assert 0 == prefetch.allowed
    learn(prefetch, 0.0, 100)
    assert 0 == prefetch.allowed
    learn(prefetch, 0.0, 500)
    assert 100 == prefetch.allowed


@pytest.mark.parametrize(("milliseconds", "allowed"), [(0.1, 100), (1, 19), (5, 3), (20, 0), (10_000, 0)])
def test_the_longer_tasks_are_the_fewer_wait(prefetch: Prefetch, milliseconds: float, allowed: int) -> None:
    """In one slot they would be run in the span of time that is set."""
    learn(prefetch, milliseconds * MILLISECOND, 1_000)
    assert allowed == prefetch.allowed


@pytest.mark.parametrize(("milliseconds", "allowed"), [(1, 100), (10, 19), (19, 10), (21, 0), (1_000, 0)])
def test_many_slots_are_free_more_often(prefetch: Prefetch, milliseconds: float, allowed: int) -> None:
    """So more tasks may wait, as long as they are short at all."""
    learn(prefetch, milliseconds * MILLISECOND, 2_000, slots=10)
    assert allowed == prefetch.allowed


def test_a_worker_that_had_little_to_do_may_take_short_tasks_ahead(prefetch: Prefetch) -> None:
    """Its slots were free: that nothing ended for long says nothing of the next tasks."""
    for number in range(1_000):
        prefetch.ended(MILLISECOND)
        prefetch.learn(10.0 * number)
    assert 19 == prefetch.allowed


def test_one_long_task_among_many_short_ones_ends_it(prefetch: Prefetch) -> None:
    """Until some hundred have been short again."""
    learn(prefetch, 0.0, 1_000)
    prefetch.ended(60.0)
    prefetch.learn(1_060.0)
    assert 0 == prefetch.allowed
    learn(prefetch, 0.0, 300)
    assert 100 == prefetch.allowed


def test_a_duration_of_zero_is_accepted(prefetch: Prefetch) -> None:
    """The clock of a test may stand still for ever."""
    learn(prefetch, 0.0, 200_000)
    assert 100 == prefetch.allowed


def test_forgetting_ends_it_at_once(prefetch: Prefetch) -> None:
    """What was learnt does not hold for the tasks that wait."""
    learn(prefetch, 0.0, 1_000)
    prefetch.forget()
    assert 0 == prefetch.allowed


def test_what_ended_before_it_was_forgotten_says_nothing_of_what_comes_after(prefetch: Prefetch) -> None:
    """Even if many short ones have ended that were not learnt from."""
    for _ in range(1_000):
        prefetch.ended(0.0)
    prefetch.forget()
    prefetch.learn(1_000.0)
    assert 0 == prefetch.allowed


@pytest.mark.parametrize("together", [1, 100])
def test_a_long_task_counts_as_one_second_however_many_end_with_it(prefetch: Prefetch, together: int) -> None:
    """A hundred short ones in parallel are learnt from as well, at once or one after the other."""
    learn(prefetch, 0.0, 1_000)
    prefetch.ended(3_600.0)
    for number in range(1, 101):
        prefetch.ended(0.0)
        if number % together == 0:
            prefetch.learn(1_000.0 + number)
    assert 0 < prefetch.allowed


def test_no_more_are_taken_while_large_messages_wait(prefetch: Prefetch) -> None:
    """Memory stays bounded."""
    learn(prefetch, 0.0, 1_000)
    for number in range(2):
        large = attempt(str(number))
        large.size = 600
        prefetch.add("default", [large])
    assert (0, 2) == (prefetch.allowed, prefetch.number)
    assert "0" == prefetch.take(1)[0].id
    assert (100, 1) == (prefetch.allowed, prefetch.number)


def test_patience_ends_with_the_one_that_waits_for_longest(prefetch: Prefetch) -> None:
    """They wait in the order in which they were taken."""
    assert math.inf == prefetch.patient_until
    for number in (1, 2):
        one = attempt(str(number))
        one.started = 100.0 * number
        prefetch.add(one.queue, [one])
    assert 100.05 == prefetch.patient_until
    assert "1" == prefetch.take(1)[0].id
    assert 200.05 == prefetch.patient_until


def test_queues_take_turns_by_their_weights(prefetch: Prefetch) -> None:
    """Though all tasks of a queue came at once; each queue's go in their order."""
    for queue in ("light", "heavy"):
        for number in range(12):
            prefetch.add(queue, [attempt(f"{queue} {number}", queue=queue)])
    went = prefetch.take(16)
    for begin in range(0, 16, 4):
        assert 3 == sum(one.queue == "heavy" for one in went[begin : begin + 4])
    assert [f"heavy {number}" for number in range(12)] == [one.id for one in went if one.queue == "heavy"]
    assert ["light"] * 8 == [prefetch.take(1)[0].queue for _ in range(8)]


def test_a_queue_that_had_nothing_has_saved_nothing_up(prefetch: Prefetch) -> None:
    """It takes turns from then on."""
    for number in range(100):
        prefetch.add("default", [attempt(str(number), queue="default")])
    for _ in range(50):
        prefetch.take(1)
    for number in range(50):
        prefetch.add("light", [attempt(str(number), queue="light")])
    went = [prefetch.take(1)[0].queue for _ in range(20)]
    assert 10 == went.count("light")


def test_patience_ends_with_the_longest_wait_of_all_queues(prefetch: Prefetch) -> None:
    """The queue with the longest wait counts even if another queue has its turn first."""
    for queue, started in (("light", 200.0), ("heavy", 100.0)):
        one = attempt(queue=queue)
        one.started = started
        prefetch.add(one.queue, [one])
    assert 100.05 == prefetch.patient_until


def test_a_queue_that_is_removed_leaves_the_others_their_turns(prefetch: Prefetch) -> None:
    """Its tasks are given up in their order; number and bytes are those of the rest."""
    for queue in ("light", "heavy"):
        for number in range(3):
            prefetch.add(queue, [attempt(f"{queue} {number}", queue=queue)])
    assert [f"heavy {number}" for number in range(3)] == [one.id for one in prefetch.take_queue("heavy")]
    assert [] == prefetch.take_queue("heavy")
    prefetch.weigh({"light": 2, "default": 1})
    assert 3 == prefetch.number
    assert [f"light {number}" for number in range(3)] == [one.id for one in prefetch.take(5)]
    assert 0 == prefetch.number
