"""The size of an operation's steps, by the time that Redis takes for a task."""

from __future__ import annotations

import pytest

from pyasynq.operations.acting import StepPace


def _run(pace: StepPace, each: float, delays: list[float], trip: float = 0.0002) -> int:
    """Make a step for each delay, of tasks that take `each` seconds; return the size of the next one."""
    size = 100
    for delay in delays:
        size = pace.next_size(size, trip + size * each + delay, trip)
    return size


@pytest.mark.parametrize(("each", "size"), [(0.000_001, 400), (0.000_03, 150), (0.000_09, 50), (0.001, 20)])
def test_a_step_takes_redis_a_few_milliseconds(each: float, size: int) -> None:
    """4.5 ms, with 20 to 400 tasks, however long a round trip is."""
    for trip in (0.0002, 0.05):
        assert size == pytest.approx(_run(StepPace(), each, [0.0] * 6, trip), abs=1)


def test_delays_of_a_busy_machine_do_not_shrink_the_steps() -> None:
    """One of five steps was not delayed; it tells what Redis needs."""
    assert 149 <= _run(StepPace(), 0.000_03, [0.02, 0.0, 0.05, 0.03, 0.02, 0.02]) <= 150


def test_steps_shrink_when_the_tasks_take_redis_longer() -> None:
    """After five such steps the quick ones before are forgotten."""
    pace = StepPace()
    assert 150 == pytest.approx(_run(pace, 0.000_03, [0.0] * 5), abs=1)
    assert 45 == pytest.approx(_run(pace, 0.000_1, [0.0] * 5), abs=1)


def test_a_delayed_round_trip_does_not_make_a_step_look_free() -> None:
    """The shortest of the recent round trips counts."""
    pace = StepPace()
    for trip in (0.0002, 0.08, 0.08):
        size = pace.next_size(100, 0.0002 + 100 * 0.000_09, trip)
    assert 50 == pytest.approx(size, abs=1)
