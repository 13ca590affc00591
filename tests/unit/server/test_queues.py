"""How free slots are divided among queues."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pyasynq._engine.take.queue_order import StrictOrder, WeightedOrder

WEIGHTS = {"critical": 6, "default": 3, "low": 1}


@pytest.mark.parametrize("slots", [1, 2, 3, 7, 10, 100])
def test_full_queues_share_the_slots_by_weight_within_five_percent(slots: int) -> None:
    """Over 20,000 tasks, however few slots are free at a time."""
    order = WeightedOrder(WEIGHTS)
    given: Counter[str] = Counter()
    while given.total() < 20_000:
        given.update(order.split(slots, list(WEIGHTS)))
    for queue, weight in WEIGHTS.items():
        assert given[queue] / given.total() == pytest.approx(weight / 10, rel=0.05)


@pytest.mark.parametrize("slots", [1, 5, 100])
def test_every_split_gives_exactly_the_free_slots(slots: int) -> None:
    """No slot is lost or given twice."""
    order = WeightedOrder(WEIGHTS)
    for _ in range(1_000):
        assert slots == sum(order.split(slots, list(WEIGHTS)).values())


def test_no_queue_waits_longer_than_ten_times_its_share() -> None:
    """With one slot at a time, the queue of weight 1 among 10 waits at most 100 slots."""
    order = WeightedOrder(WEIGHTS)
    since = dict.fromkeys(WEIGHTS, 0)
    longest = dict.fromkeys(WEIGHTS, 0)
    for _ in range(20_000):
        shares = order.split(1, list(WEIGHTS))
        for queue in WEIGHTS:
            since[queue] = 0 if queue in shares else since[queue] + 1
            longest[queue] = max(longest[queue], since[queue])
    for queue, weight in WEIGHTS.items():
        assert longest[queue] <= 10 * 10 / weight


def test_slots_of_empty_queues_go_to_the_others() -> None:
    """A queue that is known to be empty takes no slot."""
    assert {"default": 10} == WeightedOrder(WEIGHTS).split(10, ["default"])
    assert {"critical": 6, "default": 3} == WeightedOrder(WEIGHTS).split(9, ["critical", "default"])


def test_queues_that_run_empty_and_fill_again_do_not_starve_the_others() -> None:
    """Whatever comes and goes, the full queues keep their shares among one another."""
    random_numbers = random.Random(3)
    order = WeightedOrder(WEIGHTS)
    given: Counter[str] = Counter()
    waited = 0
    for _ in range(20_000):
        queues = ["critical", "low"] if random_numbers.random() < 0.5 else list(WEIGHTS)
        shares = order.split(2, queues)
        if "default" in shares:
            order.forget("default")
        waited = 0 if "low" in shares else waited + 1
        assert waited <= 100
        given.update(shares)
    assert given["critical"] / given["low"] == pytest.approx(6, rel=0.25)


def test_queues_that_come_and_go_leave_the_others_their_balances() -> None:
    """With one slot at a time, the lightest queue gets its turn although there are new weights each time."""
    order = WeightedOrder({"heavy": 9, "light": 1})
    given: Counter[str] = Counter()
    for number in range(1_000):
        weights = {"heavy": 9, "light": 1, f"new{number}": 1}
        order.weigh(weights)
        given.update(order.split(1, ["heavy", "light"]))
    assert 100 == pytest.approx(given["light"], abs=5)
    order.forget("new0")
    assert {"heavy": 1} == order.split(1, ["heavy"])


def test_strict_order_serves_the_highest_priority_alone() -> None:
    """The next queue is asked when the higher ones are empty."""
    order = StrictOrder(WEIGHTS)
    assert {"critical": 10} == order.split(10, ["low", "critical", "default"])
    assert {"default": 10} == order.split(10, ["low", "default"])


def test_strict_order_keeps_equal_priorities_in_their_order() -> None:
    """Ties are served in the order in which they were written down."""
    assert {"b": 1} == StrictOrder({"b": 1, "a": 1}).split(1, ["a", "b"])
