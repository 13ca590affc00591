"""The server under test: one embedded server in memory for each test process, emptied before each test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import redis

from pyasynq.embedded import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[EmbeddedServer]:
    """The server of this test process; PYASYNQ_TEST_BINARY names another program, such as `redis-server`."""
    with EmbeddedServer(binary=os.environ.get("PYASYNQ_TEST_BINARY")) as server:
        yield server


@pytest.fixture
def redis_url(valkey_server: EmbeddedServer) -> str:
    """The URL of an empty server."""
    with redis.Redis.from_url(valkey_server.url) as client:
        client.flushall()
        client.script_flush()
    return valkey_server.url
