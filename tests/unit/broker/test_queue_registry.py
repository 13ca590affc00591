"""Names of queues that are owed to `asynq:queues`."""

from __future__ import annotations

from pyasynq._broker.queue_registry import QueueRegistry
from tests.fake_clock import FakeClock


def test_names_travel_with_ten_batches_at_once_and_one_each_second() -> None:
    """A busy client pays for one batch in many; others have their queues listed at once. (D48)"""
    clock = FakeClock()
    registry = QueueRegistry(clock.monotonic)
    clock.move(1_000.0)
    registry.confirm(["default"])

    def count(batches: int) -> int:
        return sum(registry.try_acquire(["default"]) for _ in range(batches))

    assert 10 == count(1_000)
    clock.move(0.5)
    assert 0 == count(1_000)
    clock.move(2.0)
    assert 2 == count(1_000)


def test_a_new_name_always_travels() -> None:
    """The program may end before it could follow. (D45)"""
    registry = QueueRegistry()
    registry.confirm(["known"])

    assert all(registry.try_acquire(["known", f"new-{number}"]) for number in range(100))


def test_names_that_are_owed_are_taken_once() -> None:
    """The caller owes them again if Redis does not take them."""
    registry = QueueRegistry()
    registry.owe(["a", "b", "a"])

    assert [["a", "b"], []] == [registry.take(), registry.take()]
    assert not registry.owes


def test_a_call_takes_a_thousand_names() -> None:
    """The rest is owed to the next call."""
    registry = QueueRegistry()
    registry.owe(f"q{number}" for number in range(1_500))

    assert [1_000, 500, 0] == [len(registry.take()) for _ in range(3)]


def test_a_program_may_make_up_names_for_ever() -> None:
    """It needs no more memory for them than for ten thousand. (D29)"""
    registry = QueueRegistry()
    for number in range(50_000):
        registry.confirm([f"q{number}"])

    assert not registry.is_new(["q49999"])
    assert registry.is_new(["q0"])
    assert len(registry._known) <= 10_001
