from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._clock import Instant
from pyasynq.errors import RedisUnavailableError
from pyasynq.info import QueueInfos
from pyasynq.operations.sync.sweep import INTERVAL, LOAD_FACTOR, Sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


class FakeInspector:
    """An inspector of an empty Redis that takes its time."""

    places = ()

    def __init__(self) -> None:
        self.seconds = 100.0
        self.takes = 0.0
        self.sweeps = 0
        self.error: Exception | None = None

    def now(self) -> Instant:
        return Instant.from_datetime(NOW)

    def redis_now(self) -> None:
        return None

    def queue_infos(self) -> QueueInfos:
        self.sweeps += 1
        self.seconds += self.takes
        if self.error is not None:
            raise self.error
        return QueueInfos((), {})

    def run(self, plan: Any) -> list[Any]:
        plan.close()
        return []

    def run_batch(self, plans: Sequence[Any]) -> list[Any]:
        assert not plans
        return []

    def scheduler_entries(self) -> list[Any]:
        return []

    task_types = scheduler_entries


@pytest.fixture
def inspector() -> FakeInspector:
    """An empty Redis."""
    return FakeInspector()


@pytest.fixture
def sweep(inspector: FakeInspector) -> Sweep:
    """A sweep over the empty Redis."""
    return Sweep(inspector, lambda: inspector.seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize(("takes", "rest"), [(0.0, INTERVAL), (0.03, INTERVAL), (1.0, LOAD_FACTOR * 1.0)])
def test_a_sweep_rests_fifty_times_as_long_as_it_took(
    inspector: FakeInspector, sweep: Sweep, takes: float, rest: float
) -> None:
    """So it takes at most 2 % of Redis' time; a quick one rests two seconds."""
    inspector.takes = takes
    first, _ = sweep.read()
    inspector.seconds += rest - 0.001
    assert (first, None) == sweep.read()
    assert 1 == inspector.sweeps
    inspector.seconds += 0.002
    second, earlier = sweep.read()
    assert (2, first.at) == (inspector.sweeps, earlier and earlier.at)
    assert second is not first


def test_nothing_is_read_without_a_caller(inspector: FakeInspector, sweep: Sweep) -> None:
    """There is no timer and no thread."""
    threads = threading.active_count()
    inspector.seconds += 3_600
    assert (0, threads) == (inspector.sweeps, threading.active_count())
    sweep.read()
    inspector.seconds += 3_600
    assert (1, threads) == (inspector.sweeps, threading.active_count())


def test_a_sweep_that_fails_rests_as_well_and_the_last_snapshot_is_shown(
    inspector: FakeInspector, sweep: Sweep
) -> None:
    """A Redis in trouble is not asked more often for it."""
    first, _ = sweep.read()
    inspector.takes, inspector.error = 1.0, RedisUnavailableError("redis:6379", "it is away")
    inspector.seconds += 10
    with pytest.raises(RedisUnavailableError):
        sweep.read()
    assert first is sweep.read()[0]
    assert 2 == inspector.sweeps
    inspector.seconds += 51
    inspector.error = None
    assert first is not sweep.read()[0]
