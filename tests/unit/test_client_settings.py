from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import pyasynq.sync
from pyasynq.app import App
from pyasynq.client import Client
from pyasynq.errors import InvalidOptionError

kinds = pytest.mark.parametrize("kind", [Client, pyasynq.sync.Client, App], ids=["async", "blocking", "app"])
clients = pytest.mark.parametrize("kind", [Client, pyasynq.sync.Client], ids=["async", "blocking"])


@clients
@pytest.mark.parametrize("timeout", [2.5, timedelta(seconds=2.5)])
def test_the_time_out_is_seconds_or_a_timedelta(kind: type[Client], timeout: Any) -> None:
    """As all durations are."""
    assert 2.5 == kind(timeout=timeout)._driver.timeout


@kinds
@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout", 0), ("timeout", -1), ("timeout", None), ("timeout", "5s"), ("max_payload", "8MB")],
)
def test_a_setting_that_cannot_work_is_refused_by_its_name(
    kind: type[Client | App], name: str, value: Any
) -> None:
    """Nothing is connected before."""
    with pytest.raises(InvalidOptionError, match=name):
        kind(**{name: value})
