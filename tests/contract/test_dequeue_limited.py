"""Taking tasks from a queue with limits; the instants are given, so nothing waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.dequeue import Dequeued, DequeueRules, DequeueTerms, LimitedBy, dequeue
from pyasynq.limits import UNLIMITED, Queue, QueueLimits
from pyasynq.task import TaskState
from tests.factories import LEASE_SCORE, NOW, TOKEN, Tasks

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient


def take(
    perform: Perform,
    limits: QueueLimits = UNLIMITED,
    *,
    limit: int = 10,
    after: float = 0.0,
    turn: int = 0,
    rules: DequeueRules = DequeueRules.LIMITED,
    suspect_from: int = 0,
) -> Dequeued:
    """Dequeue some seconds after NOW."""
    terms = DequeueTerms(rules, limits, turn)
    return perform(
        dequeue(
            "default", limit=limit, token=TOKEN, terms=terms, suspect_from=suspect_from, now=NOW.plus(after)
        )
    )


def ids(result: Dequeued) -> list[str]:
    """Return the ids in the order in which they came."""
    return [task.id for task in result.tasks]


def rate(number: float, *, period: float = 1.0, burst: int = 1) -> QueueLimits:
    """Return limits with a rate alone."""
    return Queue(rate=number, period=period, burst=burst).limits


def turn_of(result: Dequeued) -> int:
    """Return the turn that the caller was given, as it sends it the next time."""
    return result.redis_now.plus(result.wait).to_microseconds()


def test_without_limits_it_takes_what_the_plain_script_takes(perform: Perform, tasks: Tasks) -> None:
    """Tasks, leases and tokens of the attempts are the same."""
    tasks.pending("a", "b", "c")
    result = take(perform, limit=2)
    assert (["a", "b"], False, LimitedBy.NOTHING) == (ids(result), result.empty, result.limited_by)
    assert {"a": LEASE_SCORE, "b": LEASE_SCORE} == tasks.scores("lease")
    assert b"server/1" == tasks.fields("a")["x:attempt"]
    assert take(perform).empty


def test_a_batch_is_cut_to_the_free_slots_before_anything_is_taken(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls ZCOUNT; what is left stays where it was, with all that it had."""
    tasks.active("running")
    tasks.pending("a", "b", "c")
    result = take(perform, QueueLimits(max_run=3))
    assert (["a", "b"], LimitedBy.CONCURRENCY, False) == (ids(result), result.limited_by, result.empty)
    assert ["c"] == tasks.ids("pending")
    assert ["running", "a", "b"] == tasks.ids("active")
    result = take(perform, QueueLimits(max_run=3))
    assert ([], LimitedBy.CONCURRENCY) == (ids(result), result.limited_by)


def test_no_slot_is_free_with_more_running_than_the_limit_allows(perform: Perform, tasks: Tasks) -> None:
    """The limit may have been lowered."""
    tasks.active("a", "b")
    tasks.pending("c")
    assert LimitedBy.CONCURRENCY is take(perform, QueueLimits(max_run=1)).limited_by
    assert ["c"] == tasks.ids("pending")


@pytest.mark.parametrize(("expected", "lease"), [([], NOW.seconds + 1), (["b"], NOW.seconds)])
def test_a_lease_counts_while_it_ends_later_than_now(
    perform: Perform, tasks: Tasks, expected: list[str], lease: int
) -> None:
    """The tasks of a killed worker hold their slots no longer than its leases."""
    tasks.active("a", lease=lease)
    tasks.pending("b")
    assert expected == ids(take(perform, QueueLimits(max_run=1)))


def test_without_a_slot_the_wait_ends_with_the_first_lease_that_counts(
    perform: Perform, tasks: Tasks
) -> None:
    """Fails if the script no longer calls ZRANGEBYSCORE.

    A lapsed lease frees a slot, and nothing reports that.
    """
    tasks.active("lapsed", lease=NOW.seconds - 1)
    tasks.active("late", lease=NOW.seconds + 20)
    tasks.active("soon", lease=NOW.seconds + 10)
    tasks.pending("a")
    assert 9.75 == take(perform, QueueLimits(max_run=2)).wait


def test_an_empty_queue_is_not_held_by_its_limits(perform: Perform, tasks: Tasks) -> None:
    """A caller that waits for its tasks must watch `pending`, not leases."""
    tasks.active("a")
    for limits in (QueueLimits(max_run=1), rate(0.001)):
        tasks.pending("b")
        tasks.client.lpop(tasks.keys.pending)
        result = take(perform, limits)
        assert (True, LimitedBy.NOTHING) == (result.empty, result.limited_by)
    tasks.client.delete(tasks.keys.task("b"))


def test_the_last_task_that_the_limit_lets_out_leaves_an_empty_queue(perform: Perform, tasks: Tasks) -> None:
    """Then there is nothing that is kept back."""
    tasks.pending("a")
    result = take(perform, QueueLimits(max_run=1))
    assert (["a"], True, LimitedBy.NOTHING) == (ids(result), result.empty, result.limited_by)


@pytest.mark.parametrize("burst", [1, 1_000_000])
def test_the_slowest_rate_is_within_what_redis_can_count(perform: Perform, tasks: Tasks, burst: int) -> None:
    """A script that failed after it had taken tasks would leave them active without an attempt."""
    slowest = rate(1, period=36_500 * 86_400, burst=burst)
    tasks.pending("a", "b", "c")
    assert ["a"] == ids(take(perform, slowest, limit=1))
    assert (["b"] if burst > 1 else []) == ids(take(perform, slowest, limit=1))


def test_a_limit_that_is_not_reached_keeps_nothing_back(perform: Perform, tasks: Tasks) -> None:
    """The caller asked for less than it might have had."""
    tasks.pending("a", "b", "c")
    result = take(perform, QueueLimits(max_run=2), limit=2)
    assert (["a", "b"], LimitedBy.NOTHING) == (ids(result), result.limited_by)


def test_a_paused_queue_with_limits_gives_nothing(perform: Perform, tasks: Tasks) -> None:
    """The answer says that the queue is empty, as for a paused queue without limits."""
    tasks.pending("a")
    tasks.client.set(tasks.keys.paused, 1)
    result = take(perform, QueueLimits(max_run=1))
    assert ([], True, LimitedBy.NOTHING) == (ids(result), result.empty, result.limited_by)


def test_a_suspect_does_not_wait_for_a_slot(perform: Perform, tasks: Tasks) -> None:
    """The walk ended before the room did."""
    tasks.pending("a")
    tasks.put(TaskState.PENDING, "suspect", extra={"x:crashes": 2})
    result = take(perform, QueueLimits(max_run=5), suspect_from=2)
    assert (["a"], 2, LimitedBy.NOTHING) == (ids(result), result.suspect_waiting, result.limited_by)


def test_a_full_bucket_gives_its_burst_and_then_one_token_per_interval(
    perform: Perform, tasks: Tasks
) -> None:
    """Fifty a second are one every 20 ms; the first ten come at once."""
    tasks.pending(*(f"{number:02}" for number in range(20)))
    fifty = rate(50, burst=10)
    result = take(perform, fifty, limit=20)
    assert (10, LimitedBy.RATE, 0.02) == (len(result.tasks), result.limited_by, result.wait)
    assert [] == ids(take(perform, fifty, after=0.019999))
    assert ["10"] == ids(take(perform, fifty, after=0.02))
    assert ["11", "12"] == ids(take(perform, fifty, after=0.06))
    assert [] == ids(take(perform, fifty, after=0.079))


def test_a_bucket_saves_no_more_than_its_burst(perform: Perform, tasks: Tasks) -> None:
    """However long nothing was taken."""
    tasks.pending(*(f"{number}" for number in range(9)))
    assert 3 == len(take(perform, rate(1, burst=3)).tasks)
    assert 3 == len(take(perform, rate(1, burst=3), after=1_000).tasks)


def test_a_rate_may_be_a_fraction_and_have_any_period(perform: Perform, tasks: Tasks) -> None:
    """A third of a second is not a whole number of microseconds; nothing adds up to an error."""
    tasks.pending(*(f"{number}" for number in range(400)))
    for number in range(300):
        assert 1 == len(take(perform, rate(3), after=number / 3 + 0.000_001).tasks), number
        assert 0 == len(take(perform, rate(3), after=(number + 1) / 3 - 0.000_01).tasks), number


def test_a_rate_over_a_minute(perform: Perform, tasks: Tasks) -> None:
    """Six a minute are one every ten seconds."""
    tasks.pending("a", "b")
    assert 10.0 == take(perform, rate(6, period=60)).wait
    assert ["b"] == ids(take(perform, rate(6, period=60), after=10))


def test_a_ghost_costs_no_token(perform: Perform, tasks: Tasks) -> None:
    """Only what starts is counted."""
    tasks.pending("ghost", "a", "b")
    tasks.client.delete(tasks.keys.task("ghost"))
    assert ["a", "b"] == ids(take(perform, rate(1, burst=2)))


def test_tokens_are_not_spent_while_there_is_no_slot(perform: Perform, tasks: Tasks) -> None:
    """Both limits hold together, and the wait is for the slot."""
    limits = Queue(max_run=1, rate=1, burst=2).limits
    tasks.pending("a", "b", "c", "d")
    assert (["a"], LimitedBy.CONCURRENCY) == (ids(result := take(perform, limits)), result.limited_by)
    assert LimitedBy.CONCURRENCY is take(perform, limits).limited_by
    tasks.client.zrem(tasks.keys.lease, "a")
    assert ["b"] == ids(take(perform, limits))
    tasks.client.zrem(tasks.keys.lease, "b")
    assert (LimitedBy.RATE, 1.0) == ((result := take(perform, limits)).limited_by, result.wait)
    tasks.client.zadd(tasks.keys.lease, {"a": LEASE_SCORE, "b": LEASE_SCORE})


def test_everybody_who_waits_for_a_token_gets_a_turn_of_its_own(perform: Perform, tasks: Tasks) -> None:
    """So each token wakes one server and not all; a turn that is still to come is kept."""
    tasks.pending("a", "b", "c", "d")
    assert ["a"] == ids(first := take(perform, rate(10)))
    second, third = take(perform, rate(10)), take(perform, rate(10))
    assert [0.1, 0.2, 0.3] == [first.wait, second.wait, third.wait]
    assert 0.25 == take(perform, rate(10), after=0.05, turn=turn_of(third)).wait
    assert ["b"] == ids(first := take(perform, rate(10), after=0.1, turn=turn_of(first)))
    assert 0.3 == first.wait, "its turn was used; the next one comes after those of the others"
    assert ["c"] == ids(take(perform, rate(10), after=0.2, turn=turn_of(second)))


def test_a_server_that_just_misses_its_token_gets_the_next(perform: Perform, tasks: Tasks) -> None:
    """The one before it was late, and the bucket holds a single token."""
    tasks.pending("a", "b", "c", "d")
    first = take(perform, rate(10))
    second = take(perform, rate(10))
    take(perform, rate(10), after=0.15, turn=turn_of(first))
    assert 0.05 == take(perform, rate(10), after=0.2, turn=turn_of(second)).wait


def test_a_turn_that_was_missed_by_far_is_lost(perform: Perform, tasks: Tasks) -> None:
    """Others wait in order meanwhile."""
    tasks.pending("a", "b", "c", "d")
    missed = take(perform, rate(10))
    take(perform, rate(10), after=0.2)
    assert 0.2 == take(perform, rate(10), after=0.2, turn=turn_of(missed)).wait


def test_a_turn_from_times_of_a_lower_rate_is_forgotten(perform: Perform, tasks: Tasks) -> None:
    """A caller does not wait an hour for a token that comes in a tenth of a second, nor pay for it."""
    tasks.pending("a", "b", "c", "d", "e")
    hourly = rate(1, period=3_600, burst=3)
    assert 3_600.0 == take(perform, hourly).wait
    second = take(perform, hourly)
    assert 7_200.0 == second.wait
    assert 0.1 == take(perform, rate(10), turn=turn_of(second)).wait
    assert ["d"] == ids(take(perform, rate(10), after=0.1))


def test_a_thousand_may_wait_in_turn(perform: Perform, tasks: Tasks) -> None:
    """A turn further off than a hundred seconds, at ten a second, is none."""
    tasks.pending("a", "b")
    take(perform, rate(10), limit=1)
    last = NOW.plus(100.1).to_microseconds()
    assert 100.1 == take(perform, rate(10), turn=last).wait
    assert 0.1 == take(perform, rate(10), turn=last + 1).wait
    tasks.client.hset(tasks.keys.bucket, "turn", last - 1)
    assert 100.2 == pytest.approx(take(perform, rate(10)).wait, abs=1e-5)
    tasks.client.hset(tasks.keys.bucket, "turn", last)
    assert 0.1 == take(perform, rate(10)).wait


def test_a_clock_of_redis_that_is_set_back_stops_nothing(perform: Perform, tasks: Tasks) -> None:
    """The maximum debt is an empty bucket."""
    tasks.pending("a", "b", "c")
    take(perform, rate(10), limit=1)
    assert 0.1 == take(perform, rate(10), after=-1_000).wait
    assert [] == ids(take(perform, rate(10), after=-999.95)), "nor is it a gift"
    assert ["b"] == ids(take(perform, rate(10), after=-999.9))


def test_a_clock_that_is_set_back_leaves_no_bucket_for_ever(perform: Perform, tasks: Tasks) -> None:
    """The bucket gets a new expiry even if no task waits for a token."""
    tasks.pending("a")
    take(perform, rate(10))
    take(perform, rate(10), after=-1_000)
    assert 59 <= tasks.client.ttl(tasks.keys.bucket) <= 61


def test_where_nothing_starts_nothing_is_written(perform: Perform, tasks: Tasks) -> None:
    """An idle queue costs no memory."""
    take(perform, rate(10))
    tasks.client.set(tasks.keys.paused, 1)
    tasks.pending("a")
    take(perform, rate(10))
    assert not tasks.client.exists(tasks.keys.bucket)


def test_the_bucket_vanishes_when_it_is_of_no_use(perform: Perform, tasks: Tasks) -> None:
    """A minute after it is full again, or after the last turn."""
    tasks.pending(*"abcdefghi")
    take(perform, rate(10, burst=2), limit=1)
    assert 59 <= tasks.client.ttl(tasks.keys.bucket) <= 61
    take(perform, rate(1, period=100), after=1)
    assert 158 <= tasks.client.ttl(tasks.keys.bucket) <= 161
    take(perform, rate(1, period=100), after=1)
    assert 258 <= tasks.client.ttl(tasks.keys.bucket) <= 261, "not before the turn of the second who waits"
    take(perform, rate(1, period=100, burst=3), limit=2, after=200)
    take(perform, rate(1, period=100, burst=3), limit=2, after=200)
    assert 358 <= tasks.client.ttl(tasks.keys.bucket) <= 361, "not before all three tokens are there"


@pytest.mark.parametrize("stored", [{"concurrency": 1}, {"rate": 1, "period": 1, "burst": 1}])
def test_a_server_that_knows_of_no_limits_takes_nothing_where_some_are_stored(
    perform: Perform, tasks: Tasks, stored: dict[str, int]
) -> None:
    """It learns by which rules to ask, and asks again."""
    tasks.pending("a", "b")
    tasks.client.hset(tasks.keys.limits, mapping=stored)
    result = take(perform, rules=DequeueRules.PLAIN)
    assert ([], DequeueRules.LIMITED, False) == (ids(result), result.rules, result.empty)
    assert ["a", "b"] == tasks.ids("pending")
    result = take(perform)
    assert (["a"], DequeueRules.LIMITED) == (ids(result), result.rules)


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize("field", ["rate", "period"])
def test_a_stored_rate_of_nothing_is_not_a_rate(perform: Perform, tasks: Tasks, field: str) -> None:
    """The rate of the call holds then: two tasks at once, and the third much later."""
    tasks.pending(*"abc")
    tasks.client.hset(tasks.keys.limits, mapping={"rate": 1, "period": 1, "burst": 1} | {field: 0})
    assert ["a", "b"] == ids(result := take(perform, rate(0.001, burst=2)))
    assert LimitedBy.RATE is result.limited_by


def test_a_paused_queue_with_stored_limits_says_so_to_the_plain_script(
    perform: Perform, tasks: Tasks
) -> None:
    """The script for limits then looks at the pause."""
    tasks.client.set(tasks.keys.paused, 1)
    assert (True, DequeueRules.PLAIN) == (
        (result := take(perform, rules=DequeueRules.PLAIN)).empty,
        result.rules,
    )
    tasks.client.hset(tasks.keys.limits, "concurrency", 1)
    assert (False, DequeueRules.LIMITED) == (
        (result := take(perform, rules=DequeueRules.PLAIN)).empty,
        result.rules,
    )


def test_what_is_stored_wins_over_what_the_server_asks_for(perform: Perform, tasks: Tasks) -> None:
    """Each limit by itself; the others stay as the server has them."""
    tasks.pending("a", "b", "c", "d", "e", "f")
    tasks.client.hset(tasks.keys.limits, "concurrency", 3)
    limits = Queue(max_run=1, rate=1, burst=2).limits
    assert (["a", "b"], LimitedBy.RATE) == (ids(result := take(perform, limits)), result.limited_by)
    tasks.client.delete(tasks.keys.limits)
    tasks.client.hset(tasks.keys.limits, mapping={"rate": 10, "period": 1, "burst": 4})
    assert 3 == len(take(perform, QueueLimits(max_run=5, rate=1.0), after=9).tasks)


def test_when_nothing_is_stored_any_more_the_server_is_told(perform: Perform, tasks: Tasks) -> None:
    """It goes back to the plain script if it has no limits of its own."""
    tasks.pending("a")
    assert DequeueRules.PLAIN is take(perform).rules


def test_h15_the_time_of_redis_decides_when_none_is_given(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME: clocks of hosts have no say in who runs how much."""
    tasks.pending("a", "b")
    terms = DequeueTerms(DequeueRules.LIMITED, rate(1, period=1_000))
    assert 1_000 == perform(dequeue("default", limit=2, token=TOKEN, terms=terms)).wait
    assert 1_900 < perform(dequeue("default", limit=2, token=TOKEN, terms=terms)).wait < 2_000


def test_dequeues_of_other_queues_know_nothing_of_the_limits(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """All keys are the queue's own."""
    tasks.pending("a", "b")
    other = Tasks(redis_client, "other")
    other.pending("c")
    take(perform, rate(1))
    terms = DequeueTerms(DequeueRules.LIMITED, rate(1))
    assert ["c"] == ids(perform(dequeue("other", limit=5, token=TOKEN, terms=terms, now=NOW)))
