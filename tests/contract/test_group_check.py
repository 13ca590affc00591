from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker import groups as groups_module
from pyasynq._broker.aggregation_sets import AggregationSet
from pyasynq._broker.groups import GroupCheck, GroupLimits, check_groups, list_groups
from pyasynq.task import TaskState
from tests.contract.aggregating import LIMITS, check
from tests.factories import NOW, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient

AGGREGATING = TaskState.AGGREGATING
T = NOW.seconds


def test_the_names_of_groups_are_listed(perform: Perform, tasks: Tasks) -> None:
    """Sorted; a queue without groups has none."""
    assert [] == perform(list_groups("default"))
    tasks.put(AGGREGATING, "a", group="user:2")
    tasks.put(AGGREGATING, "b", group="user:1")
    assert ["user:1", "user:2"] == perform(list_groups("default"))


def test_a_group_is_due_when_no_task_has_joined_for_the_grace_period(perform: Perform, tasks: Tasks) -> None:
    """At this second, not before it; the newest member counts. The members keep hash, state and score."""
    tasks.put(AGGREGATING, "a", group="g", score=T - 100)
    tasks.put(AGGREGATING, "b", group="g", score=T - 60)
    before = tasks.fields("a")
    assert GroupCheck([AggregationSet("default", "g", "set-1")], None, NOW) == check(perform, g=LIMITS)
    assert {"a": T - 100, "b": T - 60} == tasks.members("g:set-1")
    assert {} == tasks.members("g")
    assert set() == tasks.groups(), "an empty group is not looked at any more"
    assert {"g:set-1": NOW.ceiling + 120} == tasks.sets()
    assert before == tasks.fields("a")


def test_a_group_that_is_not_due_stays_and_says_when_it_will_be(perform: Perform, tasks: Tasks) -> None:
    """The next due time is the earliest of all groups."""
    tasks.put(AGGREGATING, "a", group="g", score=T - 100)
    tasks.put(AGGREGATING, "b", group="g", score=T - 59)
    tasks.put(AGGREGATING, "c", group="h", score=T - 10)
    assert GroupCheck([], T + 1, NOW) == check(perform, h=LIMITS, g=LIMITS)
    assert (["a", "b"], {"g", "h"}) == (list(tasks.members("g")), tasks.groups())
    assert {} == tasks.sets()


def test_a_group_is_due_when_its_oldest_member_waits_for_the_longest_delay(
    perform: Perform, tasks: Tasks
) -> None:
    """At this second, not before it, whatever joins meanwhile."""
    tasks.put(AGGREGATING, "a", group="g", score=T - 100)
    tasks.put(AGGREGATING, "b", group="g", score=T)
    assert T + 1 == check(perform, g=GroupLimits(60, max_delay=101)).next_due
    assert {} == tasks.sets()
    assert [AggregationSet("default", "g", "set-1")] == check(perform, g=GroupLimits(60, max_delay=100)).sets
    assert {"a": T - 100, "b": T} == tasks.members("g:set-1")


def test_a_group_is_due_when_it_has_its_maximum_of_members(perform: Perform, tasks: Tasks) -> None:
    """Exactly this many of the oldest are taken, and the group stays listed while it has others."""
    limits = GroupLimits(60, max_size=3)
    tasks.put(AGGREGATING, "a", "b", group="g", score=T)
    assert [] == check(perform, g=limits).sets
    tasks.put(AGGREGATING, "c", "d", group="g", score=T - 1)
    assert T + 60 == check(perform, g=limits).next_due
    assert {"c": T - 1, "d": T - 1, "a": T} == tasks.members("g:set-1")
    assert ({"b": T}, {"g"}) == (tasks.members("g"), tasks.groups())


def test_a_group_that_is_still_due_says_so(perform: Perform, tasks: Tasks) -> None:
    """Without a due group the aggregator does not rest."""
    tasks.put(AGGREGATING, *"abcd", group="g", score=T)
    assert T == check(perform, g=GroupLimits(60, max_size=2)).next_due
    tasks.put(AGGREGATING, "e", group="h", score=T - 100)
    assert ["set-1"] == [one.id for one in check(perform, h=LIMITS).sets]


@pytest.mark.parametrize("reason", ["grace", "max_delay"])
def test_a_due_group_gives_no_more_than_its_maximum(perform: Perform, tasks: Tasks, reason: str) -> None:
    """Whatever it is due for; the rest is due at once."""
    limits = GroupLimits(60, max_size=5) if reason == "grace" else GroupLimits(900, 60, 5)
    tasks.put(AGGREGATING, *"abcdefg", group="g", score=T - 60)
    assert T == check(perform, g=limits).next_due
    assert 5 == len(tasks.members("g:set-1"))


def test_h11_a_group_without_a_maximum_gives_a_thousand_members_at_a_time(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """This many do not make it due; more than one ZADD and unpack can carry."""
    ids = [f"{number:04}" for number in range(2_501)]
    tasks.put(AGGREGATING, *ids, group="g", score=T)
    assert [] == check(perform, g=LIMITS).sets
    redis_client.zadd(tasks.keys.group("g"), dict.fromkeys(ids, T - 60))
    assert T == check(perform, g=LIMITS).next_due
    assert ids[:1_000] == list(tasks.members("g:set-1"))
    check(perform, g=GroupLimits(60, max_size=1_500))
    assert ids[:1_000] == list(tasks.members("g:set-1"))[:1_000]
    assert 2_500 == len(tasks.members("g:set-1"))
    assert [ids[2_500]] == list(tasks.members("g"))


def test_h11_a_set_has_sixteen_megabytes_at_most(
    perform: Perform, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One larger message is a set of its own, and a full set is not larger by one."""
    assert 16_000_000 == groups_module.MAX_SET_BYTES
    size = len(message_bytes("a", group_key="g"))
    monkeypatch.setattr(groups_module, "MAX_SET_BYTES", 2 * size)
    tasks.put(AGGREGATING, "a", "b", "c", group="g", score=T - 60)
    tasks.put(AGGREGATING, "d", group="g", score=T - 60, payload=b"x" * 2 * size)
    for expected in (["a", "b"], ["c"], ["d"]):
        [one] = check(perform, g=LIMITS).sets
        assert expected == list(tasks.members(f"g:{one.id}"))
        tasks.client.rename(one.key, tasks.keys.aggregation_set("g", expected[0]))
        tasks.client.zrem(tasks.keys.aggregation_sets, one.key)
        tasks.client.zadd(tasks.keys.aggregation_sets, {tasks.keys.aggregation_set("g", expected[0]): 1})


def test_no_more_sets_are_made_than_asked_for(perform: Perform, tasks: Tasks) -> None:
    """The other due groups stay as they are, and are due."""
    for group in "ghij":
        tasks.put(AGGREGATING, group * 2, group=group, score=T - 60)
    assert GroupCheck(
        [AggregationSet("default", group, f"set-{n}") for n, group in enumerate("ghi", 1)], T, NOW
    ) == (check(perform, g=LIMITS, h=LIMITS, i=LIMITS, j=LIMITS))
    assert {"j"} == tasks.groups()
    assert {"jj": T - 60} == tasks.members("j")


def test_more_than_a_thousand_groups_are_checked_in_calls(redis_client: RedisClient, tasks: Tasks) -> None:
    """As long as there is room for more sets; the limit holds for all of them together."""
    tasks.put(AGGREGATING, "a", group="first", score=T - 60)
    tasks.put(AGGREGATING, "b", group="last", score=T - 60)
    others = [(f"other{number}", LIMITS) for number in range(1_500)]
    perform = BlockingPerformer(redis_client)

    def made(most_sets: int) -> list[str]:
        every = [("first", LIMITS), *others, ("last", LIMITS)]
        return [
            one.group for one in perform(check_groups("default", every, most_sets=most_sets, now=NOW)).sets
        ]

    assert ["first"] == made(1)
    assert ({"last"}, 1) == (tasks.groups(), len(perform.calls))
    assert ["last"] == made(2)
    assert 1 + 2 == len(perform.calls)


def test_the_names_of_empty_groups_are_dropped(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Asynq looks at them for ever."""
    redis_client.sadd(tasks.keys.groups, "empty")
    assert GroupCheck([], None, NOW) == check(perform, empty=LIMITS)
    assert set() == tasks.groups()


def test_h11_w31_a_member_without_a_message_is_dropped(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Fails if the script no longer calls HSTRLEN or DEL: no blank task reaches the aggregator."""
    tasks.put(AGGREGATING, "ghost", "remains", "z", group="g", score=T - 60)
    redis_client.delete(tasks.keys.task("ghost"))
    redis_client.hdel(tasks.keys.task("remains"), "msg")
    assert 1 == len(check(perform, g=LIMITS).sets)
    assert {"z": T - 60} == tasks.members("g:set-1")
    assert {} == tasks.fields("remains")
    redis_client.zadd(tasks.keys.group("h"), {"ghost": 1})
    redis_client.sadd(tasks.keys.groups, "h")
    assert GroupCheck([], None, NOW) == check(perform, h=LIMITS), (
        "a group of ghosts alone does not become a set"
    )
    assert (set(), {}) == (tasks.groups(), tasks.members("h"))


def test_a_check_that_is_sent_again_returns_the_sets_that_it_made(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """After a lost reply; otherwise they would lie there until their deadline."""
    tasks.put(AGGREGATING, *"abcd", group="g", score=T - 60)
    tasks.put(AGGREGATING, "e", group="h", score=T - 60)
    replay = BlockingPerformer(redis_client, replay=True)
    checked = check(replay, g=GroupLimits(60, max_size=2), h=LIMITS)
    assert (["set-1", "set-2"], T) == ([one.id for one in checked.sets], checked.next_due)
    assert {"a", "b"} == tasks.members("g:set-1").keys()
    assert {"c", "d"} == tasks.members("g").keys()


def test_h15_without_a_time_redis_tells_whether_a_group_is_due(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME: NOW lies in its future."""
    tasks.put(AGGREGATING, "a", group="g", score=T - 60)
    tasks.put(AGGREGATING, "b", group="h", score=1_000)
    checked = perform(check_groups("default", [("g", LIMITS), ("h", LIMITS)], most_sets=2))
    assert (["h"], T) == ([one.group for one in checked.sets], checked.next_due)
    assert 1_700_000_000 < checked.redis_now.seconds < T
    [stale_at] = tasks.sets().values()
    assert checked.redis_now.ceiling + 120 == stale_at
