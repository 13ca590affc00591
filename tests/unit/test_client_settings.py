from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import pyasynq.sync
from pyasynq.app import App
from pyasynq.client import Client
from pyasynq.errors import InvalidOptionError, PayloadTooLargeError

kinds = pytest.mark.parametrize("kind", [Client, pyasynq.sync.Client, App], ids=["async", "blocking", "app"])
clients = pytest.mark.parametrize("kind", [Client, pyasynq.sync.Client], ids=["async", "blocking"])


@clients
@pytest.mark.parametrize("timeout", [2.5, timedelta(seconds=2.5)])
def test_the_time_out_is_seconds_or_a_timedelta(kind: type[Client], timeout: Any) -> None:
    """The timeout takes the same types as every other duration."""
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


@pytest.mark.parametrize("limit", [500_000_001, 2**40])
def test_a_limit_above_what_redis_takes_is_refused(limit: int) -> None:
    """The server would cut the connection."""
    with pytest.raises(InvalidOptionError, match="500,000,000 at most: Redis takes no value over 512 MB"):
        Client("redis://nowhere.invalid", max_payload=limit)


def test_a_hundred_megabytes_are_refused_before_a_connection_is_made() -> None:
    """The error names the size, the limit and the remedy."""
    with (
        pyasynq.sync.Client("redis://nowhere.invalid") as client,
        pytest.raises(
            PayloadTooLargeError, match="100,000,000 bytes and the limit is 8,000,000: store the data"
        ),
    ):
        client.enqueue("email:deliver", bytes(100_000_000))
