from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker import aggregation_sets as sets_module
from pyasynq._broker.aggregation_sets import (
    AggregationSet,
    Reclaimed,
    SetMember,
    quarantine_member,
    read_set,
    reclaim_stale_sets,
    release_sets,
    renew_sets,
)
from pyasynq.task import TaskState
from tests.contract.aggregating import STAGED
from tests.factories import NOW, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.invariants import RedisClient

GONE = AggregationSet("default", "user:1", "gone")
AFTER = NOW.ceiling + 120
NAME = "user:1:staged-set"


def stage(tasks: Tasks, *ids: str, stale_at: int = AFTER) -> None:
    """Put members into the set STAGED."""
    tasks.in_set(STAGED.group, STAGED.id, *ids, stale_at=stale_at)


def test_a_set_is_read_oldest_first(perform: Perform, tasks: Tasks) -> None:
    """Reading a set gives the ids and the messages of its members."""
    stage(tasks, "b", "a")
    tasks.client.zadd(STAGED.key, {"b": 1})
    data = {task_id: message_bytes(task_id, group_key="user:1") for task_id in "ab"}
    assert [SetMember("b", data["b"]), SetMember("a", data["a"])] == perform(read_set(STAGED))


def test_w31_a_set_that_is_gone_is_not_read(perform: Perform, tasks: Tasks) -> None:
    """Also when its members are still there: somebody is about to take them."""
    assert None is perform(read_set(GONE))
    stage(tasks, "a")
    tasks.client.zrem(tasks.keys.aggregation_sets, STAGED.key)
    assert None is perform(read_set(STAGED))
    tasks.client.zadd(tasks.keys.aggregation_sets, {STAGED.key: 1})


@pytest.mark.usefixtures("damage_allowed")
def test_h11_w31_blank_members_are_not_read(perform: Perform, tasks: Tasks) -> None:
    """Neither an id without a hash nor a hash without a message."""
    stage(tasks, "a", "b", "c")
    tasks.client.delete(tasks.keys.task("a"))
    tasks.client.hdel(tasks.keys.task("b"), "msg")
    assert [SetMember("c", message_bytes("c", group_key="user:1"))] == perform(read_set(STAGED))


def test_a_large_set_is_read_page_by_page(
    redis_client: RedisClient, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page ends at this many members, or at this many bytes; one larger message is a page of its own."""
    stage(tasks, *"abcdefg")
    perform = BlockingPerformer(redis_client)
    monkeypatch.setattr(sets_module, "MAX_TASKS", 3)
    assert list("abcdefg") == [member.id for member in perform(read_set(STAGED)) or ()]
    assert 3 == len(perform.calls)
    monkeypatch.setattr(sets_module, "MAX_BYTES", 2 * len(message_bytes("a", group_key="user:1")))
    assert list("abcdefg") == [member.id for member in perform(read_set(STAGED)) or ()]
    assert 3 + 4 == len(perform.calls)
    monkeypatch.setattr(sets_module, "MAX_BYTES", 1)
    assert list("abcdefg") == [member.id for member in perform(read_set(STAGED)) or ()]
    assert 3 + 4 + 7 == len(perform.calls)


def test_the_deadline_of_a_set_is_moved(perform: Perform, tasks: Tasks) -> None:
    """From now on, rounded up; sets that are not named keep theirs."""
    stage(tasks, "a", stale_at=NOW.seconds + 5)
    other = AggregationSet("default", "g", "other")
    tasks.in_set("g", "other", "b", stale_at=7)
    assert [] == perform(renew_sets("default", [STAGED], now=NOW))
    assert {NAME: NOW.ceiling + 120, "g:other": 7} == tasks.sets()
    assert [] == perform(renew_sets("default", [STAGED, other], timeout=9, now=NOW))
    assert {NAME: NOW.ceiling + 9, "g:other": NOW.ceiling + 9} == tasks.sets()
    assert set() == tasks.groups()


def test_a_set_that_is_gone_is_lost_and_not_made_again(perform: Perform, tasks: Tasks) -> None:
    """Its owner is told."""
    stage(tasks, "a")
    assert [GONE] == perform(renew_sets("default", [STAGED, GONE], now=NOW))
    assert {NAME: AFTER} == tasks.sets()
    assert set() == tasks.groups(), "a group without members is not listed"


@pytest.mark.usefixtures("damage_allowed")
def test_w03_a_group_that_a_recoverer_of_go_has_filled_is_listed_again(
    perform: Perform, tasks: Tasks
) -> None:
    """It puts the members back and leaves the name out, so they would not be checked."""
    tasks.put(TaskState.AGGREGATING, "a", group="user:1")
    tasks.client.delete(tasks.keys.groups)
    assert [GONE] == perform(renew_sets("default", [GONE], now=NOW))
    assert {"user:1"} == tasks.groups()


def test_h15_without_a_time_redis_tells_the_deadline(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME."""
    stage(tasks, "a")
    perform(renew_sets("default", [STAGED]))
    assert 1_700_000_000 < tasks.sets()[NAME] < NOW.seconds


def test_w03_h11_a_stale_set_goes_back_into_its_group(perform: Perform, tasks: Tasks) -> None:
    """At its deadline, not before it; with the old scores, and the group is listed again."""
    tasks.put(TaskState.AGGREGATING, "old", group="g", score=3)
    tasks.in_set("g", "1", "a", "b", score=5, stale_at=NOW.seconds)
    tasks.in_set("user:1", "2", "c", stale_at=NOW.seconds + 1)
    tasks.put(TaskState.AGGREGATING, "new", group="g", score=9)
    tasks.client.srem(tasks.keys.groups, "g")
    before = tasks.fields("a")
    assert Reclaimed(1, 3) == perform(reclaim_stale_sets("default", now=NOW))
    assert {"old": 3, "a": 5, "b": 5, "new": 9} == tasks.members("g")
    assert {"g"} == tasks.groups()
    assert {"user:1:2": NOW.seconds + 1} == tasks.sets()
    assert not tasks.client.exists(tasks.keys.aggregation_set("g", "1"))
    assert before == tasks.fields("a")


def test_the_group_of_a_set_may_have_colons_in_its_name(perform: Perform, tasks: Tasks) -> None:
    """The last colon parts it from the id of the set."""
    tasks.in_set("a:b::c", "1", "x", stale_at=1)
    perform(reclaim_stale_sets("default", now=NOW))
    assert ({"a:b::c"}, ["x"]) == (tasks.groups(), list(tasks.members("a:b::c")))


def test_a_name_that_is_not_a_set_is_taken_off_the_list(perform: Perform, tasks: Tasks) -> None:
    """An empty set, another queue's, and a key that is not a set's: nothing is touched or listed."""
    keys = ("asynq:{low}:g:g:1", tasks.keys.group("g"), tasks.keys.aggregation_set("empty", "1"))
    tasks.client.zadd(tasks.keys.aggregation_sets, dict.fromkeys(keys, 1))
    tasks.put(TaskState.AGGREGATING, "a", group="g")
    Tasks(tasks.client, "low").put(TaskState.AGGREGATING, "b", group="g:1")
    assert Reclaimed(3, 0) == perform(reclaim_stale_sets("default", now=NOW))
    assert ({}, {"g"}) == (tasks.sets(), tasks.groups())
    assert {"a"} == tasks.members("g").keys()


def test_all_stale_sets_are_reclaimed_some_at_a_time(
    redis_client: RedisClient, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call ends after this many sets, or when it has moved this many members; a set is never cut."""
    monkeypatch.setattr(sets_module, "_SETS_AT_ONCE", 2)
    monkeypatch.setattr(sets_module, "_RECLAIMED_MEMBERS", 3)
    for number in range(3):
        tasks.in_set("small", str(number), f"a{number}", stale_at=1)
    perform = BlockingPerformer(redis_client)
    assert Reclaimed(3, 3) == perform(reclaim_stale_sets("default", now=NOW))
    assert 2 == len(perform.calls)
    monkeypatch.setattr(sets_module, "_SETS_AT_ONCE", 10)
    for number in range(2):
        tasks.in_set("large", str(number), *(f"{number}{letter}" for letter in "abc"), stale_at=1)
    assert Reclaimed(2, 6) == perform(reclaim_stale_sets("default", now=NOW))
    assert 2 + 2 == len(perform.calls)
    assert Reclaimed(0, 0) == perform(reclaim_stale_sets("default", now=NOW))


def test_h15_without_a_time_redis_tells_which_sets_are_stale(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer calls TIME: NOW lies in its future."""
    stage(tasks, "a", stale_at=NOW.seconds)
    tasks.in_set("g", "1", "b", stale_at=1_000)
    assert Reclaimed(1, 1) == perform(reclaim_stale_sets("default"))
    assert {NAME: NOW.seconds} == tasks.sets()


def test_a_released_set_goes_back_at_once(perform: Perform, tasks: Tasks) -> None:
    """Whatever is left of its deadline; other sets stay."""
    stage(tasks, "a")
    tasks.in_set("g", "1", "b", stale_at=AFTER)
    assert Reclaimed(1, 1) == perform(release_sets("default", [STAGED], now=NOW))
    assert (["a"], {"user:1"}) == (list(tasks.members("user:1")), tasks.groups())
    assert {"g:1": AFTER} == tasks.sets()


def test_h21_w22_a_member_that_cannot_be_decoded_is_archived(perform: Perform, tasks: Tasks) -> None:
    """Its bytes stay, the reason is its trace; the others remain in the set."""
    stage(tasks, "a", "bad")
    tasks.client.hset(tasks.keys.task("bad"), "msg", b"\xff\xff")
    plan = quarantine_member(STAGED, "bad", reason="no message", max_size=10, cutoff=0, now=NOW)
    assert 0 == perform(plan)
    assert {"bad": NOW.ceiling} == tasks.scores("archived")
    assert {
        "msg": b"\xff\xff",
        "state": b"archived",
        "group": b"user:1",
        "x:trace": b"no message",
    } == tasks.fields("bad")
    assert (["a"], [NAME]) == (list(tasks.members(NAME)), list(tasks.sets()))


def test_h21_a_set_ends_with_its_last_member(perform: Perform, tasks: Tasks) -> None:
    """A set without members would stay on the list."""
    stage(tasks, "bad")
    tasks.client.hset(tasks.keys.task("bad"), "msg", b"\xff\xff")
    perform(quarantine_member(STAGED, "bad", reason="no message", max_size=10, cutoff=0, now=NOW))
    assert {} == tasks.sets()


def test_h21_a_member_that_has_left_the_set_is_not_archived(perform: Perform, tasks: Tasks) -> None:
    """The archive is not trimmed either."""
    tasks.put(TaskState.AGGREGATING, "a", group="user:1")
    tasks.put(TaskState.ARCHIVED, "old", score=1)
    assert 0 == perform(quarantine_member(STAGED, "a", reason="x", max_size=1, cutoff=5, now=NOW))
    assert (["old"], ["a"]) == (tasks.ids("archived"), list(tasks.members("user:1")))


def test_w10_room_is_made_before_a_member_is_archived(perform: Perform, tasks: Tasks) -> None:
    """Too many, and too old ones."""
    stage(tasks, "bad", "worse")
    tasks.put(TaskState.ARCHIVED, "a", "b", score=NOW.seconds)
    assert 1 == perform(quarantine_member(STAGED, "bad", reason="x", max_size=2, cutoff=0, now=NOW))
    assert ["b", "bad"] == tasks.ids("archived")
    plan = quarantine_member(STAGED, "worse", reason="x", max_size=9, cutoff=NOW.seconds, now=NOW)
    assert 1 == perform(plan)
    assert ["bad", "worse"] == tasks.ids("archived")
