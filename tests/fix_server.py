"""The server under test: one embedded server in memory for each test process, emptied before each test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pyasynq.embedded import EmbeddedServer
from tests.cluster_client import client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_BED = os.environ.get("PYASYNQ_TEST_BED")


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[EmbeddedServer]:
    """The server of this test process; PYASYNQ_TEST_BINARY names another program, such as `redis-server`."""
    with EmbeddedServer(binary=os.environ.get("PYASYNQ_TEST_BINARY")) as server:
        yield server


@pytest.fixture(scope="session")
def server_url(request: pytest.FixtureRequest) -> str:
    """The URL of the server under test.

    PYASYNQ_TEST_URL names one that runs already and may be emptied. With PYASYNQ_TEST_BED=cluster it is a
    cluster, with PYASYNQ_TEST_BED=sentinel a primary under Sentinel.
    """
    if url := os.environ.get("PYASYNQ_TEST_URL"):
        return url
    if _BED == "cluster":
        return request.getfixturevalue("cluster_server").url  # type: ignore[no-any-return]
    if _BED == "sentinel":
        return request.getfixturevalue("running_sentinel_group").url()  # type: ignore[no-any-return]
    server: EmbeddedServer = request.getfixturevalue("valkey_server")
    return server.url


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty server, group or cluster; tests that have a proxy or are marked get a server."""
    is_single = "proxy" in request.fixturenames or request.node.get_closest_marker("single_server")
    of_one = "valkey_server" if is_single and _BED else "server_url"
    value = request.getfixturevalue(of_one)
    url: str = value if isinstance(value, str) else value.url
    with client_of(url) as client:
        client.flushall()
        client.script_flush()
    return url
