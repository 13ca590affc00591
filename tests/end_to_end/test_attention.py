"""Attention in a busy system: nothing while it is healthy, and what is wrong once something is."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from pyasynq import sync
from pyasynq.operations import Thresholds
from pyasynq.task import Task
from tests.chaos.attention import live

if TYPE_CHECKING:
    from tests.invariants import RedisClient


@pytest.fixture(autouse=True)
def quiet_log(caplog: pytest.LogCaptureFixture) -> None:
    """Some of the tasks fail."""
    caplog.set_level(logging.CRITICAL, "pyasynq")


def test_a_busy_healthy_system_needs_no_attention(redis_client: RedisClient, redis_url: str) -> None:
    """For some sweeps here; `make chaos-attention` asks for ten minutes."""
    asked = asyncio.run(live(redis_url, 4, 0.5))
    assert [] == asked.findings
    assert asked.times > 1
    assert asked.enqueued > 0
    redis_client.flushall()


def test_the_same_system_with_a_forgotten_queue_does(redis_client: RedisClient, redis_url: str) -> None:
    """Otherwise the silence of the other test would say nothing."""
    with sync.Client(redis_url) as client:
        client.enqueue(Task("t", b"{}"), queue="forgotten")
    asked = asyncio.run(live(redis_url, 60, 0.1, Thresholds(unserved_after=0.0)))
    assert [("no_consumers", "forgotten")] == [(one.detector, one.queue) for one in asked.findings]
    redis_client.flushall()
