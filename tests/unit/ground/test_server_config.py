from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pyasynq.config import ServerConfig
from pyasynq.errors import InvalidOptionError


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
        ("strict_priority", "no"),
        ("burst", 1),
        ("retry_delay", 60),
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
