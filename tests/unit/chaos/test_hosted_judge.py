"""The judges of hosted tasks and of two instances, on calls that are written here."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

import pytest

from tests.chaos.hosted import draw_tasks, judge
from tests.chaos.hosted_judge import Call, Ended, Kill, find_faults
from tests.chaos.service_pair import PairLoad, find_losses

if TYPE_CHECKING:
    from tests.chaos.instances import PatientSession

MAX_RETRY = 2
DONE = Ended("completed", 0)


def find(calls: list[Call], found: Ended | None, *kills: Kill) -> list[str]:
    """Return the violations of one task."""
    return list(find_faults("a", calls, found, kills, MAX_RETRY))


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ([Call(1, "a", 1, "200")], DONE),
        ([Call(1, "a", 1, "500"), Call(2, "b", 2, "200")], Ended("completed", 1)),
        ([Call(1, "a", 1, "429s", 2), Call(3, "a", 1, "200")], DONE),
        ([Call(1, "a", 1, "404")], Ended("archived", 0)),
        ([Call(1, "a", 1, "reset"), Call(2, "a", 2, "75"), Call(3, "a", 3, "hang")], Ended("archived", 2)),
        ([Call(1, "a", 1, "500"), Call(2, "a", 2, "cancel")], None),
    ],
)
def test_what_the_table_says_is_well(calls: list[Call], found: Ended | None) -> None:
    """Retries are spent by failures alone."""
    assert [] == find(calls, found)


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ([], DONE),
        ([Call(1, "a", 1, "200")], None),
        ([Call(1, "a", 1, "200")], Ended("active", 0)),
        ([Call(1, "a", 1, "500")], Ended("retry", 1)),
        ([Call(1, "a", 1, "404")], Ended("retry", 1)),
        ([Call(1, "a", 1, "429s", 2)], Ended("retry", 0)),
        ([Call(1, "a", 1, "200"), Call(2, "a", 1, "200")], DONE),
        ([Call(1, "a", 1, "429s", 2), Call(3, "a", 2, "200")], Ended("completed", 1)),
        ([Call(1, "a", 1, "429s", 2), Call(2, "a", 1, "200")], DONE),
        ([Call(1, "a", 1, "500"), Call(2, "a", 1, "200")], DONE),
        ([Call(1, "a", 1, "75"), Call(2, "a", 2, "75")], Ended("archived", 1)),
    ],
)
def test_what_it_does_not_say_is_told(calls: list[Call], found: Ended | None) -> None:
    """Lost and stuck tasks, wrong ends, repeated calls, spent retries, and calls that come too early."""
    assert [] != find(calls, found)


def test_a_kill_explains_a_call_of_its_instance_alone() -> None:
    """If it came after the first call and before the second one, and the attempt is the same."""
    calls = [Call(10, "a", 1, "200"), Call(50, "b", 1, "200")]

    assert [] == find(calls, DONE, Kill(12, "a"))
    for kill in (Kill(12, "b"), Kill(8, "a"), Kill(51, "a")):
        assert [] != find(calls, DONE, kill)
    spent = [Call(10, "a", 1, "200"), Call(50, "b", 2, "200")]
    assert [] != find(spent, Ended("completed", 1), Kill(12, "a"))


def test_a_task_that_met_three_kills_may_be_archived_as_poison() -> None:
    """Not one that met two."""
    calls = [Call(at, "a", 1, "200") for at in (10, 50, 90)]
    kills = [Kill(at, "a") for at in (11, 51, 91)]

    assert [] == find(calls, Ended("archived", 0), *kills)
    assert [] != find(calls, Ended("archived", 0), *kills[:2])


def test_a_task_of_an_endpoint_that_is_gone_may_wait_for_good() -> None:
    """Its queue is paused; a task that was never enqueued is told."""
    assert [] == judge({"a": "gone/410"}, {}, {"a": Ended("pending", 0)}, [])
    assert [] != judge({"a": "flaky/200"}, {}, {"a": Ended("pending", 0)}, [])
    assert [] != judge({}, {"a": [Call(1, "a", 1, "200")]}, {}, [])


def test_each_way_is_drawn() -> None:
    """Once at least, so that a small run has all of them."""
    assert {"a", "b"} == set(draw_tasks({"a": 1_000.0, "b": 0.001}, 5, random.Random(1)))


def test_two_instances_lose_nothing_and_complete_nothing_twice() -> None:
    """A second run alone violates nothing: its lease may have lapsed."""
    load = PairLoad(cast("PatientSession", None), random.Random(1))
    load.acknowledged = {"a", "b"}
    load.runs.update(["a", "a", "b"])
    load.completed.update(["a", "b"])
    states = {"a": "completed", "b": "completed"}

    assert [] == find_losses(load, states)
    assert [] != find_losses(load, {**states, "b": "active"})
    assert [] != find_losses(load, {"a": "completed"})
    assert [] != find_losses(load, {**states, "c": "completed"})
    load.completed.update(["a"])
    assert [] != find_losses(load, states)
