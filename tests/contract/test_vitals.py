"""Signs of stuck tasks in a queue, last ticks of schedules, and the health of Redis, on a real Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.inspecting.vitals import (
    QueueVitals,
    count_poison,
    find_server_records,
    read_last_ticks,
    read_redis_health,
    read_vitals,
)
from pyasynq._broker.operating import snoozes
from pyasynq._wire.keys import SNOOZED_KEY
from pyasynq.task import TaskState
from tests.factories import NOW

if TYPE_CHECKING:
    from tests.factories import Tasks
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

EMPTY = QueueVitals(0, 0, 0, 0, None, 0, None, None, 0, 0, 0, 0, None)
LATE = NOW.seconds - 60
GROUP_LATE = NOW.seconds - 900


def test_an_empty_queue_has_no_signs(perform: Perform) -> None:
    """It need not exist. Without a time, that of Redis counts."""
    assert EMPTY == perform(read_vitals("default", groups=50, now=NOW))
    assert EMPTY == perform(read_vitals("default", groups=50, now=None))


def test_leases_count_as_lapsed_a_minute_after_their_end(perform: Perform, tasks: Tasks) -> None:
    """Workers recover tasks about 40 s after the end of a lease."""
    tasks.active("late", lease=LATE)
    tasks.active("fresh", lease=LATE + 1)
    tasks.active("held")
    assert EMPTY._replace(active=3, leases=3, lapsed=1) == perform(read_vitals("default", groups=50, now=NOW))


def test_poison_tasks_are_counted_among_the_newest_archived_tasks(perform: Perform, tasks: Tasks) -> None:
    """A payload that quotes their error is none, nor is a damaged message."""
    poison = "poison: its worker crashed 3 times while running it, last on server a:1"
    for age, task_id in enumerate("abcd"):
        tasks.put(TaskState.ARCHIVED, task_id, score=NOW.seconds - age, error_msg=poison)
    tasks.put(TaskState.ARCHIVED, "failed", score=NOW.seconds - 2, error_msg="why")
    tasks.put(TaskState.ARCHIVED, "quoted", score=NOW.seconds - 2, payload=poison.encode())
    tasks.put(TaskState.RETRY, "retried", error_msg=poison)

    assert 4 == perform(count_poison("default", scan=100, most=100))
    assert 3 == perform(count_poison("default", scan=100, most=3))
    assert 1 == perform(count_poison("default", scan=100, most=1))
    assert 2 == perform(count_poison("default", scan=3, most=100))
    assert 0 == perform(count_poison("empty", scan=100, most=100))


def test_poison_tasks_are_counted_in_several_calls_if_messages_are_large(
    perform: Perform, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call keeps Redis busy for long."""
    monkeypatch.setattr("pyasynq._broker.inspecting.vitals.MAX_READ", 100)
    poison = "poison: its worker crashed once while running it, last on server a:1"
    for age, task_id in enumerate("abcd"):
        tasks.put(TaskState.ARCHIVED, task_id, score=NOW.seconds - age, error_msg=poison)
    assert 4 == perform(count_poison("default", scan=100, most=100))
    assert 3 == perform(count_poison("default", scan=3, most=100))
    assert 2 == perform(count_poison("default", scan=100, most=2))


def test_delayed_tasks_count_as_late_a_minute_after_their_time(perform: Perform, tasks: Tasks) -> None:
    """The first one of each state says since when."""
    tasks.put(TaskState.SCHEDULED, "a", score=LATE - 9)
    tasks.put(TaskState.SCHEDULED, "b", score=LATE)
    tasks.put(TaskState.SCHEDULED, "c", score=LATE + 1)
    tasks.put(TaskState.RETRY, "d", score=LATE)
    tasks.put(TaskState.RETRY, "e", score=LATE + 1)
    expected = EMPTY._replace(late_scheduled=2, first_scheduled=LATE - 9, late_retry=1, first_retry=LATE)
    assert expected == perform(read_vitals("default", groups=50, now=NOW))


def test_a_group_counts_as_late_from_its_newest_member_on(perform: Perform, tasks: Tasks) -> None:
    """A group that tasks still join is not late, however old its first one is."""
    tasks.put(TaskState.AGGREGATING, "a", group="late", score=GROUP_LATE - 9)
    tasks.put(TaskState.AGGREGATING, "b", group="late", score=GROUP_LATE)
    tasks.put(TaskState.AGGREGATING, "c", group="joined", score=GROUP_LATE - 9)
    tasks.put(TaskState.AGGREGATING, "d", group="joined", score=GROUP_LATE + 1)
    assert EMPTY._replace(seen_groups=2, late_groups=1, grouped=2) == perform(
        read_vitals("default", groups=50, now=NOW)
    )


@pytest.mark.parametrize("groups", [1, 50])
def test_at_most_as_many_groups_are_looked_at_as_asked_for(
    perform: Perform, tasks: Tasks, groups: int
) -> None:
    """The limit bounds the cost of a queue with very many groups."""
    for number in range(51):
        tasks.put(TaskState.AGGREGATING, f"{number}", group=f"g{number}", score=GROUP_LATE)
    expected = EMPTY._replace(seen_groups=groups, late_groups=groups, grouped=groups)
    assert expected == perform(read_vitals("default", groups=groups, now=NOW))


def test_a_set_counts_as_late_a_minute_after_its_deadline(perform: Perform, tasks: Tasks) -> None:
    """A server puts its tasks back before that."""
    tasks.in_set("g", "one", "a", stale_at=LATE)
    tasks.in_set("g", "two", "b", stale_at=LATE + 1)
    assert EMPTY._replace(late_sets=1) == perform(read_vitals("default", groups=50, now=NOW))


def test_a_pause_and_an_objective_are_read(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Redis holds both as text."""
    redis_client.set(tasks.keys.paused, NOW.seconds - 5)
    perform(snoozes.set_wait_objective("default", 1.5))
    expected = EMPTY._replace(paused_since=NOW.seconds - 5, wait_objective=1.5)
    assert expected == perform(read_vitals("default", groups=50, now=NOW))
    assert 1.5 == perform(snoozes.read_wait_objective("default"))
    perform(snoozes.set_wait_objective("default", None))
    assert None is perform(snoozes.read_wait_objective("default"))
    redis_client.delete(tasks.keys.paused)


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-1", "1e99", b"\xff", "0"])
def test_hostile_values_are_none(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, text: str | bytes
) -> None:
    """Any program may have written them."""
    redis_client.set(tasks.keys.paused, text)
    redis_client.hset(tasks.keys.objectives, "wait", text)
    found = perform(read_vitals("default", groups=50, now=NOW))
    assert found.paused_since in {None, -1, 0}
    assert found.wait_objective in {None, 1e99}
    assert perform(snoozes.read_wait_objective("default")) in {None, 1e99}


def test_the_last_ticks_of_entries_are_read(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Without the times since which an entry is known or paused, and without what is not a number."""
    ticks = {"a": 100, "a:since": 50, "a:paused": 60, "b": "x", "c": 0}
    redis_client.hset(tasks.keys.ticks, mapping=ticks)
    assert {"a": 100} == perform(read_last_ticks("default"))
    assert {} == perform(read_last_ticks("other"))


def test_the_health_of_redis_is_read(perform: Perform) -> None:
    """Redis in memory has no limit and no append-only file."""
    health = perform(read_redis_health(None))
    assert health is not None
    assert health.used > 0
    assert health.policy
    assert [] == perform(find_server_records(NOW))


def test_the_newest_snooze_of_a_finding_counts_until_it_ends(
    perform: Perform, redis_client: RedisClient
) -> None:
    """Snoozes that have ended are removed with the next one; other members are left out."""
    for finding, seconds in (("a", 10), ("a", 30), ("b", 20), ("ended", -5)):
        until = NOW.plus(seconds)
        perform(snoozes.add_snooze(finding, until=until, reason="why", by="mira", now=NOW))
    redis_client.zadd(SNOOZED_KEY, {b"\xff": NOW.seconds + 99, "{}": NOW.seconds + 99})
    found = perform(snoozes.list_snoozes(NOW))
    assert [("b", 21), ("a", 31)] == [
        (one.finding, int(one.until.timestamp()) - NOW.seconds) for one in found
    ]
    assert ["a"] == [one.finding for one in perform(snoozes.list_snoozes(NOW.plus(25)))]
    assert perform(snoozes.remove_snooze("a"))
    assert not perform(snoozes.remove_snooze("a"))
    redis_client.zrem(SNOOZED_KEY, b"\xff", "{}")
    assert 0 < redis_client.ttl(SNOOZED_KEY) <= snoozes.LONGEST_SNOOZE + 1
