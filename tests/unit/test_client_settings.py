from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import pyasynq.sync
from pyasynq.client import Client
from pyasynq.errors import InvalidOptionError

clients = pytest.mark.parametrize("kind", [Client, pyasynq.sync.Client], ids=["async", "blocking"])


@clients
@pytest.mark.parametrize("timeout", [2.5, timedelta(seconds=2.5)])
def test_the_time_out_is_seconds_or_a_timedelta(kind: type[Client], timeout: Any) -> None:
    """As all durations are."""
    assert 2.5 == kind(timeout=timeout)._driver.timeout


@clients
@pytest.mark.parametrize(
    ("name", "value"), [("timeout", 0), ("timeout", None), ("timeout", "5s"), ("max_payload", "8MB")]
)
def test_a_setting_that_cannot_work_is_refused_by_its_name(kind: type[Client], name: str, value: Any) -> None:
    """Nothing is connected before."""
    with pytest.raises(InvalidOptionError, match=name):
        kind(**{name: value})
