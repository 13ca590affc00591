"""How many positions a call of a walk looks at."""

from __future__ import annotations

from pyasynq._broker.inspecting.pace import ChunkPace


def sizes(*seconds: float) -> list[int]:
    """Return the positions of a call after each of these calls."""
    pace = ChunkPace()
    found = []
    for one in seconds:
        pace.note(one)
        found.append(pace.size)
    return found


def test_calls_look_at_more_after_short_calls_and_at_less_after_long_ones() -> None:
    """Up to 250 positions, and down to 50."""
    assert [200, 250, 250] == sizes(0.001, 0.001, 0.001)
    assert [200, 100, 50, 50] == sizes(0.001, 0.02, 0.02, 0.02)
    assert [200, 200] == sizes(0.001, 0.007)


def test_a_distant_redis_is_not_asked_for_less() -> None:
    """The shortest call is taken for the network's share of each."""
    assert [200, 250, 250] == sizes(0.05, 0.051, 0.052)
