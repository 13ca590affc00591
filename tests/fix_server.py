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


@pytest.fixture(scope="session")
def server_url(request: pytest.FixtureRequest) -> str:
    """The URL of the server under test; PYASYNQ_TEST_URL names one that runs already and may be emptied."""
    if url := os.environ.get("PYASYNQ_TEST_URL"):
        return url
    server: EmbeddedServer = request.getfixturevalue("valkey_server")
    return server.url


@pytest.fixture
def redis_url(server_url: str) -> str:
    """The URL of an empty server."""
    with redis.Redis.from_url(server_url) as client:
        client.flushall()
        client.script_flush()
    return server_url
