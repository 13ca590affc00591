from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from pyasynq.config import ServerConfig
from pyasynq.errors import InvalidOptionError
from pyasynq.limits import Queue, QueueLimits


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queues", ["critical", "default"]),
        ("queues", "critical"),
        ("queues", {}),
        ("queues", {"": 1}),
        ("queues", {"critical": 0}),
        ("concurrency", 0),
        ("concurrency", 2.0),
        ("prefetch", -1),
        ("prefetch", "auto"),
        ("strict_priority", "no"),
        ("burst", 1),
        ("retry_delay", "60"),
        ("retry_delay", -1),
        ("retry_delay", None),
        ("is_failure", False),
        ("error_handler", "log"),
        ("health_check", True),
        ("on_unknown", ["fail"]),
        ("crash_limit", -1),
        ("max_tasks", 0),
        ("shutdown_timeout", -1),
        ("shutdown_timeout", None),
        ("task_check_interval", 0),
        ("delayed_task_check_interval", 0),
        ("janitor_interval", timedelta(0)),
        ("health_check_interval", 0.0),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_its_name(name: str, value: Any) -> None:
    """What a user would naturally try. An interval of zero would never let a service rest."""
    with pytest.raises(InvalidOptionError, match=name):
        ServerConfig(**{name: value})


def test_settings_that_work_are_taken_as_they_are() -> None:
    """Time-outs may be zero: nothing is waited for then."""
    config = ServerConfig(shutdown_timeout=0, cancel_timeout=timedelta(0), crash_limit=0, max_tasks=1)
    assert (0, timedelta(0), 0, 1) == (
        config.shutdown_timeout,
        config.cancel_timeout,
        config.crash_limit,
        config.max_tasks,
    )


def test_a_queue_is_a_priority_or_says_more() -> None:
    """A plain number stays what it was; limits are not part of the priorities."""
    config = ServerConfig(queues={"deliver": Queue(priority=3, max_run=1), "default": 2})
    assert {"deliver": 3, "default": 2} == config.priorities
    assert QueueLimits(max_run=1) == config.queue("deliver").limits
    assert Queue(priority=2) == config.queue("default")


def test_a_queue_without_limits_is_unlimited() -> None:
    """No limit is the default."""
    assert not Queue().limits
    assert Queue(max_run=1).limits
    assert Queue(rate=1).limits


@pytest.mark.parametrize(
    ("expected", "rate", "period", "burst"),
    [
        (QueueLimits(None, 50.0, 1.0, 5), 50, 1.0, None),
        (QueueLimits(None, 100.0, 60.0, 1), 100, timedelta(minutes=1), None),
        (QueueLimits(None, 0.5, 1.0, 1), 0.5, 1, None),
        (QueueLimits(None, 50.0, 1.0, 10), 50, 1, 10),
    ],
)
def test_a_burst_that_is_not_given_is_a_tenth_of_a_second(
    expected: QueueLimits, rate: float, period: Any, burst: int | None
) -> None:
    """Starts are spread evenly, and a timer that is late by milliseconds costs nothing."""
    assert expected == Queue(rate=rate, period=period, burst=burst).limits


@pytest.mark.parametrize(
    ("option", "settings"),
    [
        ("priority", {"priority": 0}),
        ("max_run", {"max_run": 0}),
        ("max_run", {"max_run": True}),
        ("max_run", {"max_run": 1_000_001}),
        ("rate", {"rate": 0}),
        ("rate", {"rate": -1.0}),
        ("rate", {"rate": math.nan}),
        ("rate", {"rate": math.inf}),
        ("rate", {"rate": "50 a second"}),
        ("rate", {"rate": 1_000_001}),
        ("rate", {"rate": 1e-20}),
        ("rate", {"rate": 5e-324, "period": 3_600}),
        ("period", {"rate": 1, "period": 0}),
        ("burst", {"rate": 1, "burst": 0}),
        ("burst", {"burst": 5}),
        ("period", {"period": 5}),
        ("ordered", {"ordered": 1}),
        ("max_run", {"ordered": True, "max_run": 2}),
    ],
)
def test_a_limit_that_cannot_work_is_refused_by_its_name(option: str, settings: dict[str, Any]) -> None:
    """Zero would stop the queue; that is what pausing is for."""
    with pytest.raises(InvalidOptionError, match=f"^{option}="):
        Queue(**settings)


def test_zero_points_at_the_pause() -> None:
    """The message names the remedy."""
    with pytest.raises(InvalidOptionError, match="pausing the queue"):
        Queue(max_run=0)
    with pytest.raises(InvalidOptionError, match="pausing the queue"):
        Queue(rate=0)
