"""Which queues are known to be registered."""

from __future__ import annotations

from pyasynq._broker.queue_registry import QueueRegistry
from tests.fake_clock import FakeClock


def test_d29_names_that_are_not_believed_any_more_are_forgotten() -> None:
    """A program that makes up names for ever needs no more memory for them than a minute's."""
    clock = FakeClock()
    registry = QueueRegistry(clock.monotonic)
    for number in range(50_000):
        registry.remember(f"q{number}")
        clock.move(0.1)
    registry.remember("last")

    assert registry.knows("last")
    assert registry.knows("q49999")
    assert not registry.knows("q0")
    assert len(registry._known_until) < 2_000
